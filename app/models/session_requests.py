"""What the assistant's page asks of the files of conversations, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from app.models.tree import Saved


class Summary(msgspec.Struct, frozen=True):
    """A conversation in the list."""

    key: str
    title: str
    changed: float
    """When something was said in it last, seconds since the epoch."""
    excerpt: str = ""
    """Where the words that were searched stand."""


class Preset(msgspec.Struct, frozen=True):
    """A prompt under a name."""

    name: str
    text: str


PRESETS: tuple[Preset, ...] = (
    Preset("What happened?", "What happened?"),
    Preset("Why do my jobs wait?", "Why is my job waiting?"),
    Preset("Hottest GPU", "Which GPU is the hottest?"),
    Preset("Failures", "Which jobs failed, and why?"),
)
"""Those that come with the program."""


@dataclass(frozen=True)
class FindSessions:
    """List the conversations that are kept, the newest first: those that hold all of these words."""

    words: str = ""


@dataclass(frozen=True)
class OpenSession:
    key: str


@dataclass(frozen=True)
class KeepSession:
    """Write a conversation to its file."""

    saved: Saved


@dataclass(frozen=True)
class RenameSession:
    key: str
    title: str


@dataclass(frozen=True)
class DropSession:
    """Put a conversation aside; the newest of those can be brought back."""

    key: str


@dataclass(frozen=True)
class BringBack:
    """Undo that a conversation was put aside."""

    key: str


@dataclass(frozen=True)
class KeepPresets:
    presets: tuple[Preset, ...]


@dataclass(frozen=True)
class ReadPresets:
    pass


@dataclass(frozen=True)
class WriteText:
    """Write an exported text to a file that the user named."""

    file: str
    text: str


SessionRequest = FindSessions | OpenSession | KeepSession | RenameSession | DropSession | BringBack | KeepPresets | ReadPresets | WriteText


@dataclass(frozen=True)
class Sessions:
    """The conversations that are kept, the newest first."""

    request: FindSessions
    found: tuple[Summary, ...]
    notice: str = ""
    """What the user should know: a file that could not be read was set aside."""


@dataclass(frozen=True)
class Opened:
    saved: Saved


@dataclass(frozen=True)
class Presets:
    presets: tuple[Preset, ...]


SessionReply = Sessions | Opened | Presets
