"""Judge the tour's live figures: the job's count against the independent hardware counters."""

from __future__ import annotations

import pytest

from gpudeck.app.tour.results import Live
from gpudeck.app.tour.steps import StepPrinter


def live(counters: float | None) -> Live:
    ratio = None if counters is None else counters / 600.0
    return Live(
        600.0, "the job's own count", 600.0, ratio, counters, None if counters is None else 3.0, 9
    )


@pytest.mark.parametrize("counters", [None, 571.0, 600.0, 629.0])
def test_counters_that_agree_within_5_percent_or_do_not_exist_pass(counters: float | None) -> None:
    assert live(counters).disagreement == ""


@pytest.mark.parametrize(("counters", "off"), [(569.0, "-5.2 %"), (660.0, "+10.0 %")])
def test_counters_that_disagree_fail_although_the_dashboard_shows_the_jobs_count(
    counters: float, off: str
) -> None:
    found = live(counters).disagreement
    assert off in found
    assert f"{counters:.4g} TFLOP/s" in found
    assert "gpudeck calibrate" in found


def test_the_log_of_a_tour_has_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    StepPrinter(quiet=False).progress("job 1: running")
    assert capsys.readouterr().out == "   job 1: running\n"
    StepPrinter(quiet=True).progress("job 1: running")
    assert capsys.readouterr().out == ""
