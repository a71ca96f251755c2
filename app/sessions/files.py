"""What a session leaves beside its job for those who open it: how to reach it, and its last use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED

NOTEBOOK, TERMINAL = "notebook", "shell"
"""The kinds of sessions, which are also the tags of their jobs."""
SOCKET = "terminal.sock"
_FOLDER, _FILE = ".session", "session.json"
_MOST_BYTES = 2**16


class Session(msgspec.Struct, frozen=True):
    """Describe a session that runs."""

    kind: str
    active: float
    """When it was last used, in seconds since the epoch."""
    idle: float = 0.0
    """Seconds without use after which it ends; 0: never."""
    url: str = ""
    """The address of a notebook, with the token that opens it."""


def own_folder() -> Path:
    """Return the folder of the session that runs as this process's job."""
    return paths.ensure(Path(os.environ["GPUDECK_ARTEFACTS"]) / _FOLDER)


def write(session: Session) -> None:
    """Store the state of this process's session, readable by its user alone.

    If that fails, the earlier state stays.
    """
    # a full disk must not end the session and lose what it computed; the next check writes again
    with suppress(OSError):
        paths.replace_file(own_folder() / _FILE, msgspec.json.encode(session))


def read(artefacts: Path) -> Session | None:
    """Return the session of the job with this folder of artefacts; None where none has begun."""
    try:
        with paths.open_plain(artefacts / _FOLDER / _FILE) as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=Session)
    except (OSError, *MALFORMED):
        return None


def socket_of(artefacts: Path) -> Path:
    """Return the socket of the terminal of a job."""
    return artefacts / _FOLDER / SOCKET
