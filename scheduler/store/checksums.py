"""Find out what happened to a store behind our back: changed jobs, and changes that are gone."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from gpudeck.scheduler.protocol import paths


def checksum(job_id: int, submitted: float, spec: bytes) -> str:
    """Return the checksum of what a user submitted, as it is stored beside it.

    Args:
        spec: the JSON of the Spec, as it is stored.
    """
    head = f"{job_id} {submitted!r} ".encode()
    return hashlib.blake2b(head + spec, digest_size=8).hexdigest()


class Level(NamedTuple):
    """Describe how far a store has come; it never goes back."""

    events: int = 0
    """The number of the newest event of a job."""
    jobs: int = 0
    """The newest number of a job."""


class LevelMark:
    """Keep the level of a store in a file beside it.

    It is written after each commit and not synced. So the file may be behind the store, and never
    ahead of it, unless changes of the store are gone: its write-ahead log was deleted or cut, or
    the store was replaced by an older one.
    """

    def __init__(self, store: Path) -> None:
        """Open the mark of the store in this file."""
        self._file = mark_of(store)
        self._fd: int | None = None
        self._last = Level()

    def read(self) -> Level:
        """Return the highest level that the store was seen at."""
        return read_level(self._file)

    def write(self, level: Level) -> None:
        """Keep this level. A mark that cannot be written only finds less, and stops no commit."""
        if level == self._last:
            return
        self._last = level
        try:
            if self._fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(self._file, flags, paths.PRIVATE_FILE)
            os.pwrite(self._fd, f"{level.events:20} {level.jobs:20}\n".encode(), 0)
        except OSError:
            pass

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def mark_of(store: Path) -> Path:
    """Return the file that holds the mark of a store."""
    return store.with_name(f"{store.name}.mark")


def read_level(mark: Path) -> Level:
    """Return the level in a mark; the lowest one where there is none, or it makes no sense."""
    try:
        with paths.open_plain(mark) as f:
            events, jobs = f.read(100).split()
        return Level(int(events), int(jobs))
    except (OSError, ValueError):
        return Level()
