"""Tell a daemon that an older GPU Deck started from the one that this program would start.

Its jobs and its protocol outlive an upgrade, but its modules may be gone from the disk, so that it
can start neither a job nor a probe any more. A client that may start a daemon replaces an older
one.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from gpudeck.scheduler.protocol import paths
from gpudeck.version import VERSION


def note_version() -> None:
    """Store the version of this process, which is the daemon."""
    with suppress(OSError):  # on a full disk; an unknown version is not taken for an older one
        paths.replace_file(paths.daemon_version(), f"{os.getpid()} {VERSION}\n".encode())


def is_older(pid: int) -> bool:
    """Return whether the daemon with this process number is of an older GPU Deck."""
    try:
        noted, version = paths.daemon_version().read_text().split()
    except (OSError, ValueError):
        noted, version = "", ""
    return noted == str(pid) and _numbers(version) < _numbers(VERSION)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
