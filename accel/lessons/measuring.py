"""Measure the backends that could win, which take turns on the caller's own tensors."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from gpudeck.accel.lessons.records import TIE, Direction, Measured
from gpudeck.accel.lessons.store import Store, gpu, software
from gpudeck.accel.runtime import brief_timing

ROOM = 0.25
"""The share of the free memory that tensors made for a measurement may take."""
Passes = Callable[[str], Callable[[], object]]
"""Returns the caller's own pass by the backend of a name."""


def has_room(needed: float, device: torch.device) -> bool:
    """Return whether so many bytes are a small part of the free memory."""
    return device.type != "cuda" or needed < ROOM * torch.cuda.mem_get_info(device)[0]


class Subject(NamedTuple):
    """Describe a pass that is measured."""

    device: torch.device
    direction: Direction
    spot: str
    shape: str
    """The problem as text."""
    flops: float
    predicted: str
    """The backend that `auto` chose before."""
    tie: float = TIE
    """See `Measured.tie`."""


def measure(
    store: Store, subject: Subject, passes: Passes, names: Sequence[str], *, cold: bool = False
) -> Measured:
    """Time the named backends in turn and record the result.

    Args:
        store: keeps the result.
        subject: what is measured.
        passes: the passes by backend.
        names: the backends.
        cold: whether the last-level cache is emptied before each call; see `brief_timing.medians`.

    Raises:
        RuntimeError: if all of them fail.
    """
    with torch.no_grad():
        found, failed, calls = brief_timing.medians(
            {name: passes(name) for name in names}, subject.device, cold=cold
        )
    for name, why in failed.items():
        warnings.warn(
            f"{store.operation} goes on without {name}, which failed at {subject.shape}: {why}",
            stacklevel=2,
        )
    if not found:
        raise RuntimeError(f"no backend of {', '.join(names)} can compute {subject.shape}")
    own = gpu(subject.device)
    measured = Measured(
        own.name,
        own.uuid,
        software(),
        subject.direction,
        subject.spot,
        subject.shape,
        subject.flops,
        subject.predicted,
        {name: float(f"{us:.4g}") for name, us in found.items()},
        calls,
        time.time(),
        subject.tie,
    )
    store.record(measured)
    return measured
