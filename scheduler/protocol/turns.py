"""Work in parts, between which others have their turn.

Whoever does much at once is a generator that yields where it may be interrupted, and returns what
it made. What it found before a pause may have changed after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
Work = Generator[None, None, R]
TURN_S = 0.004
"""Seconds after which somebody else has a turn."""
PART = 32
"""Items that are handled between two looks at the clock."""


def parts(items: Sequence[T], size: int = PART) -> Iterator[Sequence[T]]:
    """Yield the items in parts of this size."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def light_parts(
    items: Sequence[T], size: int, weight: Callable[[T], int], most: int
) -> Iterator[Sequence[T]]:
    """Yield the items in parts of up to this size, each of which weighs little.

    Args:
        weight: Returns what an item weighs.
        most: What a part of several items weighs at most.
    """
    start, total = 0, 0
    for number, item in enumerate(items):
        total += weight(item)
        if number > start and (number - start == size or total > most):
            yield items[start:number]
            start, total = number, weight(item)
    if items:
        yield items[start:]


def finish(work: Work[R]) -> R:
    """Do all of the work at once."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        result: R = end.value
        return result


async def in_turns(work: Work[R]) -> R:
    """Do the work, and let the loop go on every TURN_S."""
    import asyncio  # clients start faster without

    began = time.monotonic()
    try:
        while True:
            next(work)
            if time.monotonic() - began > TURN_S:
                await asyncio.sleep(0)
                began = time.monotonic()
    except StopIteration as end:
        result: R = end.value
        return result
