"""The files of conversations: one a conversation, readable by their owner only, written whole or
not at all.

The first window of a user keeps them; a second one reads and does not write, so that neither
overwrites what the other was told.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path

import msgspec

from app.assistant.message_tree import MessageTree, SavedConversation
from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED, NotFound, UserError

MOST = 500
"""Conversations that are kept; beyond that the one that was changed longest ago is put aside."""
ASIDE = 50
"""Conversations that were put aside and can be brought back; older ones are deleted."""
LARGEST = 64 * 2**20
"""Bytes of a file that is read, and written."""
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


class Preset(msgspec.Struct, frozen=True):
    """Name a prompt that the user asks often."""

    name: str
    text: str


PRESETS: tuple[Preset, ...] = (
    Preset("What happened?", "What happened?"),
    Preset("Why do my jobs wait?", "Why is my job waiting?"),
    Preset("Hottest GPU", "Which GPU is the hottest?"),
    Preset("Failures", "Which jobs failed, and why?"),
)
"""The presets that come with the program."""


class SessionFiles:
    """Not for several threads at once. `notice`: what the last listing found amiss."""

    def __init__(self) -> None:
        self.notice = ""
        self._lock: int | None = None
        self._unread = ""
        """Why the presets could not be read: whoever edits others must not have them written
        over these."""

    @property
    def folder(self) -> Path:
        return paths.home() / "sessions"

    def find(self, words: str) -> tuple[Summary, ...]:
        """All that hold each of the words somewhere, in any case, the newest first."""
        self.notice = ""
        wanted = words.lower().split()
        found = [
            summary
            for file in self._files()
            if (saved := self._read(file)) and (summary := _summary(saved, wanted))
        ]
        return tuple(sorted(found, key=lambda s: -s.changed))

    def open(self, key: str) -> SavedConversation:
        """Raises NotFound where it is gone, or cannot be read."""
        if (saved := self._read(self._file(key))) is None:
            raise NotFound(self.notice or "this conversation is gone")
        return saved

    def save(self, saved: SavedConversation) -> None:
        data = msgspec.json.encode(saved)
        if len(data) > LARGEST:
            raise UserError(
                f"this conversation is larger than {LARGEST >> 20} MiB, and what is said now is not"
                " kept; begin a new one"
            )
        self._write(self._file(saved.key), data)
        files = self._files()
        for file in files[MOST:]:
            self._put_aside(file)

    def rename(self, key: str, title: str) -> None:
        saved = self.open(key)
        self._write(
            self._file(key), msgspec.json.encode(msgspec.structs.replace(saved, title=title))
        )

    def delete(self, key: str) -> None:
        """Put it aside. Raises NotFound where it is gone."""
        self._claim()
        self._put_aside(self._file(key))

    def restore(self, key: str) -> None:
        self._claim()
        _move(self._aside(key), self._file(key))

    def presets(self) -> tuple[Preset, ...]:
        """Those that were kept, or those that come with the program."""
        file = self.folder / "presets.json"
        self._unread = ""
        try:
            return msgspec.json.decode(file.read_bytes(), type=tuple[Preset, ...])
        except FileNotFoundError:
            return PRESETS
        except OSError as e:
            self._unread = f"{file} cannot be read now: {e.strerror}"
            raise UserError(self._unread) from e
        except MALFORMED as e:
            self.notice = _set_aside(file, e)
            return PRESETS

    def save_presets(self, presets: tuple[Preset, ...]) -> None:
        if self._unread:
            raise UserError(
                f"{self._unread}. Your presets in it are not written over by others; try again"
                " later"
            )
        self._write(self.folder / "presets.json", msgspec.json.format(msgspec.json.encode(presets)))

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _files(self) -> list[Path]:
        """The newest first. Raises UserError where the folder cannot be read."""
        found: list[tuple[float, Path]] = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, Path(entry.path)))
        except FileNotFoundError:
            pass  # none yet, or one that another window put aside just now
        except OSError as e:
            raise UserError(
                f"the conversations in {self.folder} cannot be read: {e.strerror}"
            ) from e
        return [file for _, file in sorted(found, reverse=True)]

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _aside(self, key: str) -> Path:
        return self.folder / "deleted" / f"{key}.json"

    def _read(self, file: Path) -> SavedConversation | None:
        """None where it is gone, or is none: then it is set aside, and the notice says so."""
        try:
            with paths.open_plain(file) as f:
                data = f.read(LARGEST + 1)
            if len(data) > LARGEST:
                raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
            saved = msgspec.json.decode(data, type=SavedConversation)
            MessageTree(saved.nodes, saved.chosen)
            if saved.key != file.stem:
                raise ValueError("it holds another conversation than its name says")
        except FileNotFoundError:
            return None
        except OSError as e:  # nothing is known of what is in it: another time it may be read
            self.notice = f"{file} cannot be read now: {e.strerror}"
            return None
        except MALFORMED as e:
            self.notice = _set_aside(file, e)
            return None
        return saved

    def _write(self, file: Path, data: bytes) -> None:
        """Atomically. Raises UserError."""
        self._claim()
        try:
            paths.replace_file(file, data)
        except OSError as e:
            raise UserError(f"the conversation cannot be kept in {file}: {e.strerror}") from e

    def _claim(self) -> None:
        """Be the one that writes. Raises UserError where another window is."""
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
                "another window of GPU Deck keeps the conversations; what is said in this one is"
                " not kept"
            ) from e
        self._lock = fd

    def _put_aside(self, file: Path) -> None:
        aside = paths.ensure(self.folder / "deleted")
        _move(file, aside / file.name)
        os.utime(aside / file.name)
        for old in sorted(aside.glob("*.json"), key=lambda f: -f.stat().st_mtime)[ASIDE:]:
            old.unlink()


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except FileNotFoundError as e:
        raise NotFound("this conversation is gone") from e
    except OSError as e:
        raise UserError(f"{source} cannot be moved: {e.strerror}") from e


def _set_aside(file: Path, error: Exception) -> str:
    """Out of the way of the next reading; returns a line that says so."""
    aside = file.with_suffix(f".damaged-{time.time():.0f}")
    try:
        file.rename(aside)
    except OSError as e:
        return f"{file} cannot be read ({error}), nor moved away: {e.strerror}"
    return f"{file.name} cannot be read ({error}); it was set aside as {aside}"


def _summary(saved: SavedConversation, words: list[str]) -> Summary | None:
    """None where not all of the words are in it."""
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
