"""Compile the kernels for this CPU ahead, in a process of its own.

python -m gpudeck.accel.rwkv.ahead

Compilation takes about ten seconds, once a machine, at a low priority. Only one process compiles at
a time; the next one finds the compiled code.
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

from gpudeck.accel.rwkv import cpu_kernels as kernels

_NICENESS = 10
"""A low priority that still gets a tenth of a busy core: at 19 it never finished beside a training
on all cores.
"""


def example_calls() -> list[tuple[Any, tuple[Any, ...]]]:
    """Return every kernel with empty arguments of the types that a model in fp32 passes."""
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
    """Return True if every kernel is compiled for this CPU and these versions, in this process or
    on disk.
    """
    return all(
        _kept(kernel, tuple(map(typeof, arguments))) for kernel, arguments in example_calls()
    )


def _kept(kernel: Any, signature: tuple[Any, ...]) -> bool:
    # Numba has no public way to ask whether a call would compile.
    return (
        signature in kernel.overloads
        or kernel._cache.load_overload(signature, kernel.targetctx) is not None
    )


def folder() -> Path:
    """Return the folder of the compiled code."""
    return Path(kernels.step.stats.cache_path)


class Preparation:
    """Run a process that compiles. It goes on when this process ends."""

    def __init__(self) -> None:
        """Start the process. Its errors go to this process's error output."""
        # -P keeps modules in the working directory from shadowing ours.
        command = [sys.executable, "-P", "-m", "gpudeck.accel.rwkv.ahead"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def ended(self) -> bool:
        """Return True if the process has ended, successfully or not."""
        return self._process.poll() is not None


def prepare() -> None:
    """Compile what is not compiled yet, once nobody else is compiling."""
    with _alone():
        if not ready():
            for kernel, arguments in example_calls():
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
