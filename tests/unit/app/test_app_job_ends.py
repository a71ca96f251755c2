"""The end of a long job is told to the desktop, once; short jobs, old ones and those of quiet
hours are not."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.app.shell.notifications import Notifier
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, State
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui import snapshots
from tests.gui.snapshots import NOW

FAILED = Failed(NOW - 400, NOW, "exited with status 1", 1)


def ending(state: State, settings: Settings) -> list[tuple[str, str]]:
    """What is told where job 8 runs and then ends so, while many jobs have ended before."""
    told: list[tuple[str, str]] = []
    notifier = Notifier(lambda notice: told.append((str(notice.title), str(notice.text))))
    made = msgspec.structs.replace(snapshots.cpu_snapshot(), settings=settings)
    notifier.update(made)
    over = tuple(msgspec.structs.replace(j, state=state) if j.id == 8 else j for j in made.jobs)
    notifier.update(msgspec.structs.replace(made, jobs=over, time=NOW + 1))
    notifier.update(msgspec.structs.replace(made, jobs=over, time=NOW + 2))
    return told


@pytest.mark.parametrize(
    ("state", "title", "text"),
    [
        (FAILED, "GPU Deck: job 8 failed", "attention, after 6 min 40 s: exited with status 1"),
        (Done(NOW - 7200, NOW), "GPU Deck: job 8 done", "attention, after 2 h 00 min"),
        (
            Done(
                NOW - 7200, NOW, (), snapshots.raw(snapshots.result(8, verdict="fail: out is off"))
            ),
            "GPU Deck: job 8 failed",
            "attention, after 2 h 00 min",
        ),
    ],
)
def test_the_end_of_a_long_job_is_announced_once(state: State, title: str, text: str) -> None:
    assert ending(state, Settings()) == [(title, text)]


@pytest.mark.parametrize(
    ("state", "settings"),
    [
        (Done(NOW - 299, NOW), Settings()),
        (Cancelled(NOW), Settings(notify_minutes=0.0)),
        (FAILED, Settings(notify_minutes="off")),
        (FAILED, Settings(notify_minutes=7.0)),
        (FAILED, Settings(quiet_hours="00:00-23:59")),
    ],
)
def test_ends_that_nobody_waits_for_are_not_announced(state: State, settings: Settings) -> None:
    assert ending(state, settings) == []


def test_alerts_turned_off_leave_the_ends_of_jobs_on() -> None:
    assert len(ending(FAILED, Settings(alert_notify=False))) == 1
