"""Energy beside the card's own counter: what follows from readings and looks, by the recording of a
real H100."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Reading
from tests.benchmarks.energy_truth import Case, CounterReading, Ran, Session, joules_at, moved, rows


@pytest.fixture(scope="module")
def recorded() -> list[Reading]:
    """Two a second over three minutes; the counter in them was read every five seconds."""
    _, moments = trace.read(paths.assets() / "h100.trace.gz")
    return [moment.readings[0] for moment in moments]


def test_readings_of_a_recorded_h100_match_its_counter(recorded: list[Reading]) -> None:
    looks = [CounterReading(r.time, r.values["energy"]) for r in recorded]
    steps = moved(looks)
    assert 30 < len(steps) < 40
    ran = [
        Ran(Case("half", 60.0, 1.0), steps[1].time, steps[13].time),
        Ran(Case("half", 60.0, 1.0), steps[13].time, steps[-2].time),
    ]
    found = list(rows(Session({"device": "H100"}, looks, recorded, ran)))
    assert [(row["case"], row["of"]) for row in found] == [
        ("half", "job"),
        ("half", "device"),
    ] * 2 + [("all", "device")]
    assert found[-1]["joules_counter"] == pytest.approx(steps[-2].joules - steps[1].joules, abs=0.1)
    for row in found:
        assert row["device"] == "H100"
        assert abs(float(str(row["difference_percent"]))) < 5, row
    assert abs(float(str(found[-1]["difference_percent"]))) < 1


def test_a_counter_that_stands_still_between_its_steps_is_taken_to_rise_evenly() -> None:
    steps = moved(
        [
            CounterReading(t / 10, joules)
            for t, joules in enumerate((5.0, 5.0, 7.0, 7.0, 7.0, 13.0, 13.0))
        ]
    )
    assert steps == [CounterReading(0.0, 5.0), CounterReading(0.2, 7.0), CounterReading(0.5, 13.0)]
    assert [joules_at(steps, at) for at in (0.0, 0.1, 0.2, 0.35, 0.5)] == pytest.approx(
        [5.0, 6.0, 7.0, 10.0, 13.0]
    )
    with pytest.raises(ValueError, match="not looked at around"):
        joules_at(steps, 0.6)


def test_pauses_in_step_with_readings_are_wrong_and_unread_jobs_are_absent() -> None:
    readings = [
        Reading("a", t / 2, {"power": 700.0}) for t in range(20)
    ]  # each as the card is busy, a third of the time
    readings += [Reading("a", at, {}, {"power": "not read"}) for at in (9.8, 9.9)]
    looks = [CounterReading(t / 10, 24.0 * t) for t in range(101)]
    ran = [Ran(Case("busy", 9.0, 0.3, 0.5), 0.4, 9.6), Ran(Case("unread", 0.3, 1.0), 9.7, 9.95)]
    found = {
        (row["case"], row["of"]): (row["joules_ours"], row["difference_percent"])
        for row in rows(Session({}, looks, readings, ran))
    }
    busy = round(9.2 * 700, 1)
    assert found["busy", "job"] == (busy, pytest.approx(100 * (busy / (9.2 * 240) - 1), abs=0.01))
    assert found["unread", "job"] == found["unread", "device"] == ("", "")
