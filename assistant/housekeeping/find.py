"""A piece of debris: where it is, how much it holds, and why a person may do without it."""

from __future__ import annotations

import os
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


class Kept(UserError):
    """Something stays where it is; the message says why."""


class Find(msgspec.Struct, frozen=True):
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
