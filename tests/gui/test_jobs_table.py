"""The jobs page lists, filters, describes, pauses and cancels jobs."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest

from gpudeck.app.jobs.job_keys import WAITING
from gpudeck.app.jobs.page import EMPTY, NOTHING_FOUND, SEARCHING
from gpudeck.app.jobs.requests import ReadLog, RepeatJobs
from gpudeck.app.jobs.table import DURATION
from gpudeck.app.language.texts import use
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol.jobs import queued
from gpudeck.scheduler.protocol.log_file import Output
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.verbs.change import CancelMany
from gpudeck.scheduler.verbs.groups import Pause
from gpudeck.scheduler.verbs.jobs import GetTimeline
from tests.gui import snapshots
from tests.gui.pictures import stage
from tests.gui.readable import texts
from tests.gui.snapshots import NOW


def test_the_table_has_every_job_and_follows_changes_in_place(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    model, table = fed.window.jobs.model, fed.window.jobs.table
    assert model.rowCount() == 9
    assert model.index(0, 5).data() == "42 % · 28 s left"
    assert model.index(5, 2).data(Qt.ItemDataRole.ForegroundRole) == QColor(theme.LIGHT.failed)
    table.selectRow(5)
    assert "Job 4 · train" in texts(fed.window.jobs.details)
    made = snapshots.cpu_snapshot(NOW + 1)
    fewer = (
        snapshots.job(10, queued(StartFailed("the CPU is held by job 8"), 0.0)),
        *made.jobs[:2],
        *made.jobs[3:],
    )
    fed.feed(msgspec.structs.replace(made, jobs=fewer))
    assert [r.id for r in model.rows] == [8, 9, 10, 6, 5, 4, 3, 2, 1]
    assert table.currentIndex().row() == 5
    assert "Job 4 · train" in texts(fed.window.jobs.details)


def test_details_show_the_reason_and_the_result(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.choose(4)
    assert "CUDA out of memory" in fed.window.jobs.details.failure.cause.text()
    facts = fed.window.jobs.details.facts.toPlainText()
    assert "python train.py --epochs=3" in facts
    fed.window.jobs.choose(6)
    facts = fed.window.jobs.details.facts.toPlainText()
    assert "allowed 1.0e-05" in facts
    assert "0.083 TFLOP/s over 4.0 s" in facts
    assert "Verdict" not in facts, "the state and the line above the facts say it"


def test_long_details_begin_at_their_first_line(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot(with_jobs=False))
    fed.window.show_page("dashboard")
    made = snapshots.cpu_snapshot(NOW + 1)
    spec = msgspec.structs.replace(
        made.jobs[3].spec, argv=tuple(f"--a-long-argument={i}" for i in range(99))
    )
    fed.feed(
        msgspec.structs.replace(made, jobs=(msgspec.structs.replace(made.jobs[3], spec=spec),))
    )
    fed.window.show_page("jobs")  # its details were filled before they had any height
    fed.settle()
    bar = fed.window.jobs.details.facts.verticalScrollBar()
    assert bar.maximum() > 0
    assert bar.value() == 0


def test_no_row_of_the_table_is_cut(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    table = fed.window.jobs.table
    for height, at in product((800, 813, 827, 1000), (0, table.model().rowCount() - 1)):
        fed.window.resize(1280, height)
        fed.settle()
        table.scrollTo(table.model().index(at, 0))
        seen = table.viewport().rect()
        rows = [
            table.visualRect(table.model().index(i, 0)) for i in range(table.model().rowCount())
        ]
        assert sum(r.top() < seen.bottom() and r.bottom() > seen.bottom() + 1 for r in rows) == 0
        assert seen.height() >= 5 * 30


def test_cancel_and_run_again_ask_for_it(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.choose(8)
    fed.window.jobs.details.cancel.click()
    assert "Stop job 8 (attention)?" in fed.window.jobs.asking.text.text()
    fed.window.jobs.asking.yes.click()
    fed.window.jobs.choose(4)
    assert not fed.window.jobs.details.cancel.isVisible()
    fed.window.jobs.details.again.click()
    verbs = [r for r in fed.asked if not isinstance(r, ReadLog | GetTimeline)]
    assert verbs[0] == CancelMany((8,))
    assert verbs[1] == RepeatJobs((4,))


def test_the_log_is_followed_one_question_at_a_time(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.choose(5)
    fed.window.jobs.choose(8)
    fed.asked.clear()
    details = fed.window.jobs.details
    assert not fed.asked  # the first question is still open
    fed.reply(ReadLog(8), Output(0, b"epoch 1\n", 8))
    fed.reply(ReadLog(5), Output(0, b"somebody else's\n", 16))
    assert details.log.toPlainText() == "epoch 1\n"
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    fed.feed(snapshots.cpu_snapshot(NOW + 2))
    assert fed.asked == [ReadLog(8, 8)]
    fed.reply(ReadLog(8, 8), Output(8, b"epoch 2\n", 16))
    assert details.log.toPlainText() == "epoch 1\nepoch 2\n"
    fed.window.jobs.choose(6)
    assert details.log.toPlainText() == ""
    assert fed.asked[-1] == ReadLog(6, None)
    fed.reply(ReadLog(6), Output(0, b"done\n", 5))
    fed.asked.clear()
    fed.feed(snapshots.cpu_snapshot(NOW + 3))
    assert fed.asked == []  # it has ended: nothing more will come


def test_a_long_log_is_bounded_and_does_not_pull_a_reader_down(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.choose(8)
    log = fed.window.jobs.details.log
    fed.reply(ReadLog(8), Output(0, b"line\n" * 6000, 30000))
    assert log.blockCount() <= 5000
    bar = log.verticalScrollBar()
    assert bar.value() == bar.maximum()
    bar.setValue(100)
    fed.reply(ReadLog(8), Output(30_000, b"more\n" * 3, 30_015))
    assert bar.value() == 100


def test_the_filter_and_the_empty_states(fed, qtbot):
    def nothing_more(times: int) -> None:
        qtbot.waitUntil(lambda: len(fed.finds) == times, timeout=20_000)
        fed.reply(fed.finds[-1], ((), None))

    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    QTest.keyClick(fed.window.jobs, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    fed.window.jobs.filter.setText("train")
    fed.window.jobs.kinds.setCurrentText("Failed")
    assert [r.id for r in fed.window.jobs.model.rows] == [4, 2]
    fed.finds.clear()
    fed.window.jobs.filter.setText("zzz")
    assert (fed.window.jobs.empty.isVisible(), fed.window.jobs.empty.text()) == (True, SEARCHING)
    nothing_more(1)
    assert (fed.window.jobs.empty.isVisible(), fed.window.jobs.empty.text()) == (
        True,
        NOTHING_FOUND,
    )
    fed.window.jobs.chooser.clear()
    nothing_more(2)
    fed.feed(snapshots.cpu_snapshot(NOW + 1, with_jobs=False))
    nothing_more(3)
    assert fed.window.jobs.empty.text() == EMPTY
    assert not fed.window.jobs.details.isVisible()


def test_the_queue_is_paused_and_resumed(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    fed.window.jobs.pause.click()
    fed.feed(snapshots.cpu_snapshot(NOW + 1, paused=True))
    assert "Resume" in fed.window.jobs.pause.text()
    assert "The queue is paused" in fed.window.status.message.text()
    fed.window.jobs.pause.click()
    assert [r for r in fed.asked if isinstance(r, Pause)] == [Pause(True), Pause(False)]


def test_jobs_that_run_or_wait_stay_in_sight_while_others_are_scrolled(fed):
    fed.window.resize(1280, 800)
    fed.window.show_page("jobs")
    made = snapshots.cpu_snapshot()
    ended = [
        msgspec.structs.replace(made.jobs[-1], id=number, submitted=NOW - 9000 + number)
        for number in range(100, 160)
    ]
    fed.feed(msgspec.structs.replace(made, jobs=(*made.jobs[:2], *reversed(ended))))
    page = fed.window.jobs
    table, pinned = page.table, page.table.pinned
    assert [line.row.active for line in page.model.rows[:3]] == [True, True, False]
    assert not pinned.isVisible(), "they are at the top already"
    page.choose(page.model.rows.ids[3])
    fed.settle()
    before = table.viewport().grab().toImage()
    page.choose(page.model.rows.ids[-1])
    fed.settle()
    assert pinned.isVisible() and pinned.rows == 2
    row = table.rowHeight(0)
    shown, whole = pinned.grab().toImage(), before.copy(0, 0, pinned.width(), 2 * row)
    alike = sum(
        shown.pixel(x, y) == whole.pixel(x, y)
        for x in range(0, pinned.width(), 7)
        for y in range(0, 2 * row - 1, 3)
    )
    total = len(range(0, pinned.width(), 7)) * len(range(0, 2 * row - 1, 3))
    assert alike > 0.95 * total, "they look as in the table"
    for number in page.model.rows.ids[20:2:-1]:
        page.choose(number)
        table.scrollTo(table.currentIndex())
        place = table.visualRect(table.currentIndex())
        covered = pinned.rows and place.top() < pinned.height() - 1
        assert not covered and place.bottom() <= table.viewport().height(), number
    page.choose(page.model.rows.ids[-1])
    QTest.mouseClick(pinned, Qt.MouseButton.LeftButton, pos=QPoint(60, row + row // 2))
    fed.settle()
    assert table.currentIndex().row() == 1
    assert f"Job {page.model.rows.ids[1]}" in page.details.title.text()
    QTest.keyClick(table, Qt.Key.Key_S)
    page.choose(page.model.rows.ids[-1])
    fed.settle()
    assert not pinned.isVisible(), "the user's own order has no jobs that are due first"


def test_the_details_of_a_job_are_hidden_and_shown_by_button_and_key(fed):
    fed.window.resize(1000, 700)
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    page = fed.window.jobs
    fed.settle()
    high = page.table.height()
    assert page.details.facts.isVisible() and page.details.more.isChecked()
    page.details.more.click()
    fed.settle()
    assert not page.details.facts.isVisible() and page.details.title.isVisible()
    assert page.table.height() > high
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert not page.details.facts.isVisible(), "the next snapshot does not open them"
    QTest.keyClick(fed.window, Qt.Key.Key_I, Qt.KeyboardModifier.ControlModifier)
    fed.settle()
    assert page.details.facts.isVisible()
    page.details.more.click()
    fed.window.resize(1600, 900)
    fed.settle()
    assert page.details.facts.isVisible(), "beside the table they take no room from it"


@pytest.mark.parametrize(
    "language", ["de", *(pytest.param(name, marks=pytest.mark.slow) for name in ("en", "fr", "es"))]
)
def test_the_table_beside_a_job_has_room_for_its_columns_in_every_language(qapp, language):
    use(language)
    try:
        with stage(qapp, 1) as on:
            on.window.resize(1280, 800)
            on.window.show_page("jobs")
            page = on.window.jobs
            on.settle()
            waiting = next(line.id for line in page.model.rows if line.kind == WAITING)
            for number in (on.newest("attention").id, waiting):
                page.show_job(number)
                on.settle()
                assert page.details.x() > page.table.width(), "it is beside the table"
                assert page.table.horizontalScrollBar().maximum() == 0
                assert not page.table.isColumnHidden(DURATION)
                header = page.details.again.mapTo(page.details, page.details.again.rect().center())
                assert header.x() < page.details.width(), "the buttons have room"
    finally:
        use("en")
