"""Check what a history of power is worth in joules."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.protocol.energy import joules_of_history, watts
from gpudeck.scheduler.protocol.snapshot import Columns


def test_pauses_that_each_reading_meets_are_in_the_mean_that_the_card_makes() -> None:
    times = [0.5 * n for n in range(21)]
    read = Columns(times, {"power": [130.0] * 21, "power_avg": [340.0] * 21})
    assert joules_of_history(read) == pytest.approx(3400.0)


def test_work_that_begins_is_counted_whole_although_the_mean_trails() -> None:
    means = [100.0, 100.0, 400.0, 700.0, 700.0]  # 700 W from the second reading on
    read = Columns([0.0, 0.5, 1.0, 1.5, 2.0], {"power_avg": [*means]})
    assert joules_of_history(read) == pytest.approx(0.5 * 100 + 1.5 * 700)


def test_without_a_mean_it_is_power_at_the_readings_and_gaps_are_nothing() -> None:
    power = [100.0, 300.0, None, 500.0, 500.0]
    read = Columns([0.0, 1.0, 2.0, 3.0, 4.0], {"power": power, "power_avg": [None] * 5})
    assert watts(read) == power
    assert joules_of_history(read) == 200.0 + 500.0
    assert joules_of_history(Columns([0.0], {"power": [100.0]})) is None
