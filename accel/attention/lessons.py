"""Measure the backends that could win, once, at a call whose shape comes back.

A program's first call at a spot (see `accel.attention.spot`) is computed by the backend that is
expected to be fastest. At the second call all that could be faster take turns on the caller's own
tensors, and what was measured decides from then on; see `accel.attention.learned`. The backward
pass is measured in the second backward pass.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import lru_cache

import torch

from accel.attention import learned, usage
from accel.attention.dispatch import Choice, choose, contenders
from accel.attention.problem import Problem
from accel.attention.records import Direction, Measured
from accel.attention.spot import spot
from accel.runtime import brief_timing

AT_CALL = 2
"""A spot is measured at this call: a shape that never comes back costs nothing."""
DEVICES = ("cuda",)
"""On a CPU there is nothing to choose: what is not `flash` holds all scores in memory."""

Passes = Callable[[str], Callable[[], object]]
"""Returns the caller's own pass by the backend of a name."""


class Use:
    """Count the calls at one spot in one process."""

    __slots__ = ("backward", "calls", "due", "noted", "problem")

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        """The first problem at the spot."""
        self.calls = 0
        self.backward = 0
        self.noted = (0, 0)
        """The calls and backward passes that the file of `usage` holds already."""
        self.due: dict[Direction, bool] = {"forward": True, "backward": True}
        """Whether a direction may still be measured by this process."""


_USES: dict[str, Use] = {}
_NOTES = usage.Notes()


def use_of(problem: Problem) -> Use | None:
    """Return the count of the problem's spot, or None where nothing can be learned."""
    if problem.device.type not in DEVICES or problem.empty:
        return None
    at = _spot(problem)
    return _USES.get(at) or _USES.setdefault(at, Use(problem))


def learn_forward(use: Use, problem: Problem, choice: Choice, passes: Passes) -> bool:
    """Count a call, and return True if the forward pass was measured now: choose again."""
    use.calls += 1
    if use.calls & (use.calls - 1) == 0:  # seldom: the file is written beside the caller's work
        _NOTES.write_if_due(_USES.values())
    if use.calls < AT_CALL or not use.due["forward"]:
        return False
    return _learn(use, problem, choice, passes)


def learn_backward(problem: Problem, passes: Passes) -> bool:
    """Count a backward pass by `auto`, and return True if it was measured now: choose again."""
    use = use_of(problem)
    if use is None:
        return False
    use.backward += 1
    if use.backward < AT_CALL or not use.due["backward"]:
        return False
    return _learn(use, problem, choose(problem, direction="backward"), passes)


def _learn(use: Use, problem: Problem, choice: Choice, passes: Passes) -> bool:
    direction = choice.direction
    if learned.mode() != "once" or problem.deterministic or _is_recorded(problem.device):
        return False  # a later call may be another one
    use.due[direction] = False
    if choice.is_measured or not _can_keep():
        return False
    names = contenders(problem, direction)
    if len(names) < 2:
        return False
    measure(problem, choice, passes, names)
    return True


def measure(problem: Problem, choice: Choice, passes: Passes, names: tuple[str, ...]) -> Measured:
    """Time the named backends in turn, record the result, and let `auto` go by it.

    Raises:
        RuntimeError: if all of them fail.
    """
    with torch.no_grad():
        found, failed, calls = brief_timing.medians(
            {name: passes(name) for name in names}, problem.device
        )
    for name, why in failed.items():
        warnings.warn(
            f"attention goes on without {name}, which failed at {problem}: {why}", stacklevel=2
        )
    if not found:
        raise RuntimeError(f"no backend of {', '.join(names)} can compute {problem}")
    own = learned.gpu(problem.device)
    measured = Measured(
        own.name,
        own.uuid,
        learned.software(),
        choice.direction,
        spot(problem),
        str(problem),
        problem.flops * (2.5 if choice.direction == "backward" else 1.0),
        choice.backend,
        {name: float(f"{us:.4g}") for name, us in found.items()},
        calls,
        time.time(),
    )
    try:
        learned.record(measured)
    except OSError as e:
        warnings.warn(f"attention does not keep what it learned: {e}", stacklevel=2)
    choose.cache_clear()
    return measured


def _is_recorded(device: torch.device) -> bool:
    """Return True while calls are captured in a graph, compiled, traced or counted by a tool."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or (device.type == "cuda" and torch.cuda.is_current_stream_capturing())
    )


@lru_cache(maxsize=1)
def _can_keep() -> bool:
    """Return whether results can be kept on disk; if not, nothing is measured, and one line says
    so."""
    try:
        learned.check_writable()
    except OSError as e:
        warnings.warn(f"attention does not learn, because it cannot keep it: {e}", stacklevel=2)
        return False
    return True


def forget() -> None:
    """Forget all counts, and what was found out about the disk."""
    _USES.clear()
    _can_keep.cache_clear()


@lru_cache(maxsize=4096)
def _spot(problem: Problem) -> str:
    return f"{problem.device} {spot(problem)}"
