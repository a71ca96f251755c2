"""Measure the backends that could win, once, at a call whose shape comes back.

A program's first call at a spot is computed by the backend that is expected to be fastest. At the
second call all that could be faster take turns on the caller's own tensors, and what was measured
decides from then on; see `gpudeck.accel.lessons.store`. A backward pass is measured in the second
backward pass.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch

from gpudeck.accel.lessons.mode import learning
from gpudeck.accel.lessons.records import TIE, Direction, Measured
from gpudeck.accel.lessons.store import Store, gpu, software
from gpudeck.accel.runtime import brief_timing

AT_CALL = 2
"""A spot is measured at this call: a shape that never comes back costs nothing."""
ROOM = 0.25
"""The share of the free memory that tensors made for a measurement may take."""
DEVICES = ("cuda",)
"""Where backends are measured: on a CPU, each operation has one that is fast."""

Passes = Callable[[str], Callable[[], object]]
"""Returns the caller's own pass by the backend of a name."""
_Problem = TypeVar("_Problem")


class Use(Generic[_Problem]):
    """Count the calls at one spot in one process."""

    __slots__ = ("backward", "calls", "due", "noted", "problem")

    def __init__(self, problem: _Problem) -> None:
        self.problem = problem
        """The first problem at the spot."""
        self.calls = 0
        self.backward = 0
        self.noted = (0, 0)
        """The calls and backward passes that the file of used shapes holds already."""
        self.due: dict[Direction, bool] = {"forward": True, "backward": True}
        """Whether a direction may still be measured by this process."""

    def is_due(self, direction: Direction, device: torch.device) -> bool:
        """Return whether the pass that was counted last should be measured if it can be; this
        process asks no more once it was."""
        count = self.calls if direction == "forward" else self.backward
        if (
            count < AT_CALL
            or not self.due[direction]
            or learning() != "once"
            or is_recorded(device)
        ):
            return False  # a later call may be another one
        self.due[direction] = False
        return True


def rivals(
    use: Use[_Problem],
    direction: Direction,
    device: torch.device,
    known: bool,
    store: Store,
    contenders: Callable[[], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the backends to measure at the pass that was counted last, or none.

    Args:
        use: the counts at its spot.
        direction: the pass.
        device: where it runs.
        known: whether `auto` goes by a measurement already.
        store: keeps what is measured.
        contenders: finds the backends that could win.
    """
    if not use.is_due(direction, device) or known or not store.can_keep():
        return ()
    names = contenders()
    return names if len(names) > 1 else ()


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


def is_recorded(device: torch.device) -> bool:
    """Return True while calls are captured in a graph, compiled, traced or counted by a tool."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or (device.type == "cuda" and torch.cuda.is_current_stream_capturing())
    )
