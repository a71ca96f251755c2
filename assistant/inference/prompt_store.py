"""Keep the keys and values of long prompts on disk, so that they outlive the process.

A block's file is named by the hash of all tokens up to its end, in a folder that is named by the
model's hash and the formats. Files are written behind the engine, a few blocks a step: a process
whose GPU is taken away has no time left to save anything.
"""

from __future__ import annotations

import hashlib
import os
import queue
import threading
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from gpudeck.accel.serving.files import weight_files
from gpudeck.scheduler.protocol import paths

READ_S = 0.25
"""A prompt is read for so long at once; what is left of it is computed."""
_WAITING = 32
"""Blocks that may wait to be written."""
_CHECKED_EVERY = 64
_SAMPLES, _SAMPLE = 16, 4096
_VERSION = b"1"


class PromptStore:
    """Write and read blocks of one model. The engine's thread calls everything but `close`."""

    def __init__(self, root: Path, key: str, limit: int) -> None:
        """Use a folder below `root`.

        Args:
            root: The folder of all models.
            key: The name of this model's; see `model_key`.
            limit: Bytes of all files of all models. What was used least recently is deleted.

        Raises:
            UserError: The folder cannot be used.
        """
        self._root, self._folder, self._limit = root, paths.ensure(root / key), limit
        self._known = {file.name for file in self._folder.iterdir()}
        self._queue: queue.Queue[tuple[str, Sequence[Tensor]] | None] = queue.Queue(_WAITING)
        self._reading_until = 0.0
        self.problem = ""
        """Why nothing is written any more."""
        self.written = 0
        self._prune()
        self._thread = threading.Thread(target=self._write_all, name="prompts", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Return whether the disk keeps up."""
        return not self._queue.full()

    def wants(self, digest: str) -> bool:
        """Return whether a block is to be saved: it is not there, and the disk works."""
        return not self.problem and digest not in self._known

    def save(self, digest: str, parts: Sequence[Tensor]) -> None:
        """Write a block behind the caller."""
        self._known.add(digest)
        self._queue.put((digest, parts))

    def begin(self) -> None:
        """Begin to read a prompt."""
        self._reading_until = time.monotonic() + READ_S

    def read(self, digest: str) -> list[Tensor] | None:
        """Return a block; None if it is not there, is damaged, or reading took long enough."""
        if digest not in self._known or time.monotonic() > self._reading_until:
            return None
        file = self._folder / digest
        try:
            with paths.open_plain(file, os.getuid()) as plain:
                data = plain.read()
            if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
                raise ValueError("the checksum differs")
            found = load(data[4:])
            os.utime(file)
        except (OSError, ValueError, SafetensorError):
            if self._queue.empty():  # else it may just not be written yet
                self._known.discard(digest)
                file.unlink(missing_ok=True)
            return None
        return [found[name] for name in sorted(found)]

    def close(self) -> None:
        """Write what waits, and end."""
        self._queue.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            if self.problem:
                continue
            try:
                self._write(*item)
                self.written += 1
                if self.written % _CHECKED_EVERY == 0:
                    self._prune()
            except OSError as e:
                self.problem = f"prompts are not kept in {self._folder}: {e.strerror}"

    def _write(self, digest: str, parts: Sequence[Tensor]) -> None:
        data = save({str(i): part.contiguous() for i, part in enumerate(parts)})
        new = self._folder / f".{digest}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(new, flags, paths.PRIVATE_FILE), "wb") as file:
            file.write(zlib.crc32(data).to_bytes(4, "little"))
            file.write(data)
        new.rename(self._folder / digest)

    def _prune(self) -> None:
        """Delete the files that were used least recently, beyond the limit."""
        found = []
        for file in self._root.glob("*/*"):
            with suppress(OSError):  # another process has deleted it
                stat = file.stat()
                found.append((stat.st_mtime, stat.st_size, file))
        total = sum(size for _, size, _ in found)
        for _, size, file in sorted(found):
            if total <= self._limit:
                return
            total -= size
            self._known.discard(file.name)
            file.unlink(missing_ok=True)


def model_key(folder: Path, *formats: str) -> str:
    """Return the hash of a model: of its description, and of samples all over its weights.

    Args:
        folder: Of the model.
        formats: How its weights and its cache are kept, and on what kind of device.
    """
    digest = hashlib.sha256(_VERSION + repr(formats).encode())
    for name in ("config.json", "tokenizer.json"):
        if (folder / name).is_file():
            digest.update((folder / name).read_bytes())
    for path in weight_files(folder):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} {path.stat().st_mtime_ns}".encode())
        with path.open("rb") as file:
            for i in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE) * i // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:32]
