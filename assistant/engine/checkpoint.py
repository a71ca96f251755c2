"""The progress of a request, kept on disk so that another process can go on after a sudden end.

Every token is written before anybody is told of it, and the model's state is written now and then.
The next process takes the same tokens again, from the last saved state on, and chooses only those
that follow. Free of torch and Qt.
"""

from __future__ import annotations

import array
import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from scheduler.protocol import paths

T = TypeVar("T")

SAVE_EVERY = 32
"""Tokens between two saved states."""
_STALE_S = 86400.0
"""A checkpoint is removed if no client asks for its request for so long."""
_BEGIN = -1
"""In the file of tokens: the digest of another prompt follows."""


class Checkpoint:
    """Save nothing, for requests that are not sent again; `FileCheckpoint` saves their progress.

    It is read and written at one position in the text, which moves.
    """

    def begin(self, prompt: Sequence[int], model: str) -> None:
        """Move to the text after this prompt. The text after another prompt is dropped."""

    def next_token(self) -> int | None:
        """Return the token that was chosen here, or None if none was chosen yet."""
        return None

    def add(self, token: int) -> None:
        """Record a token that was chosen now."""

    def is_state_due(self) -> bool:
        """Return whether it is time to save a state."""
        return False

    def save_state(self, data: bytes, *, prompt: bool = False) -> None:
        """Save the state at this position; that after the prompt is kept besides the last one."""

    def saved_state(self, *, prompt: bool = False) -> bytes | None:
        """Return the state that was saved at this very position."""
        return None


class FileCheckpoint(Checkpoint):
    """Save the progress of one request in a folder of its own."""

    def __init__(self, request: str) -> None:
        """Open the checkpoint of the request with this id, which may be new."""
        self._folder = folder(request)
        paths.ensure(self._folder.parent)
        paths.ensure(self._folder)
        os.utime(self._folder)
        self._tokens = array.array("i", _read_whole_tokens(self._folder / "tokens"))
        self._file = os.open(self._folder / "tokens", os.O_WRONLY | os.O_CREAT, paths.PRIVATE_FILE)
        os.ftruncate(self._file, len(self._tokens) * self._tokens.itemsize)
        self._position = self._last_saved = 0

    def keep(self, value: T, kind: type[T]) -> T:
        """Return the value that was kept first; keep and return this one if there is none."""
        file = self._folder / "kept"
        try:
            return msgspec.msgpack.decode(file.read_bytes(), type=kind)
        except FileNotFoundError:
            _write(file, msgspec.msgpack.encode(value))
            return value

    def begin(self, prompt: Sequence[int], model: str) -> None:
        text = array.array("i", prompt).tobytes() + model.encode()
        digest = array.array("i", hashlib.blake2b(text, digest_size=16).digest())
        for word in (_BEGIN, *digest):
            if self._position < len(self._tokens) and self._tokens[self._position] == word:
                self._position += 1
            else:
                self.add(word)
        self._last_saved = self._position

    def next_token(self) -> int | None:
        if self._position >= len(self._tokens) or self._tokens[self._position] < 0:
            return None
        self._position += 1
        return self._tokens[self._position - 1]

    def add(self, token: int) -> None:
        size = self._tokens.itemsize
        if self._position < len(self._tokens):  # the text goes on differently than before
            del self._tokens[self._position :]
            os.ftruncate(self._file, self._position * size)
        self._tokens.append(token)
        os.pwrite(self._file, self._tokens[-1:].tobytes(), self._position * size)
        self._position += 1

    def is_state_due(self) -> bool:
        return self._position - self._last_saved >= SAVE_EVERY

    def save_state(self, data: bytes, *, prompt: bool = False) -> None:
        self._last_saved = self._position
        _write(self._state_file(prompt), self._position.to_bytes(8, "little") + data)

    def saved_state(self, *, prompt: bool = False) -> bytes | None:
        try:
            with self._state_file(prompt).open("rb") as file:
                here = int.from_bytes(file.read(8), "little") == self._position
                return file.read() if here else None
        except FileNotFoundError:
            return None

    def close(self, *, done: bool) -> None:
        """Close the file; remove the checkpoint if the request is done."""
        os.close(self._file)
        if done:
            shutil.rmtree(self._folder)

    def _state_file(self, prompt: bool) -> Path:
        return self._folder / ("prompt" if prompt else "state")


def folder(request: str) -> Path:
    """Return the folder of a request's checkpoint. The id comes from a client, so it is hashed."""
    return paths.home() / "unfinished" / hashlib.sha256(request.encode()).hexdigest()


def remove_stale() -> None:
    """Remove the checkpoints of clients that are gone."""
    for checkpoint in (paths.home() / "unfinished").glob("*"):
        if time.time() - checkpoint.stat().st_mtime > _STALE_S:
            shutil.rmtree(checkpoint)


def _read_whole_tokens(file: Path) -> bytes:
    """Return a file of tokens without one that was written in part."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return b""
    return data[: len(data) // 4 * 4]


def _write(file: Path, data: bytes) -> None:
    """Write a file as a whole or not at all, wherever the process ends."""
    new = file.with_suffix(".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, paths.PRIVATE_FILE)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    new.replace(file)
