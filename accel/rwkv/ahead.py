"""The code for this CPU compiled ahead, in a process of its own: it takes a machine some ten seconds, once, and nobody waits for it.

python -m accel.rwkv.ahead

It gives way to everything else that wants to compute. One compiles at a time, whoever started it; the next finds what it left.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numba import typeof

from accel.rwkv import cpu_kernels as kernels

_NICENESS = 10
"""It gets a tenth of a core that is wanted otherwise: at 19 it came to no end beside a training that has all cores."""


def _calls() -> list[tuple[Any, tuple[Any, ...]]]:
    """Every kernel with arguments of the types that a model in fp32 calls it with, and no work in them."""
    flat, several = np.empty(0, np.float32), [np.empty((1,) * n, np.float32) for n in range(5)]
    table, used = np.empty((0, len(kernels.FIELDS)), np.int64), np.empty(0, np.int64)
    step = (
        table,
        flat,
        flat,
        flat,
        flat,
        several[3],
        several[3],
        several[4],
        several[2],
        used,
        0,
        0,
        0,
        0,
        flat,
    )
    rows = np.empty((0, 1, 1, 1), np.float32)
    return [(kernels.step, step), (kernels.recurrence, (*[rows] * 6, several[4], rows))]


def ready() -> bool:
    """Whether everything is compiled, in this process or on disk by an earlier one, for this CPU and these versions."""
    return all(_kept(kernel, tuple(map(typeof, arguments))) for kernel, arguments in _calls())


def _kept(kernel: Any, signature: tuple[Any, ...]) -> bool:
    # Numba tells by nothing public whether a call would compile
    return (
        signature in kernel.overloads
        or kernel._cache.load_overload(signature, kernel.targetctx) is not None
    )


def folder() -> Path:
    """Where the compiled code is kept."""
    return Path(kernels.step.stats.cache_path)


class Preparation:
    """A process that compiles. It goes on when we end."""

    def __init__(self) -> None:
        """Start it. What goes wrong there is in our error output, too."""
        # -P: what lies in the working directory must not be imported in place of our modules
        command = [sys.executable, "-P", "-m", "accel.rwkv.ahead"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def ended(self) -> bool:
        """Whether it has ended, well or not."""
        return self._process.poll() is not None


def prepare() -> None:
    """Compile what is not compiled yet, after whoever is compiling it now."""
    with _alone():
        if not ready():
            for kernel, arguments in _calls():
                kernel(*arguments)


@contextmanager
def _alone() -> Iterator[None]:
    folder().mkdir(parents=True, exist_ok=True)
    lock = os.open(
        folder() / "gpudeck-compiles.lock",
        os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
        0o600,
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


if __name__ == "__main__":
    os.nice(_NICENESS)
    prepare()
