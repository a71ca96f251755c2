"""Alerts on their way out: the log's bound, quiet hours, and a webhook that refuses, fails,
hangs or is not there."""

from __future__ import annotations

import asyncio
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
from gpudeck.scheduler.services.webhook import MAX_WAITING, Webhook
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.store import KEPT_ALERTS
from tests.hook import Hook

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


def test_an_alert_that_outlasts_quiet_hours_is_sent_after_them(store: Store, hook: Hook) -> None:
    settings = msgspec.structs.replace(Settings(), webhook=hook.url, quiet_hours="22:00-07:00")
    annotated: list[Annotation] = []

    async def night() -> None:
        alerting = AlertService(store, lambda topic, words: None, annotated.append)
        now = at(22, 0)
        while now < at(22, 0) + 9 * 3600 + 60:
            minutes = (now - at(22, 0)) / 60
            temp = 88.0 if 5 < minutes < 10 or minutes > 100 else 50.0
            alerting.check((GPU,), hot(now, temp), (), settings, now)
            now += 4
        while len(hook.got) < 1:
            await asyncio.sleep(0.02)
        await alerting.stop()

    asyncio.run(night())
    assert [(m["event"], m["id"]) for m in hook.got] == [("raised", 2)]
    logged = store.alerts(9)
    assert [a.id for a in logged] == [2, 1], "the first one is in the log"
    of = {(a.time, a.name): (a.until, a.device) for a in annotated}
    assert of == {(a.raised, a.rule): (a.cleared, a.device) for a in logged}, (
        "all of them are on the time axis, as they ended"
    )


def deliver(url: str, count: int = 1, timeout: float = 5.0) -> list[str | None]:
    """Send messages, and return what the webhook reported about each."""
    said: list[str | None] = []

    async def run() -> None:
        webhook = Webhook(said.append, attempts=(0.0, 0.05), timeout=timeout)
        for number in range(count):
            webhook.send(url, {"id": number})
        while len(said) < min(count, 1) or webhook:
            await asyncio.sleep(0.02)
        await webhook.stop()

    asyncio.run(run())
    return said


def test_a_message_is_retried_and_a_refusal_is_reported(hook: Hook) -> None:
    hook.answers = [503]
    assert deliver(hook.url) == [None]
    assert [m["id"] for m in hook.got] == [0]
    hook.answers = [404, 404]
    assert deliver(hook.url) == [
        "an alert could not be sent to the webhook: it answered 404 Not Found"
    ]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_to_another_server_is_followed(hook: Hook, status: int) -> None:
    other = Hook()
    try:
        hook.answers, hook.location = [status, status], other.url
        (problem,) = deliver(hook.url)
        assert other.requests == []
        assert problem is not None and "Name the address it redirects to" in problem
        assert "s3cret" not in problem
    finally:
        other.close()


def test_a_request_to_a_server_that_hangs_times_out(hook: Hook) -> None:
    hook.answers = [0, 0]
    assert deliver(hook.url, timeout=0.4) == [
        "an alert could not be sent to the webhook: no answer within 0.4 s"
    ]


def test_an_unreachable_url_is_reported_without_its_secret() -> None:
    (told,) = deliver("http://127.0.0.1:9/hook?token=s3cret")
    assert "refused" in told
    assert "s3cret" not in told
    (told,) = deliver("http://[::1/hook?token=s3cret")
    assert "cannot be used" in told
    assert "s3cret" not in told


def test_the_number_of_waiting_alerts_is_bounded() -> None:
    said: list[str | None] = []

    async def storm() -> None:
        webhook = Webhook(said.append)
        for number in range(MAX_WAITING + 5):
            webhook.send("http://127.0.0.1:9/", {"id": number})
        assert len(webhook) == MAX_WAITING
        await webhook.stop()

    asyncio.run(storm())
    assert len(said) == 5
