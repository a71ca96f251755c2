"""Describe debris that a scan found, and monitor over the scan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from scheduler.protocol.devices import Process
from scheduler.protocol.errors import UserError

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
    """Something stays where it is; the message says why."""


class Finding(msgspec.Struct, frozen=True):
    """Something that may go. Paths are percent-encoded, as a file may have any bytes in its name, and JSON has text only."""

    kind: Kind
    place: str
    """Its absolute path, percent-encoded; empty for a process."""
    root: str
    """The allowed folder that it lies in, percent-encoded."""
    bytes: int
    """Allocated bytes that its going sets free: what other names or other files share is not counted. Of a process: of GPU memory."""
    reason: str
    """Why it may go, for a person to read; may hold names of files, without control characters."""
    age: float
    """Seconds since it was last used, as the scan saw it."""
    seal: str = ""
    """Names this very content (see `tree.Measure`): what has changed since the scan has another."""
    twin: str = ""
    """Of a duplicate: the file that stays, percent-encoded."""
    twin_seal: str = ""
    process: Process | None = None
    """Of a process: which. It is ended by `Client.kill`, never moved."""

    @property
    def path(self) -> Path:
        return decoded(self.place)

    @property
    def shown(self) -> str:
        """The path as people may see it: nothing in it steers a terminal."""
        return shown(self.path) if self.place else f"pid {self.process.pid}" if self.process else ""


def encoded(path: str | Path) -> str:
    """A path as ASCII text, percent-encoded as in file: URIs and in the trash's own files."""
    return quote_from_bytes(os.fsencode(path))


def decoded(place: str) -> Path:
    return Path(os.fsdecode(unquote_to_bytes(place)))


def shown(path: Path) -> str:
    """A path for people, `~` for their own folder; characters that steer a terminal, or are none, are shown as such: \\x1b."""
    text, home = str(path), f"{Path.home()}/"
    text = f"~/{text[len(home) :]}" if text.startswith(home) and len(home) > 1 else text
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)
    )


def _escaped(character: str) -> str:
    return repr(os.fsencode(character))[2:-1]


def within(path: Path, folder: Path) -> bool:
    """Whether `path` lies below `folder`; both absolute, and without links."""
    return folder in path.parents


def is_in_trash(path: Path) -> bool:
    """Whether a path lies in a trash."""
    return any(part == "Trash" or part.startswith(".Trash") for part in path.parts)


SCAN_S = 60.0
"""How long a scan may take where nobody says otherwise."""
_TELL_S = 0.1


class ScanMonitor:
    """One a scan. `report` is called with what is being looked at, at most ten times a second; `cancelled` is asked all the time."""

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
        self.stopped = ""
        """Why it ended before it had seen all; empty where it did not."""
        self.unseen: list[str] = []
        """What could not be looked at, and why; lines for a person."""

    def must_stop(self, path: Path | None = None) -> bool:
        """Whether the scan is to end now; `path`: what it looks at."""
        now = time.monotonic()
        if not self.stopped:
            self.stopped = (
                "cancelled"
                if self._cancelled()
                else f"not done after {self._seconds:.0f} s"
                if now > self._end
                else ""
            )
        if path and now >= self._next:
            self._next = now + _TELL_S
            self._report(shown(path))
        return bool(self.stopped)

    def note_unreadable(self, path: Path, error: Exception) -> None:
        """Something cannot be looked at."""
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.unseen.append(f"{shown(path)}: {why}")
