"""Alerts on their way out: the log's bound, and quiet hours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.settings import Settings, is_quiet
from gpudeck.scheduler.protocol.snapshot import Alert
from gpudeck.scheduler.services.alert_service import AlertService
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.store import KEPT_ALERTS

GPU = Device("GPU-0", 0, "H100", "nvidia")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "home" / "gpudeck.sqlite")
    yield made
    made.close()


def alert(number: int, cleared: float | None = None) -> Alert:
    return Alert(number, "too hot", "GPU-0", None, "hot", 1.0, 2.0, cleared)


def test_the_log_is_bounded_and_keeps_active_alerts(store: Store) -> None:
    store.put_alerts([alert(1), *(alert(i, 5.0) for i in range(2, KEPT_ALERTS + 102))])
    kept = store.alerts(10 * KEPT_ALERTS)
    assert len(kept) == KEPT_ALERTS + 1
    assert [a.id for a in kept[:1] + kept[-1:]] == [KEPT_ALERTS + 101, 1]
    assert store.open_alerts() == ([alert(1)], KEPT_ALERTS + 102)
    store.put_alerts([alert(1, 9.0)])
    assert store.open_alerts()[0] == []


def at(hour: int, minute: int) -> float:
    return time.mktime((2026, 11, 21, hour, minute, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("hours", "quiet", "loud"),
    [
        ("", [], [(0, 0), (12, 0)]),
        ("22:00-07:00", [(22, 0), (23, 59), (0, 0), (6, 59)], [(7, 0), (12, 0), (21, 59)]),
        ("12:30-13:00", [(12, 30), (12, 59)], [(12, 29), (13, 0), (0, 0)]),
        ("09:00-09:00", [], [(9, 0), (8, 59)]),
    ],
)
def test_quiet_hours(hours: str, quiet: list[tuple[int, int]], loud: list[tuple[int, int]]) -> None:
    assert [is_quiet(hours, at(*when)) for when in quiet] == [True] * len(quiet)
    assert [is_quiet(hours, at(*when)) for when in loud] == [False] * len(loud)


def hot(now: float, temp: float) -> dict[str, Reading]:
    return {GPU.id: Reading(GPU.id, now, {"temp": temp, "temp_limit": 89.0})}


def test_an_alert_that_outlasts_quiet_hours_is_told_after_them(store: Store) -> None:
    settings = msgspec.structs.replace(Settings(), quiet_hours="22:00-07:00")
    annotated: list[Annotation] = []
    told: list[Alert] = []
    alerting = AlertService(store, lambda topic, words: None, annotated.append, told.append)
    now = at(22, 0)
    while now < at(22, 0) + 9 * 3600 + 60:
        minutes = (now - at(22, 0)) / 60
        temp = 88.0 if 5 < minutes < 10 or minutes > 100 else 50.0
        alerting.check((GPU,), hot(now, temp), (), settings, now)
        now += 4
    alerting.stop()
    assert [(alert.cleared, alert.id) for alert in told] == [(None, 2)]
    logged = store.alerts(9)
    assert [a.id for a in logged] == [2, 1], "the first one is in the log"
    of = {(a.time, a.name): (a.until, a.device) for a in annotated}
    assert of == {(a.raised, a.rule): (a.cleared, a.device) for a in logged}, (
        "all of them are on the time axis, as they ended"
    )
