"""Notices over the window: undo a cancellation, and open a file that was written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.widgets import toast
from gpudeck.scheduler.protocol.jobs import UNDO_S, Cancelled, Cancelling, Running, queued
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.verbs.change import CancelMany, Restore
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.gui.snapshots import NOW

CTRL = Qt.KeyboardModifier.ControlModifier


def waiting(*numbers: int) -> snapshots.Snapshot:
    jobs = [snapshots.job(n, queued(StartFailed("GPU 0 is held by job 8"), 0.0)) for n in numbers]
    made = snapshots.cpu_snapshot()
    return msgspec.structs.replace(made, jobs=(*jobs, *made.jobs[1:]))


def test_a_queued_job_is_removed_at_once_and_comes_back_with_undo(fed: Fed) -> None:
    page, toasts = fed.window.jobs, fed.window.toasts
    fed.window.show_page("jobs")
    fed.feed(waiting(10, 11))
    page.choose(11)
    QTest.keyClick(page, Qt.Key.Key_Delete)
    assert page.asking.isHidden(), "what can be undone needs no question"
    fed.reply(CancelMany((11,)), Cancelling((11,)))
    fed.settle()
    (shown,) = toasts.toasts
    assert shown.text.text() == "Job 11 was removed from the queue"
    assert shown.timer.interval() == 1000 * UNDO_S == 10_000
    assert shown.isVisible()
    inside = fed.window.rect().contains(toasts.geometry())
    assert inside and toasts.height() >= shown.heightForWidth(toasts.width())
    shown.buttons["Undo"].click()
    assert fed.asked[-1] == Restore((11,))
    fed.settle()
    assert toasts.toasts == [] and toasts.isHidden()


def test_ctrl_z_undoes_the_newest_cancellation(fed: Fed) -> None:
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(waiting(10, 11))
    for number in (10, 11):
        page.choose(number)
        QTest.keyClick(page, Qt.Key.Key_Delete)
        fed.reply(CancelMany((number,)), Cancelling((number,)))
    for left, number in ((1, 11), (0, 10)):
        QTest.keyClick(page, Qt.Key.Key_Z, CTRL)
        assert fed.asked[-1] == Restore((number,))
        assert len(fed.window.toasts.toasts) == left, "what was undone is not offered any more"


def test_a_job_that_comes_back_is_listed_once(fed: Fed) -> None:
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(waiting(10, 11))
    gone = snapshots.job(11, Cancelled(NOW))
    cancelled = waiting(10)
    fed.feed(msgspec.structs.replace(cancelled, jobs=(gone, *cancelled.jobs)))
    assert [line.id for line in page.model.rows].count(11) == 1
    fed.feed(waiting(10, 11))
    assert [line.id for line in page.model.rows].count(11) == 1
    line = page.model.rows.line(11)
    assert line.row.state == "queued"


def test_a_running_job_asks_with_the_time_that_would_be_lost(fed: Fed) -> None:
    page = fed.window.jobs
    fed.window.show_page("jobs")
    made = snapshots.cpu_snapshot()
    state = Running("a", ("cpu",), NOW - 7620.0, 4711, 1, "boot")
    job = snapshots.job(40, state, name="train")
    fed.feed(msgspec.structs.replace(made, jobs=(job, *made.jobs)))
    page.choose(40)
    assert page.details.cancel.text() == "Stop…"
    QTest.keyClick(page, Qt.Key.Key_Delete)
    assert page.asking.text.text() == (
        "Stop job 40 (train)? It has run for 2 h 07 min, and what it has not saved is lost."
    )
    assert page.asking.no.hasFocus()
    page.asking.no.click()
    assert not any(isinstance(request, CancelMany) for request in fed.asked)
    QTest.keyClick(page, Qt.Key.Key_Delete)
    page.asking.yes.click()
    assert fed.asked[-1] == CancelMany((40,))
    fed.reply(CancelMany((40,)), Cancelling((), (40,)))
    assert fed.window.toasts.toasts == [], "what runs on cannot be undone"


def test_a_toast_ends_by_itself_and_makes_room(fed: Fed) -> None:
    toasts = fed.window.toasts
    made = [toasts.show_text(str(n), [], 10.0) for n in range(5)]
    assert [shown.text.text() for shown in toasts.toasts] == ["2", "3", "4"]
    made[3].timer.timeout.emit()
    assert [shown.text.text() for shown in toasts.toasts] == ["2", "4"]
    made[4].close_button.click()
    toasts.show_text("a long text " * 20, [("Undo", lambda: None)], 10.0)
    fed.settle()
    for shown in toasts.toasts:
        assert shown.height() >= shown.heightForWidth(toasts.width()), "no text is cut"
    fed.window.resize(1100, 700)
    fed.settle()
    assert fed.window.rect().contains(toasts.geometry())


@pytest.mark.parametrize(("button", "opened"), [("Open", "a.html"), ("Show in folder", "")])
def test_a_file_that_was_written_can_be_opened_and_found(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, button: str, opened: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        toast.QDesktopServices, "openUrl", lambda url: asked.append(url.toLocalFile())
    )
    fed.link.announce_file("Report", str(tmp_path / "a.html"))
    (shown,) = fed.window.toasts.toasts
    assert shown.text.text() == "Report saved as a.html"
    shown.buttons[button].click()
    assert asked == [str(tmp_path / opened).rstrip("/")]
