"""TFLOP/s follow the FLOPs that jobs count."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.scheduler.protocol.jobs import Progress
from gpudeck.scheduler.telemetry.flop_rate import FlopRate


def counted(*points: tuple[float, float]) -> FlopRate:
    rate = FlopRate()
    for time, flops in points:
        rate.add(Progress(0, 1, "", flops, time))
    return rate


def test_rate_is_what_was_counted_over_the_time_it_took() -> None:
    assert counted((0.0, 0.0), (0.5, 5e12)).tflops(0.6) == pytest.approx(10.0)


def test_rate_follows_within_two_seconds() -> None:
    points = [(t / 4, 1e12 * t / 4) for t in range(40)] + [
        (10 + t / 4, 1e13 + 5e12 * t / 4) for t in range(1, 13)
    ]
    assert counted(*points).tflops(13.0) == pytest.approx(5.0, rel=0.01)


def test_rate_is_the_mean_of_the_window_and_not_of_the_last_report() -> None:
    rate = counted((0.0, 0.0), (0.5, 1e12), (1.0, 4e12), (1.5, 4.5e12))
    assert rate.tflops(1.6) == pytest.approx(3.0)


def test_a_job_that_stops_counting_has_no_rate() -> None:
    rate = counted((0.0, 0.0), (1.0, 1e12))
    assert rate.tflops(2.1) is not None
    assert rate.tflops(2.3) is None
    assert FlopRate().tflops(0.0) is None
    assert counted((0.0, 1e12)).tflops(0.1) is None


def test_reports_without_a_time_that_arrive_together_make_no_spike() -> None:
    """Read a whole log at once, as after a restart of the daemon."""
    rate = counted(*[(100.0, 1e12 * i) for i in range(50)], (100.25, 49.25e12))
    assert rate.tflops(100.3) == pytest.approx(1.0)


def test_a_count_that_goes_down_or_a_clock_that_goes_back_is_no_negative_rate() -> None:
    assert counted((0.0, 5e12), (1.0, 6e12), (2.0, 0.0)).tflops(2.0) == pytest.approx(1.0)
    assert counted((5.0, 5e12), (6.0, 6e12), (1.0, 7e12)).tflops(6.0) == pytest.approx(1.0)


@given(
    st.lists(st.tuples(st.floats(0, 1e10), st.floats(0, 1.7e308)), max_size=20), st.floats(0, 1e10)
)
def test_any_count_gives_a_finite_rate_or_none(
    points: list[tuple[float, float]], now: float
) -> None:
    rate = counted(*points).tflops(now)
    assert rate is None or (math.isfinite(rate) and rate >= 0)
