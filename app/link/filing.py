"""What the assistant's page asks of the files of conversations, carried out one request after the other."""

from __future__ import annotations

from pathlib import Path

from app.assistant.conversation_export import write_text
from app.assistant.session_requests import (
    BringBack,
    DropSession,
    FindSessions,
    KeepPresets,
    KeepSession,
    Opened,
    OpenSession,
    Presets,
    ReadPresets,
    RenameSession,
    SessionRequest,
    Sessions,
    WriteText,
)
from app.link.requests import Accepted, Reply
from app.link.session_files import SessionFiles


class Filing:
    """Not for several threads at once."""

    def __init__(self) -> None:
        self._files = SessionFiles()

    def close(self) -> None:
        self._files.close()

    def carry_out(self, request: SessionRequest) -> Reply:
        """Raises UserError."""
        files = self._files
        match request:
            case FindSessions(words=words):
                found = files.find(words)
                return Sessions(request, found, files.notice)
            case OpenSession(key=key):
                return Opened(files.open(key))
            case KeepSession(saved=saved):
                files.keep(saved)
            case RenameSession(key=key, title=title):
                files.rename(key, title)
            case DropSession(key=key):
                files.drop(key)
            case BringBack(key=key):
                files.bring_back(key)
            case ReadPresets():
                return Presets(files.presets())
            case KeepPresets(presets=presets):
                files.keep_presets(presets)
                return Presets(presets)
            case WriteText(file=file, text=text):
                write_text(Path(file), text)
        return Accepted(request)
