"""Jobs are held, moved and queued again from the page, by keyboard; against the real daemon,
too."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.jobs.requests import ReadLog, RepeatJobs
from gpudeck.app.link.link import Link
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Changes, queued
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.verbs.change import Cancel, CancelMany, Edit, Move, Restore
from gpudeck.scheduler.verbs.jobs import GetTimeline
from tests.gui import snapshots
from tests.gui.conftest import exchange
from tests.gui.snapshots import NOW
from tests.support import state_folder

PATIENCE_MS = 20_000
ALT, CTRL = Qt.KeyboardModifier.AltModifier, Qt.KeyboardModifier.ControlModifier


def orders(fed) -> list[object]:
    return [request for request in fed.asked if not isinstance(request, ReadLog | GetTimeline)]


def hold(job: int, held: bool) -> Edit:
    return Edit(job, Changes(hold=held))


def waiting(*numbers: int, hold: bool = False) -> snapshots.Snapshot:
    jobs = [snapshots.job(n, queued(StartFailed("GPU 0 is held by job 8"), 0.0)) for n in numbers]
    jobs = [
        msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, hold=hold)) for j in jobs
    ]
    made = snapshots.cpu_snapshot(NOW + hold)
    return msgspec.structs.replace(made, jobs=(*jobs, *made.jobs[1:]))


def test_a_waiting_job_is_moved_among_those_that_wait(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(waiting(10, 11, 12))
    page.choose(11)
    QTest.keyClick(page, Qt.Key.Key_Up, ALT)
    QTest.keyClick(page, Qt.Key.Key_Down, ALT)
    page.choose(10)
    QTest.keyClick(page, Qt.Key.Key_Up, ALT)  # it is the next already
    page.choose(12)
    page.details.later.click()
    assert orders(fed) == [Move(11, 10, False), Move(11, 12, True)]


def test_a_waiting_job_is_dragged_among_those_of_its_priority(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    made = waiting(10, 11, 12, 13)
    jobs = [
        msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, priority=5))
        if j.id in (10, 11)
        else j
        for j in made.jobs
    ]
    fed.feed(msgspec.structs.replace(made, jobs=tuple(jobs)))
    model = page.model
    rows = {line.id: at for at, line in enumerate(model.rows)}
    assert [line.id for line in model.rows[:6]] == [8, 7, 10, 11, 12, 13]
    assert [
        n
        for n, at in rows.items()
        if model.flags(model.index(at, 0)) & Qt.ItemFlag.ItemIsDragEnabled
    ] == [10, 11, 12, 13]

    def drop(job: int, row: int, on: int | None = None) -> bool:
        data, parent = (
            model.mimeData([model.index(rows[job], 0)]),
            model.index(on, 0) if on is not None else model.index(-1, -1),
        )
        possible = model.canDropMimeData(data, Qt.DropAction.MoveAction, row, 0, parent)
        assert not model.dropMimeData(data, Qt.DropAction.MoveAction, row, 0, parent), (
            "the table itself moves nothing"
        )
        return possible

    assert drop(13, rows[12])
    assert drop(12, rows[13] + 1)
    assert drop(11, rows[10])
    assert drop(10, -1, on=rows[11])
    before = orders(fed)
    assert before == [
        Move(13, 12, False),
        Move(12, 13, True),
        Move(11, 10, False),
        Move(10, 11, False),
    ]
    assert not drop(13, rows[10])
    assert not drop(11, rows[13])
    assert not drop(12, 0)
    assert not drop(12, -1)
    assert not drop(12, len(model.rows))
    page.choose(11)
    QTest.keyClick(page, Qt.Key.Key_Down, ALT)  # the next is of another priority
    assert orders(fed) == before


def test_a_waiting_job_is_held_and_released(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(waiting(10))
    page.choose(10)
    QTest.keyClick(page, Qt.Key.Key_H, CTRL)
    fed.feed(waiting(10, hold=True))
    assert page.details.hold.text() == "Release"
    QTest.keyClick(page, Qt.Key.Key_H, CTRL)
    assert orders(fed) == [hold(10, True), hold(10, False)]


def test_only_waiting_jobs_can_be_held_or_moved(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(waiting(10, 11))
    for number in (8, 6):
        page.choose(number)
        assert not any(
            b.isVisible() for b in (page.details.hold, page.details.earlier, page.details.later)
        )
        for key, modifier in ((Qt.Key.Key_Up, ALT), (Qt.Key.Key_Down, ALT), (Qt.Key.Key_H, CTRL)):
            QTest.keyClick(page, key, modifier)
    assert orders(fed) == []


def test_a_refused_order_shows_the_reason(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(waiting(10, 11))
    page.choose(10)
    for act, kind in (
        (page.details.hold.click, Edit),
        (page.details.later.click, Move),
        (page.details.again.click, RepeatJobs),
    ):
        act()
        assert fed.window.status.message.text() == "", "what was said of the order before is gone"
        fed.fail(kind, f"not {kind.__name__}")
        assert fed.window.status.message.text() == f"not {kind.__name__}"


def test_the_daemon_carries_out_orders_and_a_repeated_job_keeps_its_options(
    clean_qt, qtbot, tmp_path
):
    with state_folder(tmp_path / "home"), Client() as deck:
        deck.pause()
        options = {
            "priority": 3,
            "timeout": "2h",
            "retries": 2,
            "backoff": 5,
            "group": "night",
            "notes": "long",
            "tags": ("a",),
        }
        first = deck.submit(["true"], hold=True, cwd=tmp_path, params={"lr": "0.1"}, **options)
        second = deck.submit(["true"], priority=3)
        link = Link()
        exchange(qtbot, link, hold(first.id, False))
        exchange(qtbot, link, Move(second.id, first.id))
        made = exchange(qtbot, link, RepeatJobs((first.id,)))[0]
        with pytest.raises(UserError, match="4711"):
            exchange(qtbot, link, hold(4711, True))
        assert not deck.job(first.id).spec.hold
        assert deck.job(second.id).place < first.id
        assert made.id != first.id
        assert made.spec == msgspec.structs.replace(deck.job(first.id).spec, hold=False)
        gone = exchange(qtbot, link, CancelMany((first.id, second.id, made.id, 4711)))
        back = exchange(qtbot, link, Restore(gone.cancelled))
        assert {job.id for job in back} == {first.id, second.id, made.id}
        assert deck.job(second.id).place < first.id
        exchange(qtbot, link, CancelMany(gone.cancelled))
        qtbot.waitUntil(lambda: not deck.jobs(active=True), timeout=PATIENCE_MS)
        link.stop()


def test_a_selection_is_cancelled_with_one_question_and_one_order(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    made = snapshots.cpu_snapshot()
    fed.feed(made)
    active = [line.id for line in page.model.rows if line.kind in ("Running", "Waiting")]
    page.choose(active[0])
    assert page.several.isHidden()
    page.table.setFocus()
    for _ in range(len(page.model.rows) - 1):
        QTest.keyClick(page.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    fed.settle()
    assert page.several.text() == f"Cancel {len(active)} jobs…"
    for answer in (Qt.Key.Key_Escape, Qt.Key.Key_Space):
        QTest.keyClick(page, Qt.Key.Key_Delete)
        fed.settle()
        assert "running jobs? They have run for" in page.asking.text.text()
        assert page.asking.no.hasFocus(), "what does no harm comes first"
        if answer == Qt.Key.Key_Space:
            page.asking.yes.setFocus()
        QTest.keyClick(fed.app.focusWidget(), answer)
        fed.settle()
        assert page.asking.isHidden() and page.table.hasFocus()
    asked = [request for request in fed.asked if isinstance(request, Cancel | CancelMany)]
    assert [sorted(request.jobs) for request in asked] == [sorted(active)]
