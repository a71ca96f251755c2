"""Alerts of the real daemon: raised and cleared by a recorded GPU, logged, acknowledged, and
sent to a real server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest

from gpudeck.app.cli.main import main
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.reports.material import of_job
from gpudeck.assistant.tools.registry import plan_action
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.words import words as in_language
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.settings import Settings
from tests.hook import Hook
from tests.integration.deck import daemon_pid, kill_daemon, ready
from tests.support import eventually, users_of


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Yield a state folder with 1.5 s at the power limit and 1.5 s at rest of the shipped trace."""
    header, moments = trace.read(paths.assets() / "h100.trace.gz")
    capped = [m for m in moments if m.readings[0].texts["throttle"] == "power limit"][10:25]
    quiet = [m for m in moments if m.readings[0].texts["throttle"] == "idle"][:15]
    file = tmp_path / "short.trace.gz"
    with trace.TraceWriter(file, header.devices, 0.0, {}) as out:
        for at, moment in enumerate((*capped, *quiet)):
            out.add(msgspec.structs.replace(moment, time=100 + at / 10))
    return file


@pytest.fixture
def capped_home(home: Path, recording: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings.save(Settings(source=f"replay:{recording}", telemetry_hz=10.0, alert_power_cap=0.3))
    return home


def test_a_recorded_gpu_raises_an_alert_that_is_logged_sent_and_cleared(
    capped_home: Path, hook: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.answers = [500]
    with Client() as deck:
        deck.configure(webhook=hook.url)
        (raised,) = eventually(lambda: deck.snapshot().alerts)
        assert (raised.rule, raised.device, raised.cleared) == (
            "at its power limit",
            "REPLAY-0",
            None,
        )
        assert str(raised.text).startswith("REPLAY GPU 0 "), (
            "it goes to a webhook, where nothing else says so"
        )
        job = deck.wait(deck.submit(["true"]).id)
        assert of_job(deck, job.id).alerts == (), "the job used no GPU"
        asked = ToolContext(deck, words=in_language("de"))
        planned = plan_action(asked, Order("acknowledge", number=raised.id))
        assert "Leistungsgrenze" in planned.effect, "a German request has a German answer"
        deck.acknowledge(raised.id)
        assert deck.snapshot().alerts[0].acknowledged
        with pytest.raises(NotFound, match="no active alert 77"):
            deck.acknowledge(77)
        assert deck.alerts()[0].acknowledged
        pid = daemon_pid()
        kill_daemon()
    with Client() as deck:
        assert daemon_pid() != pid
        assert [a.id for a in deck.alerts()] == [raised.id]
        eventually(lambda: ready(deck).snapshot().devices[0].reading)
        assert [(a.id, a.acknowledged) for a in deck.alerts(1) if a.cleared is None] == [
            (raised.id, True)
        ], "not raised anew"
        deck.configure(alert_power_cap="off")
        assert eventually(lambda: (a := deck.alerts()[-1]).cleared and a).id == raised.id
        assert deck.snapshot().alerts == ()
        sent = eventually(lambda: [m for m in hook.got if m["event"] == "cleared"])
        assert sent[0]["id"] == raised.id
        assert sent[0]["path"] == "/hook?token=s3cret"
        assert "power limit" in str(sent[0]["text"])
        assert (
            "s3cret"
            not in "".join(map(str, deck.snapshot().notices)) + paths.daemon_log().read_text()
        )
    capsys.readouterr()
    assert main(["alerts"]) == 0
    assert "throttled by its power limit" in capsys.readouterr().out
    assert main(["alerts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["rule"] == "at its power limit"
    assert main(["alerts", "--acknowledge", str(raised.id)]) == 1
    assert "no active alert" in capsys.readouterr().err


def test_a_webhook_that_hangs_delays_nobody(capped_home: Path, hook: Hook) -> None:
    hook.answers = [0] * 9
    with Client() as deck:
        deck.configure(webhook=hook.url)
        eventually(lambda: len(hook.answers) < 9)
        begin, seq = time.monotonic(), deck.snapshot().seq
        eventually(lambda: deck.snapshot().seq > seq + 3)
        assert [
            p
            for p in users_of(capped_home)
            if b"gpudeck.scheduler.notices.sender" in Path(f"/proc/{p}/cmdline").read_bytes()
        ]
        deck.stop_daemon()
        assert time.monotonic() - begin < 9, "it waits for no answer"
    assert [
        p
        for p in users_of(capped_home)
        if b"gpudeck.scheduler.notices.sender" in Path(f"/proc/{p}/cmdline").read_bytes()
    ] == []


@pytest.mark.parametrize("changes", [{"webhook": "file:///etc/passwd"}, {"webhook": "ftp://x/y"}, {"quiet_hours": "25:00-07:00"},  # noqa: E501
                                     {"alert_memory": -1.0}, {"alert_memory": "often"}])  # fmt: skip  # noqa: E501
def test_meaningless_settings_are_refused(changes: dict[str, str | float]) -> None:
    with pytest.raises(UserError):
        settings.changed(Settings(), dict(changes))
