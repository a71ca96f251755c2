"""Measure attention at calls whose shapes come back; see `gpudeck.accel.lessons.measuring`."""

from __future__ import annotations

from functools import lru_cache, partial

from gpudeck.accel.attention.dispatch import Choice, choose, contenders, few_queries
from gpudeck.accel.attention.learned import STORE
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.attention.spot import spot
from gpudeck.accel.attention.usage import USAGE
from gpudeck.accel.lessons import measuring
from gpudeck.accel.lessons.measuring import Passes, Subject
from gpudeck.accel.lessons.records import Measured

Use = measuring.Use[Problem]


def use_of(problem: Problem) -> Use | None:
    """Return the count of the problem's spot, or None where nothing can be learned."""
    if problem.device.type not in measuring.DEVICES or problem.empty:
        return None
    return USAGE.at(_spot(problem), problem)


def learn_forward(use: Use, problem: Problem, choice: Choice, passes: Passes) -> bool:
    """Count a call, and return True if the forward pass was measured now: choose again."""
    USAGE.count_call(use)
    return _learn(use, problem, choice, passes)


def learn_backward(problem: Problem, passes: Passes) -> bool:
    """Count a backward pass by `auto`, and return True if it was measured now: choose again."""
    use = use_of(problem)
    if use is None:
        return False
    use.backward += 1
    return _learn(use, problem, choose(problem, direction="backward"), passes)


def _learn(use: Use, problem: Problem, choice: Choice, passes: Passes) -> bool:
    if problem.deterministic:
        return False
    direction = choice.direction
    candidates = partial(contenders, problem, direction)
    names = measuring.rivals(use, direction, problem.device, choice.is_measured, STORE, candidates)
    if names:
        measure(problem, choice, passes, names)
    return bool(names)


def measure(problem: Problem, choice: Choice, passes: Passes, names: tuple[str, ...]) -> Measured:
    """Time the named backends in turn, record the result, and let `auto` go by it.

    Raises:
        RuntimeError: if all of them fail.
    """
    flops = problem.flops * (2.5 if choice.direction == "backward" else 1.0)
    subject = Subject(
        problem.device, choice.direction, spot(problem), str(problem), flops, choice.backend
    )
    # Between two steps of decoding the other layers read their weights and keys.
    measured = measuring.measure(STORE, subject, passes, names, cold=few_queries(problem))
    choose.cache_clear()
    return measured


@lru_cache(maxsize=4096)
def _spot(problem: Problem) -> str:
    return f"{problem.device} {spot(problem)}"
