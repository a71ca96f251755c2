"""From `submit` to the first instruction of the job, through the real daemon."""

from __future__ import annotations

import time

from scheduler.client import Client
from tests.benchmarks.rows import spread


def measure(count: int = 40) -> dict[str, float]:
    """Milliseconds, over `count` jobs one after the other."""
    return spread(samples(count))


def samples(count: int = 40, pause: float = 0.0) -> list[float]:
    """As of `measure`, one by one: the job prints the time as the first thing it does. `pause`: seconds before each submission."""
    found = []
    with Client() as deck:
        for i in range(count + 3):
            time.sleep(pause)
            before = time.time()
            job = deck.submit(["date", "+%s.%N"], gpus=1)
            deck.wait(job.id, timeout=30)
            if i >= 3:  # the first ones load the interpreter from disk
                found.append((float(deck.log(job.id)) - before) * 1000)
    return found
