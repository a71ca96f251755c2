"""Let processes share a benchmark on one GPU: they prepare side by side and measure one at a time.

Most of a case's time goes into compilation and checks. Processes that name the same folder claim
each case once. Whoever is ready to measure waits until nobody prepares, and nobody begins to
prepare while others wait to measure: so they alternate in rounds.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")


class SharedGpu:
    """Share the cases and the GPU with all processes that name the same folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._gpu, self._waiting = (
            os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600) for name in ("gpu", "waiting")
        )

    def claimed(self, cases: Sequence[T]) -> Iterator[T]:
        """Yield the cases that no other process has begun, in their order."""
        for i, case in enumerate(cases):
            try:
                os.close(os.open(self._folder / f"claimed-{i}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            yield case

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Hold the GPU together with others that prepare."""
        fcntl.flock(self._waiting, fcntl.LOCK_EX)  # not while others wait to measure
        fcntl.flock(self._gpu, fcntl.LOCK_SH)
        fcntl.flock(self._waiting, fcntl.LOCK_UN)
        try:
            yield
        finally:
            _finish()
            fcntl.flock(self._gpu, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the GPU alone, within `preparing`, which goes on afterwards."""
        _finish()
        fcntl.flock(self._waiting, fcntl.LOCK_SH)
        fcntl.flock(self._gpu, fcntl.LOCK_EX)  # gives the shared lock back first
        try:
            yield
        finally:
            _finish()
            fcntl.flock(self._gpu, fcntl.LOCK_SH)
            fcntl.flock(self._waiting, fcntl.LOCK_UN)


@contextmanager
def turn(file: Path | None) -> Iterator[None]:
    """Wait until nobody else has locked a file, and lock it for a `with` block; None: at once.

    Benchmarks that begin together import what they need at the same time, and measure in turn.
    """
    if file is None:
        yield
        return
    with file.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _finish() -> None:
    """Wait until the GPU has done what this process asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
