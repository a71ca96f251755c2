"""The machine whose daemon a client talks to, where it is not this one."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Place(msgspec.Struct, frozen=True):
    """Describe another machine, whose daemon is reached through a socket on this one."""

    name: str
    """The name that the user gave the machine."""
    socket: Path
    """The socket on this machine that leads there."""
    home: str
    """The user's home folder there, in which jobs run by default."""
    env: dict[str, str]
    """The environment of a login there, which jobs get by default."""
