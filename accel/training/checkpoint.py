"""Write and read checkpoints: each is complete or not there, and carries its checksum.

A checkpoint is a folder `step-00000060` with state.safetensors (weights, and what the optimizer
remembers) and checkpoint.json. It is written beside its place and renamed there, so a process that
is killed at any moment leaves the earlier ones as they were. A thread writes it from a copy, so
training does not wait for the disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
from safetensors.torch import load_file, save_file
from torch import Tensor

from gpudeck.accel.runtime.state_files import sync
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.settings import Settings
from gpudeck.language.text import Text, phrase

FOLDER = "checkpoints"
_CHUNK = 2**26
_STATE, _ABOUT = "state.safetensors", "checkpoint.json"


class About(msgspec.Struct, frozen=True):
    """What checkpoint.json holds."""

    step: int
    """The number of steps that were done."""
    settings: Settings
    data: str
    """The fingerprint of the tokens."""
    frozen: str
    """The fingerprint of weights that are in no checkpoint."""
    device: str
    threads: int
    """The threads that torch used on a CPU, on which sums depend."""
    versions: dict[str, str]
    seconds: float
    """The time that the steps took, in all attempts."""
    best: float | None = None
    """The lowest held-out loss; None if there was none."""
    best_step: int = 0
    fp8: tuple[str, ...] = ()
    """The sizes of the products that are computed in FP8."""
    left_out: tuple[int, ...] = ()
    """The steps whose batches changed no weight."""
    sha256: str = ""


class Checkpoints:
    """Keep the checkpoints of a run: the newest, and the one with the lowest held-out loss."""

    def __init__(self, out: Path, keep: int) -> None:
        self._folder, self._keep = out / FOLDER, keep
        self._writer = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def steps(self) -> list[int]:
        """Return the steps of which there are checkpoints, in ascending order."""
        found = self._folder.glob("step-*") if self._folder.is_dir() else ()
        return sorted(int(p.name[5:]) for p in found if p.name[5:].isdigit())

    def save(self, about: About, state: dict[str, Tensor], before: Callable[[], None]) -> None:
        """Copy a checkpoint, and begin to write it when the one before it is on disk.

        Args:
            about: what checkpoint.json holds.
            state: what state.safetensors holds; it may be changed when this returns.
            before: what is to be on disk earlier; called by the thread that writes.

        Raises:
            OSError: if the one before it could not be written.
        """
        self.wait()
        copied = {name: t.detach().to("cpu", copy=True) for name, t in state.items()}
        self._writing = self._writer.submit(self._write, about, copied, before)

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk.

        Raises:
            OSError: if it could not be written; the earlier ones are still there.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, about: About, state: dict[str, Tensor], before: Callable[[], None]) -> None:
        """Write a checkpoint, then remove those that are not kept."""
        before()
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._place(about.step)
        new = self._folder / f"new-{about.step}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        save_file(state, new / _STATE)
        sync(new / _STATE)
        about = msgspec.structs.replace(about, sha256=checksum(new / _STATE))
        (new / _ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(about)))
        sync(new / _ABOUT)
        sync(new)
        _remove(place)  # one that was damaged
        new.rename(place)
        sync(self._folder)
        kept = {*self.steps()[-self._keep :], about.best_step}
        for step in self.steps():
            if step not in kept:
                _remove(self._place(step))

    def load(self) -> Iterator[tuple[About, dict[str, Tensor]] | Text]:
        """Yield the newest checkpoint and what is older, or why one cannot be used."""
        for step in reversed(self.steps()):
            try:
                yield self.load_step(step)
            except Refused as e:
                yield e.text

    def load_step(self, step: int) -> tuple[About, dict[str, Tensor]]:
        """Return the checkpoint of a step. Raises Refused if it cannot be used."""
        place = self._place(step)
        try:
            about = msgspec.json.decode((place / _ABOUT).read_bytes(), type=About)
            intact = checksum(place / _STATE) == about.sha256
            state = load_file(place / _STATE) if intact else {}
        except (OSError, msgspec.MsgspecError, Refused) as e:
            raise Refused(
                phrase("the checkpoint {place} cannot be read: {why}",
                       place=str(place), why=str(e))
            ) from e  # fmt: skip
        if not intact:
            raise Refused(phrase("the checkpoint {place} is damaged", place=str(place)))
        return about, state

    def _place(self, step: int) -> Path:
        return self._folder / f"step-{step:08}"


def checksum(file: Path) -> str:
    """Return the SHA-256 of the SHA-256 of each 64 MiB of a file, which threads compute; of a
    smaller file, its SHA-256."""

    def digest(begin: int) -> bytes:
        with file.open("rb") as opened:
            opened.seek(begin)
            return hashlib.sha256(opened.read(_CHUNK)).digest()

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = list(pool.map(digest, range(0, max(file.stat().st_size, 1), _CHUNK)))
    return (found[0] if len(found) == 1 else hashlib.sha256(b"".join(found)).digest()).hex()


def _remove(place: Path) -> None:
    """Remove a checkpoint; a process that is killed meanwhile leaves nothing that looks whole."""
    if place.is_dir():
        gone = place.with_name(f"old-{place.name}")
        shutil.rmtree(gone, ignore_errors=True)
        place.rename(gone)
        shutil.rmtree(gone)
