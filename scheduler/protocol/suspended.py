"""What clients see of a program that was taken off the GPU."""

from __future__ import annotations

from typing import Literal

import msgspec

Phase = Literal["suspending", "suspended", "resuming"]


class SuspendedProgram(msgspec.Struct, frozen=True):
    """Describe a program whose GPU memory is in the memory of the host."""

    pid: int
    """The process by which it is resumed."""
    name: str
    memory: int
    """Bytes that it held on GPUs, and that the host holds for it now."""
    phase: Phase
    since: float
    """In seconds since the epoch."""
    user: int
    """The owner of its processes."""
    job: int | None = None
    """The job of the queue that it is; None for any other program."""
    seconds: float = 0.0
    """How long the last step took: off the GPU, or back."""


_FIXED_S, _OUT, _BACK = 1.0, 1.6 * 2**30, 4.0 * 2**30
"""What a move off the GPU or back takes at most, as measured: seconds, and bytes a second."""


def estimate_out(memory: float) -> float:
    """Return how long it takes at most to move so many bytes off a GPU, in seconds."""
    return _FIXED_S + memory / _OUT


def estimate_back(memory: float) -> float:
    """Return how long it takes at most to move so many bytes back to a GPU, in seconds."""
    return _FIXED_S + memory / _BACK
