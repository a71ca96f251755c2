"""Keep each conversation in a file, written atomically and readable by its owner only.

The first window of a user writes the files. A second one only reads them, so that no window
overwrites what the other one saved.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path

import msgspec

from gpudeck.app.assistant.message_tree import MessageTree, SavedConversation
from gpudeck.app.assistant.presets import Preset, own_presets
from gpudeck.app.language.texts import tr
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, UserError

MAX_SESSIONS = 500
"""Conversations that are kept; the least recent others are deleted."""
MAX_DELETED = 50
"""Deleted conversations that can be restored."""
MAX_BYTES = 64 * 2**20
"""The largest file that is read or written."""
_AROUND = 40
_NAME = re.compile(r"[0-9a-f]{32}\.json")


class Summary(msgspec.Struct, frozen=True):
    """Describe a conversation in the list."""

    key: str
    title: str
    changed: float
    """When its last message came, in seconds since the epoch."""
    excerpt: str = ""
    """The text around the first word that was searched for."""


class SessionFiles:
    """Read and write the files, for one thread at a time. `notice` describes damaged files."""

    def __init__(self) -> None:
        self.notice = ""
        self._lock: int | None = None
        self._unread = ""
        """Why the presets could not be read; then they must not be overwritten."""

    @property
    def folder(self) -> Path:
        """Return the folder of the files."""
        return paths.home() / "sessions"

    def find(self, words: str) -> tuple[Summary, ...]:
        """Return the conversations that contain all of the words, in any case, newest first."""
        self.notice = ""
        wanted = words.lower().split()
        found = [
            summary
            for file in self._files()
            if (saved := self._read(file)) and (summary := _summary(saved, wanted))
        ]
        return tuple(sorted(found, key=lambda s: -s.changed))

    def open(self, key: str) -> SavedConversation:
        """Return a conversation. Raises NotFound if it is gone or cannot be read."""
        if (saved := self._read(self._file(key))) is None:
            raise NotFound(self.notice or tr("this conversation no longer exists"))
        return saved

    def save(self, saved: SavedConversation) -> None:
        """Write a conversation, and delete the least recent one if there are too many."""
        data = msgspec.json.encode(saved)
        if len(data) > MAX_BYTES:
            raise UserError(
                tr(
                    "this conversation is larger than {n} MiB and cannot be saved; start a new one",
                    n=MAX_BYTES >> 20,
                )
            )
        self._write(self._file(saved.key), data)
        files = self._files()
        for file in files[MAX_SESSIONS:]:
            self._move_to_deleted(file)

    def rename(self, key: str, title: str) -> None:
        """Change the title of a conversation."""
        saved = self.open(key)
        self._write(
            self._file(key), msgspec.json.encode(msgspec.structs.replace(saved, title=title))
        )

    def delete(self, key: str) -> None:
        """Move a conversation to the deleted ones. Raises NotFound."""
        self._claim()
        self._move_to_deleted(self._file(key))

    def restore(self, key: str) -> None:
        """Move a deleted conversation back. Raises NotFound."""
        self._claim()
        _move(self._deleted_file(key), self._file(key))

    def presets(self) -> tuple[Preset, ...]:
        """Return the user's presets, or those of the program. Raises UserError."""
        file = self.folder / "presets.json"
        self._unread = ""
        try:
            return msgspec.json.decode(file.read_bytes(), type=tuple[Preset, ...])
        except FileNotFoundError:
            return own_presets()
        except OSError as e:
            self._unread = tr("{file} cannot be read now: {why}", file=file, why=e.strerror)
            raise UserError(self._unread) from e
        except MALFORMED as e:
            self.notice = _set_aside(file, e)
            return own_presets()

    def save_presets(self, presets: tuple[Preset, ...]) -> None:
        """Write the presets. Raises UserError."""
        if self._unread:
            raise UserError(
                tr(
                    "{problem}. It is not overwritten, since it may hold your presets; try again "
                    "later",
                    problem=self._unread,
                )
            )
        self._write(self.folder / "presets.json", msgspec.json.format(msgspec.json.encode(presets)))

    def close(self) -> None:
        """Let another window write the files."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _files(self) -> list[Path]:
        """Return the files, newest first. Raises UserError."""
        found: list[tuple[float, Path]] = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, Path(entry.path)))
        except FileNotFoundError:
            pass  # there are none yet, or another window has just deleted one
        except OSError as e:
            raise UserError(
                tr(
                    "the conversations in {folder} cannot be read: {why}",
                    folder=self.folder,
                    why=e.strerror,
                )
            ) from e
        return [file for _, file in sorted(found, reverse=True)]

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _deleted_file(self, key: str) -> Path:
        return self.folder / "deleted" / f"{key}.json"

    def _read(self, file: Path) -> SavedConversation | None:
        """Return a conversation, or None. A damaged file is set aside, and `notice` names it."""
        try:
            with paths.open_plain(file) as f:
                data = f.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise ValueError(tr("it is larger than {n} MiB", n=MAX_BYTES >> 20))
            saved = msgspec.json.decode(data, type=SavedConversation)
            MessageTree(saved.nodes, saved.chosen)
            if saved.key != file.stem:
                raise ValueError(tr("its name belongs to another conversation"))
        except FileNotFoundError:
            return None
        except OSError as e:  # the content is unknown, and may be readable later
            self.notice = tr("{file} cannot be read now: {why}", file=file, why=e.strerror)
            return None
        except MALFORMED as e:
            self.notice = _set_aside(file, e)
            return None
        return saved

    def _write(self, file: Path, data: bytes) -> None:
        """Write a file atomically. Raises UserError."""
        self._claim()
        try:
            paths.replace_file(file, data)
        except OSError as e:
            raise UserError(
                tr("the conversation cannot be saved in {file}: {why}", file=file, why=e.strerror)
            ) from e

    def _claim(self) -> None:
        """Become the window that writes. Raises UserError if another window writes."""
        if self._lock is not None:
            return
        fd = os.open(
            paths.ensure(self.folder) / "lock",
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
            paths.PRIVATE_FILE,
        )
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(fd)
            raise UserError(
                tr("another window of GPU Deck saves the conversations; this one is not saved")
            ) from e
        self._lock = fd

    def _move_to_deleted(self, file: Path) -> None:
        aside = paths.ensure(self.folder / "deleted")
        _move(file, aside / file.name)
        os.utime(aside / file.name)
        for old in sorted(aside.glob("*.json"), key=lambda f: -f.stat().st_mtime)[MAX_DELETED:]:
            old.unlink()


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except FileNotFoundError as e:
        raise NotFound(tr("this conversation no longer exists")) from e
    except OSError as e:
        raise UserError(tr("{file} cannot be moved: {why}", file=source, why=e.strerror)) from e


def _set_aside(file: Path, error: Exception) -> str:
    """Rename a damaged file. Return a message about it."""
    aside = file.with_suffix(f".damaged-{time.time():.0f}")
    try:
        file.rename(aside)
    except OSError as e:
        return tr(
            "{file} is damaged ({error}) and cannot be renamed: {why}",
            file=file,
            error=error,
            why=e.strerror,
        )
    return tr(
        "{file} is damaged ({error}); it was set aside as {name}",
        file=file.name,
        error=error,
        name=aside,
    )


def _summary(saved: SavedConversation, words: list[str]) -> Summary | None:
    """Return the summary, or None if a word is missing."""
    texts = [saved.title, *(node.message.text for node in saved.nodes)] if words else []
    lower = [text.lower() for text in texts]
    if not all(any(word in text for text in lower) for word in words):
        return None
    where = (
        next((i for i, text in enumerate(lower) if i and words[0] in text), None) if words else None
    )
    return Summary(
        saved.key,
        saved.title,
        saved.changed,
        _excerpt(texts[where], words[0]) if where is not None else "",
    )


def _excerpt(text: str, word: str) -> str:
    at = text.lower().index(word)
    start, end = max(at - _AROUND, 0), at + len(word) + _AROUND
    return " ".join(
        f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}".split()
    )
