"""The token of a cluster, from a file that nobody else can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from scheduler.executors.agent_protocol import Unreachable

MAX_TOKEN = 4096
"""Bytes."""


def token(file: str) -> str:
    """What the file holds; empty where none is named. Read anew each time, as tokens are renewed. Raises Unreachable."""
    if not file:
        return ""
    try:
        with Path(file).expanduser().open("rb") as f:
            if os.fstat(f.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise Unreachable(f"the token in {file} is open to others. Try: chmod 600 {file}")
            found = f.read(MAX_TOKEN).decode().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise Unreachable(
            f"the token in {file} cannot be read: {getattr(e, 'strerror', None) or 'it is no text'}"
        ) from e
    if not found or not found.isascii() or not found.isprintable():
        raise Unreachable(f"there is no token in {file}")
    return found
