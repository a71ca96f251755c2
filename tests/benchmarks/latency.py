"""Measure the time from `submit` to the first instruction of the job, with the real daemon."""

from __future__ import annotations

import time

from gpudeck.scheduler.client import Client
from tests.benchmarks.rows import spread


def measure(count: int = 40) -> dict[str, float]:
    """Return statistics of `count` jobs, one after another, in milliseconds."""
    return spread(samples(count))


def samples(count: int = 40, pause: float = 0.0) -> list[float]:
    """Return the milliseconds of each job, which prints the time as its first action.

    Args:
        pause: Seconds before each submission.
    """
    found = []
    with Client() as deck:
        for i in range(count + 3):
            time.sleep(pause)
            before = time.time()
            job = deck.submit(["date", "+%s.%N"], gpus=1)
            deck.wait(job.id, timeout=30)
            if i >= 3:  # the first jobs load the interpreter from disk
                found.append((float(deck.log(job.id)) - before) * 1000)
    return found
