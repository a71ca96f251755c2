"""Describe debris that a scan found, and keep a scan within its bounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from gpudeck.language.text import Message, Span, phrase
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.errors import UserError

Kind = Literal["cache", "log", "artefacts", "core", "duplicate", "memory", "process"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TITLES: dict[Kind, str] = {
    "cache": "Kernel cache",
    "log": "Log of a job",
    "artefacts": "Artefacts of a job",
    "core": "Core dump",
    "duplicate": "Duplicate model",
    "memory": "Shared memory",
    "process": "Process on a GPU",
}


class StaysError(UserError):
    """Report why something stays where it is."""


def explain_error(error: Exception) -> Message:
    """Return why something stays or could not be read."""
    if isinstance(error, StaysError):
        return error.message
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class Finding(msgspec.Struct, frozen=True):
    """Describe something that may go.

    Paths are percent-encoded, because a file name may hold any bytes and JSON holds only text.
    """

    kind: Kind
    place: str
    """The absolute path, percent-encoded; empty for a process."""
    root: str
    """The allowed folder that holds it, percent-encoded."""
    bytes: int
    """Allocated bytes that its removal frees, without those shared with other files; for a process,
    bytes of GPU memory.
    """
    reason: Message
    """Why it may go, for a person to read. It may quote file names, without control characters."""
    age: float
    """Seconds since its last use, at the time of the scan."""
    seal: str = ""
    """A digest of its content (see `walk.Measure`): anything that changed since the scan has
    another.
    """
    twin: str = ""
    """The file that stays, percent-encoded, if this is a duplicate."""
    twin_seal: str = ""
    process: Process | None = None
    """The process, if this is one. `Client.kill` ends it; it is never moved."""

    @property
    def path(self) -> Path:
        """Return the path, decoded."""
        return decoded(self.place)

    @property
    def shown(self) -> str:
        """Return the path for people to read, free of terminal control characters."""
        return shown(self.path) if self.place else f"pid {self.process.pid}" if self.process else ""


def encoded(path: str | Path) -> str:
    """Return a path as ASCII text, percent-encoded as in file: URIs and in the trash's
    own files.
    """
    return quote_from_bytes(os.fsencode(path))


def decoded(place: str) -> Path:
    """Return the path that `encoded` wrote."""
    return Path(os.fsdecode(unquote_to_bytes(place)))


def shown(path: Path) -> str:
    """Return a path for people to read, with `~` for their home folder.

    Characters that control a terminal, or that are no valid text, are escaped: \\x1b.
    """
    text, home = str(path), f"{Path.home()}/"
    text = f"~/{text[len(home) :]}" if text.startswith(home) and len(home) > 1 else text
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)
    )


def _escaped(character: str) -> str:
    return repr(os.fsencode(character))[2:-1]


def within(path: Path, folder: Path) -> bool:
    """Return True if `path` lies below `folder`; both are absolute and without links."""
    return folder in path.parents


def is_in_trash(path: Path) -> bool:
    """Return True if a path lies in a trash folder."""
    return any(part == "Trash" or part.startswith(".Trash") for part in path.parts)


SCAN_S = 60.0
"""The longest duration of a scan by default."""
_TELL_S = 0.1


class ScanMonitor:
    """Keep one scan within bounds: report its progress, stop it, and collect what it could not
    read.

    Args:
        report: Called with the path being searched, at most ten times a second.
        cancelled: Returns True once the scan should stop.
        seconds: The longest duration of the scan.
    """

    def __init__(
        self,
        report: Callable[[str], None] = lambda text: None,
        cancelled: Callable[[], bool] = lambda: False,
        seconds: float = SCAN_S,
    ) -> None:
        self._report, self._cancelled = report, cancelled
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._next = 0.0
        self.stopped: Message = ""
        """Why the scan ended early; empty if it did not."""
        self.unseen: list[Message] = []
        """Lines for a person on everything that could not be read."""

    def must_stop(self, path: Path | None = None) -> bool:
        """Return True if the scan must end now. `path` is the one being searched."""
        now = time.monotonic()
        if not self.stopped:
            if self._cancelled():
                self.stopped = phrase("cancelled")
            elif now > self._end:
                self.stopped = phrase("not done after {span}", span=Span(round(self._seconds)))
        if path and now >= self._next:
            self._next = now + _TELL_S
            self._report(shown(path))
        return bool(self.stopped)

    def note_unreadable(self, path: Path, error: Exception) -> None:
        """Record that a path could not be read."""
        where, why = shown(path), explain_error(error)
        self.unseen.append(phrase("{what}: {text}", what=where, text=why))
