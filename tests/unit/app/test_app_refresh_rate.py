"""Charts are drawn again a few at a time, and all at once when more than time has changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.app.charts.refresh_rate import (
    CHARTS_A_SECOND,
    TEXTS_A_SECOND,
    RedrawSchedule,
    StaggeredRefresh,
    stepped,
)

FIELDS = ("util", "mem_used", "tflops", "temp", "power")


@given(st.floats(1e9, 2e9), st.floats(1, 1e6), st.sampled_from([0.25, 0.5, 1.0, 2.0, 16.0]))
def test_a_live_axis_shows_the_newest_reading_and_keeps_its_length(
    newest: float, seconds: float, step: float
) -> None:
    start, end = stepped((newest - seconds, newest), step)
    assert newest <= end < newest + step
    assert end / step == int(end / step)
    assert end - start == pytest.approx(seconds, abs=1e-6)


def test_all_charts_are_drawn_at_first_and_then_a_few_with_each_reading() -> None:
    for hz, numbers in (
        (CHARTS_A_SECOND / 2, [2, 2, 1, 0]),
        (CHARTS_A_SECOND * 2, [1, 1, 1, 1, 1, 0]),
        (0.5, [5, 0]),
    ):
        schedule = RedrawSchedule()
        assert schedule.next_charts(FIELDS, (0.0, 1.0), "look", hz) == FIELDS
        assert schedule.next_charts(FIELDS, (0.0, 1.0), "look", hz) == ()
        drawn = [schedule.next_charts(FIELDS, (1.0, 2.0), "look", hz) for _ in numbers]
        assert [len(found) for found in drawn] == numbers
        assert sorted(field for found in drawn for field in found) == sorted(FIELDS)
        assert schedule.next_charts(FIELDS, (1.0, 2.0), "another", hz) == FIELDS


@pytest.mark.parametrize(("hz", "turns"), [(2.0, 4), (10.0, 5)])
def test_no_chart_falls_behind(hz: float, turns: int) -> None:
    schedule = RedrawSchedule()
    schedule.next_charts(FIELDS, (0.0, 0.0), "look", hz)
    last = dict.fromkeys(FIELDS, 0)
    for turn in range(1, 60):
        for field in schedule.next_charts(FIELDS, (float(turn), float(turn)), "look", hz):
            last[field] = turn
        assert all(turn - at <= turns for at in last.values())


@pytest.mark.parametrize("hz", [0.5, 2.0, TEXTS_A_SECOND, 10.0, 16.0])
def test_texts_are_refreshed_often_enough_and_not_all_at_once(
    hz: float,
) -> None:
    refresh, seconds, count = StaggeredRefresh(), 12, 8
    renewed = []
    for _ in range(int(hz * seconds)):
        refresh.begin(hz)
        renewed.append([at for at in range(count) if refresh.includes(at)])
    times = [sum(at in found for found in renewed) / seconds for at in range(count)]
    assert all(min(hz, TEXTS_A_SECOND * 0.6) <= often <= TEXTS_A_SECOND for often in times), times
    if hz > TEXTS_A_SECOND:
        assert max(map(len, renewed)) <= count / 2 + 1
