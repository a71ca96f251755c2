"""The delay of the hardware counters, from loads with pauses."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gpudeck.scheduler.telemetry.counter_delay import (
    MOST_S,
    USUAL_S,
    PausedLoad,
    Share,
    counter_delay,
    overlap,
)

PACES = ((0.15, 0.13), (0.3, 0.13), (0.6, 0.1), (0.3, 0.37), (0.5, 0.5))


def load(busy: float, period: float, delay: float, noise: float = 0.01) -> PausedLoad:
    """Return three seconds of a load, read every 0.5 s by counters that lag behind."""
    chance = random.Random(round(1000 * period))
    spans = [(100 + i * period, 100 + (i + busy) * period) for i in range(round(3 / period))]
    times = [100.07 + i / 2 for i in range(7)]
    shares = [
        Share(a, b, 90 * overlap(spans, a - delay, b - delay) / 0.5 * chance.gauss(1, noise))
        for a, b in pairwise(times)
    ]
    return PausedLoad(spans, shares)


@pytest.mark.parametrize("delay", [0.0, 0.032, 0.078, 0.13, 0.19])
def test_the_delay_is_found_within_a_hundredth_of_a_second(delay: float) -> None:
    found = counter_delay([load(busy, period, delay) for busy, period in PACES])
    assert found == pytest.approx(delay, abs=0.01)


def test_a_load_without_pauses_or_with_few_readings_tells_no_delay() -> None:
    steady = PausedLoad(((100.0, 103.0),), load(1.0, 3.0, 0.1).shares)
    assert counter_delay([steady, steady]) == USUAL_S
    assert counter_delay([load(0.3, 0.13, 0.12)]) == USUAL_S
    assert counter_delay([]) == USUAL_S


def test_pauses_as_long_as_a_reading_and_idle_readings_do_not_matter() -> None:
    slow = load(0.5, 2.0, 0.078, noise=0.0)
    assert any(share.tensor == 0 for share in slow.shares)
    found = counter_delay([slow, *(load(busy, period, 0.078) for busy, period in PACES)])
    assert found == pytest.approx(0.078, abs=0.01)


def test_readings_of_the_load_before_are_left_out() -> None:
    """The first reading beside a load may describe the one before it."""
    delay = 0.15
    found = []
    for busy, period in PACES:
        clean = load(busy, period, delay)
        before = Share(100.0 - 0.43, 100.07, 90.0)
        assert before.start < clean.busy[0][0] + MOST_S
        found.append(PausedLoad(clean.busy, [before, *clean.shares]))
    assert counter_delay(found) == pytest.approx(delay, abs=0.01)
