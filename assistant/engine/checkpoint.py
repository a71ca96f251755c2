"""What a request has come to so far, kept outside the process that works on it: after a sudden end the next one goes on from there.

Every token is written before anybody is told of it, and now and then the model's state: the next process takes the same tokens again,
from the state that was saved last, and chooses only what comes after them. Free of torch and Qt.
"""

from __future__ import annotations

import array
import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from scheduler.protocol import paths

T = TypeVar("T")

SAVE_EVERY = 32
"""Tokens between two saved states."""
STALE_S = 86400.0
"""What nobody asked for again for so long is removed."""
_BEGIN = -1
"""In the file of tokens: the digest of another prompt follows."""


class Checkpoint(Protocol):
    """As much as a text needs. It is read and written at one place, which moves on."""

    def begin(self, prompt: Sequence[int], model: str) -> None:
        """What follows belongs to this prompt and model; what was written after another one is forgotten."""
        ...

    def token(self) -> int | None:
        """The token that was chosen here; None where none was yet."""
        ...

    def add(self, token: int) -> None:
        """A token that was chosen now."""
        ...

    def due(self) -> bool:
        """Whether it is time to save a state."""
        ...

    def save(self, data: bytes, *, prompt: bool = False) -> None:
        """A state at this place; `prompt`: the one after the prompt, which is kept besides the last one."""
        ...

    def saved(self, *, prompt: bool = False) -> bytes | None:
        """The state that was saved at this very place."""
        ...


class NoCheckpoint:
    """A checkpoint of what nobody would ask for again."""

    def begin(self, prompt: Sequence[int], model: str) -> None: ...

    def token(self) -> int | None:
        return None

    def add(self, token: int) -> None: ...

    def due(self) -> bool:
        return False

    def save(self, data: bytes, *, prompt: bool = False) -> None: ...

    def saved(self, *, prompt: bool = False) -> bytes | None:
        return None


class FileCheckpoint:
    """A checkpoint in a folder of its own."""

    def __init__(self, request: str) -> None:
        """`request`: the id that it is asked again by."""
        self._folder = folder(request)
        paths.ensure(self._folder.parent)
        paths.ensure(self._folder)
        os.utime(self._folder)
        self._words = array.array("i", _whole(self._folder / "tokens"))
        self._file = os.open(self._folder / "tokens", os.O_WRONLY | os.O_CREAT, paths.PRIVATE_FILE)
        os.ftruncate(self._file, len(self._words) * self._words.itemsize)
        self._at = self._last_saved = 0

    def kept(self, value: T, kind: type[T]) -> T:
        """What was kept at first; `value`, and kept now, where nothing was."""
        file = self._folder / "kept"
        try:
            return msgspec.msgpack.decode(file.read_bytes(), type=kind)
        except FileNotFoundError:
            _write(file, msgspec.msgpack.encode(value))
            return value

    def begin(self, prompt: Sequence[int], model: str) -> None:
        digest = array.array(
            "i",
            hashlib.blake2b(
                array.array("i", prompt).tobytes() + model.encode(), digest_size=16
            ).digest(),
        )
        for word in (_BEGIN, *digest):
            if self._at < len(self._words) and self._words[self._at] == word:
                self._at += 1
            else:
                self.add(word)
        self._last_saved = self._at

    def token(self) -> int | None:
        if self._at >= len(self._words) or self._words[self._at] < 0:
            return None
        self._at += 1
        return self._words[self._at - 1]

    def add(self, token: int) -> None:
        if self._at < len(self._words):  # it goes another way than before
            del self._words[self._at :]
            os.ftruncate(self._file, self._at * self._words.itemsize)
        self._words.append(token)
        os.pwrite(self._file, self._words[-1:].tobytes(), self._at * self._words.itemsize)
        self._at += 1

    def due(self) -> bool:
        return self._at - self._last_saved >= SAVE_EVERY

    def save(self, data: bytes, *, prompt: bool = False) -> None:
        self._last_saved = self._at
        _write(
            self._folder / ("prompt" if prompt else "state"), self._at.to_bytes(8, "little") + data
        )

    def saved(self, *, prompt: bool = False) -> bytes | None:
        try:
            with (self._folder / ("prompt" if prompt else "state")).open("rb") as file:
                here = int.from_bytes(file.read(8), "little") == self._at
                return file.read() if here else None
        except FileNotFoundError:
            return None

    def close(self, *, done: bool) -> None:
        """`done`: nobody will ask again."""
        os.close(self._file)
        if done:
            shutil.rmtree(self._folder)


def folder(request: str) -> Path:
    """Where the checkpoint of a request is. An id comes from a client, and is no path."""
    return paths.home() / "unfinished" / hashlib.sha256(request.encode()).hexdigest()


def sweep() -> None:
    """Remove what was left by clients that are gone."""
    for left in (paths.home() / "unfinished").glob("*"):
        if time.time() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left)


def _whole(file: Path) -> bytes:
    """A file of words, without one that was cut off."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return b""
    return data[: len(data) // 4 * 4]


def _write(file: Path, data: bytes) -> None:
    """All of it or nothing, wherever the process ends."""
    new = file.with_suffix(".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, paths.PRIVATE_FILE)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    new.replace(file)
