"""The figures of the last 24 hours are those of the readings and of the jobs."""

from __future__ import annotations

import math

import msgspec
import pytest

from gpudeck.app.dashboard.day import Day, day, figures, sentence
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.jobs import Job, Queued
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Columns
from tests.gui import snapshots
from tests.gui.snapshots import NOW

SINCE = NOW - 86_400


def columns(util: list[float | None], power: list[float | None]) -> Columns:
    times = [SINCE + 3600 * i for i in range(len(util))]
    temp = [None if u is None else 30 + u / 2 for u in util]
    values = {"util": util, "power": power, "temp": temp}
    return Columns(times, values, values, values)


def job(number: int, name: str, user: str) -> Job:
    made = snapshots.job(number, Queued(""), name, None)
    spec = msgspec.structs.replace(made.spec, env={"USER": user})
    return msgspec.structs.replace(made, spec=spec)


def made() -> Day:
    read = {
        "GPU 0": columns([100.0, 100.0, 0.0, None], [700.0, 700.0, 100.0, None]),
        "GPU 1": columns([0.0, 4.0, 5.0, math.nan], [50.0, 50.0, 200.0, math.nan]),
    }
    spans = [
        Annotation(SINCE - 3600, SINCE + 7200, "job", "", "GPU-0", 7),
        Annotation(SINCE + 3600, None, "job", "", "GPU-1", 8),
        Annotation(NOW - 0.3, None, "job", "", "GPU-0", 9),  # it has only just begun
        Annotation(SINCE, SINCE + 9, "alert", "hot", "GPU-1"),
    ]
    jobs = {7: job(7, "train", "ada"), 8: job(8, "sweep", "bob")}
    return day(read, spans, jobs, SINCE, NOW, 5.0)


def test_hours_energy_and_peak_are_those_of_the_bins() -> None:
    found = made()
    assert (found.hours, found.busy_hours) == (6.0, 3.0)
    assert found.energy_kwh == pytest.approx((700 + 700 + 100 + 50 + 50 + 200) / 1000)
    assert found.hottest == (80.0, "GPU 0", SINCE)


def test_jobs_and_users_count_within_the_day_only() -> None:
    found = made()
    assert dict(found.jobs) == pytest.approx({"8 · sweep": 23.0, "7 · train": 2.0})
    assert [name for name, _ in found.jobs] == ["8 · sweep", "7 · train"]
    assert dict(found.users) == pytest.approx({"bob": 23.0, "ada": 2.0})


def test_the_cost_is_shown_where_a_price_is_set() -> None:
    found = made()
    priced = Settings(energy_price=0.5, currency="CHF")
    assert dict(figures(found, priced, NOW))["Energy"] == "1.80 kWh, 0.90 CHF"
    assert dict(figures(found, Settings(), NOW))["Energy"] == "1.80 kWh"
    assert sentence(found, priced, 2) == (
        "The 2 devices together were busy for 3.0 h of the 6.0 h that were read and used 1.80 kWh, "
        "0.90 CHF; job 8 · sweep (23 h) and job 7 · train (2.0 h) held devices longest "
        "in these 24 hours."
    )


def test_a_machine_without_sensors_shows_what_there_is() -> None:
    found = day({"CPU": columns([50.0, 50.0], [None, None])}, (), {}, SINCE, NOW, 5.0)
    assert found.energy_kwh is None
    assert [caption for caption, _ in figures(found, Settings(), NOW)] == ["Busy", "Peak"]
