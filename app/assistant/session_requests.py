"""What the assistant's page asks of the files of conversations, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from app.assistant.tree import Saved


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


class FindSessions(msgspec.Struct, frozen=True):
    """List the conversations that are kept, the newest first: those that hold all of these words."""

    words: str = ""


class OpenSession(msgspec.Struct, frozen=True):
    key: str


class KeepSession(msgspec.Struct, frozen=True):
    """Write a conversation to its file."""

    saved: Saved


class RenameSession(msgspec.Struct, frozen=True):
    key: str
    title: str


class DropSession(msgspec.Struct, frozen=True):
    """Put a conversation aside; the newest of those can be brought back."""

    key: str


class BringBack(msgspec.Struct, frozen=True):
    """Undo that a conversation was put aside."""

    key: str


class KeepPresets(msgspec.Struct, frozen=True):
    presets: tuple[Preset, ...]


class ReadPresets(msgspec.Struct, frozen=True):
    pass


class WriteText(msgspec.Struct, frozen=True):
    """Write an exported text to a file that the user named."""

    file: str
    text: str


SessionRequest = (
    FindSessions
    | OpenSession
    | KeepSession
    | RenameSession
    | DropSession
    | BringBack
    | KeepPresets
    | ReadPresets
    | WriteText
)


class Sessions(msgspec.Struct, frozen=True):
    """The conversations that are kept, the newest first."""

    request: FindSessions
    found: tuple[Summary, ...]
    notice: str = ""
    """What the user should know: a file that could not be read was set aside."""


class Opened(msgspec.Struct, frozen=True):
    saved: Saved


class Presets(msgspec.Struct, frozen=True):
    presets: tuple[Preset, ...]


SessionReply = Sessions | Opened | Presets
