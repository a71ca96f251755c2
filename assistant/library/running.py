"""Find the models that are served now, by the sockets of their servers. Free of torch."""

from __future__ import annotations

import msgspec

from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import DaemonGone
from gpudeck.scheduler.protocol.wire import Connection

_TIMEOUT_S = 3.0
"""Longer than a server waits for its engine."""


class RunningModel(msgspec.Struct, frozen=True):
    """Describe a model that is served: what `gpudeck.assistant.serve.control_messages.Served`
    begins with.

    Fields that are not named here are left out.
    """

    name: str
    port: int


_DECODE = msgspec.json.Decoder(RunningModel).decode


def running_models() -> tuple[RunningModel, ...]:
    """Return the models whose servers answer now."""
    found: list[RunningModel] = []
    for path in sorted((paths.runtime() / "serving").glob("*.sock")):
        try:
            connection = Connection(path, _TIMEOUT_S)
        except DaemonGone:
            continue  # it ended without removing its socket
        try:
            connection.send(b'{"type":"look"}')
            found.append(_DECODE(connection.receive()))
        except (DaemonGone, msgspec.MsgspecError):
            continue
        finally:
            connection.close()
    return tuple(found)
