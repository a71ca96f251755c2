"""Charts are drawn when something would be seen of it, a few at a time, and all of them at once where more than time has changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.charts.refresh_rate import A_SECOND, FIGURES_A_SECOND, Pace, Turns, stepped

FIELDS = ("util", "mem_used", "tflops", "temp", "power")


@given(st.floats(1e9, 2e9), st.floats(1, 1e6), st.sampled_from([0.25, 0.5, 1.0, 2.0, 16.0]))
def test_a_live_axis_shows_the_newest_and_is_as_long_as_before(
    newest: float, seconds: float, step: float
) -> None:
    start, end = stepped((newest - seconds, newest), step)
    assert newest <= end < newest + step
    assert end / step == int(end / step)
    assert end - start == pytest.approx(seconds, abs=1e-6)


def test_all_are_drawn_at_first_then_a_few_with_each_reading_until_all_stand_right() -> None:
    for hz, numbers in (
        (A_SECOND / 2, [2, 2, 1, 0]),
        (A_SECOND * 2, [1, 1, 1, 1, 1, 0]),
        (0.5, [5, 0]),
    ):
        pace = Pace()
        assert pace.due(FIELDS, (0.0, 1.0), "look", hz) == FIELDS
        assert pace.due(FIELDS, (0.0, 1.0), "look", hz) == ()
        drawn = [pace.due(FIELDS, (1.0, 2.0), "look", hz) for _ in numbers]
        assert [len(found) for found in drawn] == numbers
        assert sorted(field for found in drawn for field in found) == sorted(FIELDS)
        assert pace.due(FIELDS, (1.0, 2.0), "another", hz) == FIELDS


@pytest.mark.parametrize(("hz", "turns"), [(2.0, 3), (10.0, 5)])
def test_no_chart_falls_behind_however_fast_time_goes(hz: float, turns: int) -> None:
    pace = Pace()
    pace.due(FIELDS, (0.0, 0.0), "look", hz)
    last = dict.fromkeys(FIELDS, 0)
    for turn in range(1, 60):
        for field in pace.due(FIELDS, (float(turn), float(turn)), "look", hz):
            last[field] = turn
        assert all(turn - at <= turns for at in last.values())


@pytest.mark.parametrize("hz", [0.5, 2.0, FIGURES_A_SECOND, 10.0, 16.0])
def test_every_figure_is_renewed_as_often_as_can_be_read_and_none_at_the_same_time_as_all_others(
    hz: float,
) -> None:
    turns, seconds, count = Turns(), 12, 8
    renewed = []
    for _ in range(int(hz * seconds)):
        turns.begin(hz)
        renewed.append([at for at in range(count) if turns.due(at)])
    times = [sum(at in found for found in renewed) / seconds for at in range(count)]
    assert all(min(hz, FIGURES_A_SECOND * 0.6) <= often <= FIGURES_A_SECOND for often in times), (
        times
    )
    if hz > FIGURES_A_SECOND:
        assert max(map(len, renewed)) <= count / 2 + 1
