"""The progress of a request, kept on disk so that another process can go on after a sudden end.

Tokens are written before anybody is told of their text. The next process takes the same tokens
again, which a model reads as fast as it wrote them, and chooses only those that follow. Free of
torch and Qt.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from gpudeck.scheduler.protocol import paths

T = TypeVar("T")

_STALE_S = 86400.0
"""A checkpoint is removed if no client asks for its request for so long."""
_Line = str | tuple[int, ...]
"""The digest of what a text follows, or the tokens of its next piece."""
_DECODE: Callable[[bytes], _Line] = msgspec.json.Decoder(_Line).decode


class Checkpoint:
    """Save nothing, for requests that are not sent again; `FileCheckpoint` saves their progress.

    It is read and written at one position in the texts of the request, which moves.
    """

    def begin(self, prompt: Sequence[int], model: str) -> None:
        """Move to the text after this prompt. The text after another prompt is dropped."""

    def next_piece(self) -> tuple[int, ...]:
        """Return the tokens that were written here and move on; nothing if there are none yet."""
        return ()

    def add(self, tokens: Sequence[int]) -> None:
        """Record tokens that were written now."""


class FileCheckpoint(Checkpoint):
    """Save the progress of one request in a folder of its own."""

    def __init__(self, request: str) -> None:
        """Open the checkpoint of the request with this id, which may be new."""
        self._folder = folder(request)
        paths.ensure(self._folder.parent)
        paths.ensure(self._folder)
        os.utime(self._folder)
        self._file = os.open(self._folder / "tokens", os.O_RDWR | os.O_CREAT, paths.PRIVATE_FILE)
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = data[: data.rfind(b"\n") + 1]  # the last line may have been cut off
        self._lines = list[bytes](whole.splitlines(keepends=True))
        self._position = self._offset = 0
        os.ftruncate(self._file, len(whole))

    def keep(self, value: T, kind: type[T]) -> T:
        """Return the value that was kept first; keep and return this one if there is none."""
        file = self._folder / "kept"
        try:
            return msgspec.msgpack.decode(file.read_bytes(), type=kind)
        except FileNotFoundError:
            _write(file, msgspec.msgpack.encode(value))
            return value

    def begin(self, prompt: Sequence[int], model: str) -> None:
        text = msgspec.json.encode((model, *prompt))
        digest = hashlib.blake2b(text, digest_size=16).hexdigest()
        if self._next_line() == digest:
            self._move()
        else:
            self._write_line(digest)

    def next_piece(self) -> tuple[int, ...]:
        line = self._next_line()
        if not isinstance(line, tuple):
            return ()
        self._move()
        return line

    def add(self, tokens: Sequence[int]) -> None:
        self._write_line(tuple(tokens))

    def close(self, *, done: bool) -> None:
        """Close the file; remove the checkpoint if the request is done."""
        os.close(self._file)
        if done:
            shutil.rmtree(self._folder)

    def _next_line(self) -> _Line | None:
        if self._position == len(self._lines):
            return None
        return _DECODE(self._lines[self._position])

    def _move(self) -> None:
        self._offset += len(self._lines[self._position])
        self._position += 1

    def _write_line(self, line: _Line) -> None:
        """Write a line here; what followed is dropped, as the text goes on differently."""
        if self._position < len(self._lines):
            del self._lines[self._position :]
            os.ftruncate(self._file, self._offset)
        self._lines.append(msgspec.json.encode(line) + b"\n")
        os.pwrite(self._file, self._lines[-1], self._offset)
        self._move()


def folder(request: str) -> Path:
    """Return the folder of a request's checkpoint. The id comes from a client, so it is hashed."""
    return paths.home() / "unfinished" / hashlib.sha256(request.encode()).hexdigest()


def remove_stale() -> None:
    """Remove the checkpoints of clients that are gone."""
    for checkpoint in (paths.home() / "unfinished").glob("*"):
        if time.time() - checkpoint.stat().st_mtime > _STALE_S:
            shutil.rmtree(checkpoint)


def _write(file: Path, data: bytes) -> None:
    """Write a file as a whole or not at all, wherever the process ends."""
    new = file.with_suffix(".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, paths.PRIVATE_FILE)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    new.replace(file)
