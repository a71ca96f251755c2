"""A real process writes automatic reports, and remembers what is left."""

from __future__ import annotations

import json
import stat
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpudeck.assistant.host.report_writer import write_due_reports
from gpudeck.assistant.reports import files, schedule
from gpudeck.assistant.reports.material import of_span
from gpudeck.assistant.reports.schedule import (
    ReportBacklog,
    add_ended_jobs,
    is_daily_report_due,
    load,
    save,
)
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.support import eventually, state_folder


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory):
    with state_folder(tmp_path_factory.mktemp("scribe") / "home") as folder:
        yield folder


@pytest.fixture(scope="module")
def deck(state: Path):
    """Yield a daemon whose CPU always counts as idle, and a job that has ended."""
    settings.save(
        Settings(source="cpu", idle_util_percent=100.0, idle_dwell_s=0.0, model_folder=TEMPLATE)
    )
    with Client() as client:
        client.wait(
            client.submit([sys.executable, "-c", "print('hello from the job')"], name="greet").id
        )
        yield client


def test_the_backlog_is_deleted_when_the_settings_want_no_reports(
    deck: Client, state: Path
) -> None:
    save(ReportBacklog(0.0, 0.0, 0.0, (), (1,)))
    assert write_due_reports() is False
    assert list((state / "reports").iterdir()) == []
    assert load().began == pytest.approx(time.time(), abs=60), (
        "what ended while it was off is not reported on later"
    )


def test_each_end_of_a_job_is_found_once_even_if_it_is_stored_late(deck: Client) -> None:
    now, wish = time.time(), Settings(report_jobs=0.0)
    first = add_ended_jobs(deck, ReportBacklog(now - 9, now - 9, now - 60), wish, now)
    assert first.jobs == (1,)
    assert add_ended_jobs(deck, first, wish, now + 1).jobs == (1,)
    assert add_ended_jobs(deck, ReportBacklog(now, now, now + 60), wish, now).jobs == (), (
        "it ended before anybody asked"
    )
    assert (
        add_ended_jobs(
            deck, ReportBacklog(now - 9, now - 9, now - 60), Settings(report_jobs=1.0), now
        ).jobs
        == ()
    ), "it was short"
    assert add_ended_jobs(deck, ReportBacklog(now + 9999, now, now - 60), wish, now).jobs == (1,), (
        "the clock was set back"
    )


def test_a_past_span_leaves_out_later_events(deck: Client) -> None:
    job = deck.job(1)
    now = of_span(deck, 0.0)
    assert now.jobs == (job,) and now.until - now.since == pytest.approx(30 * 86400), (
        "as long as readings are kept"
    )
    before = of_span(deck, job.submitted - 600, until=job.submitted - 60)
    assert before.jobs == () and before.until == job.submitted - 60
    assert any(fact.name == "jobs.any" and fact.value is None for fact in before.facts)


@pytest.fixture
def received() -> Iterator[tuple[str, list[bytes]]]:
    """Return the address of a server, and what it received."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", bodies
        server.shutdown()


def test_the_backlog_is_written_once_the_settings_want_reports(
    deck: Client, state: Path, received: tuple[str, list[bytes]]
) -> None:
    save(ReportBacklog(0.0, 0.0, 0.0))
    url, bodies = received
    told = {"webhook": url, "report_digest": True, "report_language": "de"}
    deck.configure(report_jobs=0.0, report_daily="00:00", **told)
    (job, daily) = (
        eventually(lambda: list((state / "reports").glob("job-1.html")))[0],
        eventually(lambda: list((state / "reports").glob("daily-*.html")))[0],
    )
    assert "hello from the job" in job.read_text() and "greet" in daily.read_text()
    assert stat.S_IMODE(job.stat().st_mode) == 0o600
    eventually(lambda: load().day > 0 and not load().jobs)
    (sent,) = [json.loads(body) for body in bodies]
    assert sent["title"].startswith("Tagesbericht")
    assert sent["title"] in daily.read_text() and "Job" in sent["text"]


def at(clock: str) -> float:
    return datetime.fromisoformat(f"2026-11-21T{clock}").timestamp()


@pytest.mark.parametrize(
    ("told", "now", "daily", "due"),
    [
        ("07:59", "08:00", "08:00", True),
        ("08:00", "23:59", "08:00", False),
        ("00:10", "07:59", "08:00", False),
        ("07:00", "07:30", "", False),
    ],
)
def test_a_daily_report_is_due_once_a_day(told: str, now: str, daily: str, due: bool) -> None:
    assert (
        is_daily_report_due(
            ReportBacklog(0.0, at(told), 0.0), Settings(report_daily=daily), at(now)
        )
        is due
    )
    assert is_daily_report_due(
        ReportBacklog(0.0, at(told) - 5 * 86400, 0.0), Settings(report_daily=daily), at(now)
    ) is bool(daily)


def test_a_damaged_backlog_is_replaced(home: Path) -> None:
    (files.folder() / files.MARK).write_bytes(b"{]")
    assert schedule.load().jobs == ()
