"""Requests for the files of conversations, which are carried out one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec

from app.assistant.conversation_export import write_text
from app.assistant.session_files import Preset, SessionFiles, Summary
from app.assistant.tree import Saved
from app.link.call import Call


class SessionRequest(msgspec.Struct, frozen=True):
    """Describe what all requests for the files of conversations share."""

    in_order: ClassVar[bool] = True


class FindSessions(SessionRequest, frozen=True):
    """List the conversations that contain all of these words, newest first."""

    words: str = ""

    def carry_out(self, call: Call) -> tuple[tuple[Summary, ...], str]:
        """Return the conversations, and a notice for the user about files that are damaged."""
        files = call.service(SessionFiles)
        return files.find(self.words), files.notice


class OpenSession(SessionRequest, frozen=True):
    """Read a conversation."""

    key: str

    def carry_out(self, call: Call) -> Saved:
        """Return the conversation."""
        return call.service(SessionFiles).open(self.key)


class SaveSession(SessionRequest, frozen=True):
    """Write a conversation to its file."""

    saved: Saved

    def carry_out(self, call: Call) -> None:
        """Write the file."""
        call.service(SessionFiles).save(self.saved)


class RenameSession(SessionRequest, frozen=True):
    """Give a conversation another title."""

    key: str
    title: str

    def carry_out(self, call: Call) -> None:
        """Change the title in the file."""
        call.service(SessionFiles).rename(self.key, self.title)


class DeleteSession(SessionRequest, frozen=True):
    """Delete a conversation; the newest deleted ones can be restored."""

    key: str

    def carry_out(self, call: Call) -> None:
        """Move the file to the deleted ones."""
        call.service(SessionFiles).delete(self.key)


class RestoreSession(SessionRequest, frozen=True):
    """Restore a deleted conversation."""

    key: str

    def carry_out(self, call: Call) -> None:
        """Move the file back."""
        call.service(SessionFiles).restore(self.key)


class ReadPresets(SessionRequest, frozen=True):
    """Read the presets."""

    def carry_out(self, call: Call) -> tuple[Preset, ...]:
        """Return the presets."""
        return call.service(SessionFiles).presets()


class SavePresets(SessionRequest, frozen=True):
    """Replace the presets."""

    presets: tuple[Preset, ...]

    def carry_out(self, call: Call) -> None:
        """Write the file."""
        call.service(SessionFiles).save_presets(self.presets)


class WriteText(SessionRequest, frozen=True):
    """Write an exported conversation to a file that the user chose."""

    file: str
    text: str

    def carry_out(self, call: Call) -> None:
        """Write the file."""
        write_text(Path(self.file), self.text)
