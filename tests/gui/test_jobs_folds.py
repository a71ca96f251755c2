"""Arrays and groups as one row each, sorting, selecting and the menu of the jobs table."""

from __future__ import annotations

import random

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QFontMetrics
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu

from gpudeck.app.format.values import duration
from gpudeck.app.jobs.page import MENU
from gpudeck.app.jobs.table import DURATION, HEADINGS, NAME, PROGRESS, SHARE, STATE
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import action_info
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Failed,
    Job,
    Progress,
    Queued,
    Running,
    queued,
)
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.verbs.change import CancelMany
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.gui.snapshots import NOW

CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
WAITS = queued(StartFailed("GPU 0 is held by job 8"), 0.0)


def running(done: float = 3.0) -> Running:
    return Running("a", ("cpu",), NOW - 600, 1, 1, "boot", progress=Progress(done, 10.0, time=NOW))


def element(number: int, index: int, state: object, submitted: float = NOW - 900) -> Job:
    made = snapshots.job(number, state, name=f"sweep[{index}]", workload=None)
    spec = msgspec.structs.replace(made.spec, index=index)
    return msgspec.structs.replace(made, spec=spec, submitted=submitted)


def grouped(number: int, state: object, group: str = "night") -> Job:
    made = snapshots.job(number, state, name="prep", workload=None)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, group=group))


ARRAY = (
    *(element(20 + i, i, Done(NOW - 800, NOW - 700 + i)) for i in range(3)),
    element(23, 3, Failed(NOW - 700, NOW - 600, "exit code 1", 1)),
    element(24, 4, running()),
    *(element(25 + i, 5 + i, WAITS) for i in range(5)),
)
GROUP = (grouped(40, Done(NOW - 90, NOW - 80)), grouped(41, WAITS))


def feed(fed: Fed, *jobs: Job, later: float = 0.0) -> None:
    made = snapshots.cpu_snapshot(NOW + later)
    ordered = tuple(sorted((*jobs, *made.jobs), key=lambda job: -job.id))
    waiting = sum(isinstance(job.state, Queued) for job in ordered)
    fed.feed(msgspec.structs.replace(made, jobs=ordered, waiting=waiting))


@pytest.fixture
def page(fed: Fed):
    fed.window.show_page("jobs")
    feed(fed, *ARRAY, *GROUP)
    fed.window.activateWindow()
    fed.window.jobs.table.setFocus()
    fed.settle()
    return fed.window.jobs


def cells(page, row: int) -> list[str]:
    return [page.model.data(page.model.index(row, column)) for column in range(len(HEADINGS))]


def row_of(page, name: str) -> int:
    return next(at for at in range(page.model.rowCount()) if name in cells(page, at)[NAME])


def test_an_array_and_a_group_are_one_row_each_with_a_bar(page):
    at = row_of(page, "sweep")
    shown = cells(page, at)
    assert (shown[0], shown[NAME], shown[STATE]) == ("20–29", "▸  sweep", "running")
    assert shown[PROGRESS] == "4 of 10 ended · 1 failed · 1 running · 5 queued"
    assert page.model.data(page.model.index(at, PROGRESS), SHARE) == pytest.approx(0.4)
    group = cells(page, row_of(page, "night"))
    assert (group[0], group[PROGRESS]) == ("40–41", "1 of 2 done · 1 queued")
    assert "sweep[4]" not in [cells(page, row)[NAME] for row in range(page.model.rowCount())]
    assert page.count.text().startswith("21 jobs"), "jobs are counted, not rows"


def test_it_is_unfolded_and_folded_by_keys_and_mouse(fed, page):
    at = row_of(page, "sweep")
    folded = page.model.rowCount()
    page.table.selectRow(at)
    QTest.keyClick(page.table, Qt.Key.Key_Right)
    assert page.model.rowCount() == folded + 10
    assert [cells(page, at + i)[NAME].strip() for i in (0, 1, 2)] == [
        "▾  sweep",
        "sweep[4]",
        "sweep[5]",
    ]
    QTest.keyClick(page.table, Qt.Key.Key_Down)
    QTest.keyClick(page.table, Qt.Key.Key_Left)  # to the array's own row
    assert page.table.currentIndex().row() == at
    QTest.keyClick(page.table, Qt.Key.Key_Left)
    assert page.model.rowCount() == folded
    box = page.table.visualRect(page.model.index(at, NAME))
    arrow = QPoint(box.left() + 10, box.center().y())
    QTest.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=arrow)
    assert page.model.rowCount() == folded + 10
    QTest.mouseDClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=box.center())
    assert page.model.rowCount() == folded


def test_a_job_alone_of_its_group_is_no_group(fed):
    fed.window.show_page("jobs")
    feed(fed, grouped(40, WAITS))
    assert cells(fed.window.jobs, row_of(fed.window.jobs, "prep"))[0] == "40"


def test_a_whole_array_is_removed_with_its_row(fed, page, qtbot):
    waiting = tuple(job for job in ARRAY if isinstance(job.state, Queued))
    feed(fed, *waiting, later=1)
    page.table.selectRow(row_of(page, "sweep"))
    QTest.keyClick(page, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: bool(fed.asked))
    assert sorted(fed.asked[-1].jobs) == [25, 26, 27, 28, 29]
    assert isinstance(fed.asked[-1], CancelMany)


def test_a_job_of_a_folded_array_can_be_shown(fed, page):
    page.show_job(27)
    fed.settle()
    assert page.details.title.text() == "Job 27 · sweep[7]"
    assert cells(page, page.table.currentIndex().row())[0] == "27"


def test_row_and_details_agree_while_an_array_runs(fed):
    """Let the jobs of an array start and end at random: what is shown belongs to one job."""
    page, draw = fed.window.jobs, random.Random(3)
    fed.window.show_page("jobs")
    states: dict[int, object] = dict.fromkeys(range(20, 50), WAITS)
    for step in range(60):
        for n in draw.sample(sorted(states), 3):
            new = {Queued: running(), Running: Done(NOW, NOW + step)}
            states[n] = new.get(type(states[n]), states[n])
        feed(fed, *(element(n, n - 20, state) for n, state in states.items()), later=step)
        if step % 7 == 0:
            QTest.keyClick(page.table, Qt.Key.Key_Right)
        QTest.keyClick(page.table, draw.choice([Qt.Key.Key_Down, Qt.Key.Key_Up]))
        number = page.model.rows.ids[page.table.currentIndex().row()]
        assert page.chosen() == [number]
        if number > 0:
            assert page.details.title.text().startswith(f"Job {number} ·")
            assert page.details.state.text().lower() == page.model.rows.line(number).row.state
        over = sum(isinstance(state, Done) for state in states.values())
        total = next(iter(page.model.rows.folds.values()))
        assert f"{over} of 30" in total.row.doing or over == 30


def test_rows_are_sorted_by_each_column_and_back(fed, page):
    feed(fed, later=2)
    before = list(page.model.rows.ids)
    header = page.table.horizontalHeader()

    def click(column: int) -> list[str]:
        at = QPoint(header.sectionViewportPosition(column) + 20, 8)
        QTest.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
        fed.settle()
        return [cells(page, row)[column] for row in range(page.model.rowCount())]

    for column in range(len(HEADINGS)):
        if page.table.isColumnHidden(column):
            continue
        up = click(column)
        down = click(column)
        if HEADINGS[column] in ("Job", "Name"):
            assert down == up[::-1]
        assert click(column) == [cells(page, row)[column] for row in range(len(before))]
        assert page.model.rows.ids == before, "the third click restores the order of the queue"
    names = [name.lstrip("▸ ") for name in click(NAME)]
    assert names == sorted(names, key=str.casefold)
    assert page.model.headerData(NAME, Qt.Orientation.Horizontal) == "Name ▴"
    assert not any(
        page.model.flags(page.model.index(row, 0)) & Qt.ItemFlag.ItemIsDragEnabled
        for row in range(page.model.rowCount())
    ), "rows of another order are not dragged"
    chosen = page.chosen()
    feed(fed, later=3)
    assert page.chosen() == chosen


def test_home_end_and_ctrl_a_select(fed, page):
    last = page.model.rowCount() - 1
    QTest.keyClick(page.table, Qt.Key.Key_End)
    assert page.table.currentIndex().row() == last
    QTest.keyClick(page.table, Qt.Key.Key_Home)
    assert page.table.currentIndex().row() == 0
    QTest.keyClick(page.table, Qt.Key.Key_End, SHIFT)
    assert len(page.chosen()) == last + 1
    QTest.keyClick(page.table, Qt.Key.Key_Down)
    QTest.keyClick(page.table, Qt.Key.Key_A, CTRL)
    assert len(page.chosen()) == last + 1
    assert page.several.text() == "Cancel 10 jobs…", "also those of folded arrays"


WAITING_ONLY = ("job.hold", "job.earlier", "job.later")
ACTIVE_ONLY = (*WAITING_ONLY, "job.notify", "job.cancel", "job.suspend")


@pytest.mark.parametrize(
    ("state", "left_out"),
    [
        (WAITS, ("job.suspend",)),
        (running(), WAITING_ONLY),
        (Failed(NOW - 700, NOW - 600, "exit code 1", 1), ACTIVE_ONLY),
    ],
    ids=["waiting", "running", "failed"],
)
def test_the_menu_has_the_actions_that_apply(fed, page, monkeypatch, state, left_out):
    menus: list[QMenu] = []
    monkeypatch.setattr(QMenu, "popup", lambda self, at: menus.append(self))
    feed(fed, snapshots.job(60, state, "alone", None))
    page.choose(60)
    box = page.table.visualRect(page.model.index(row_of(page, "alone"), NAME))
    page.table.customContextMenuRequested.emit(box.center())
    (menu,) = menus
    texts = [action.text() for action in menu.actions() if not action.isSeparator()]
    wanted = [name for name in MENU if name and name not in left_out]
    assert texts == [action_info(name).title for name in wanted]
    menu.deleteLater()


def test_the_menu_of_a_row_that_stands_for_several_cancels_them(fed, page, monkeypatch):
    menus: list[QMenu] = []
    monkeypatch.setattr(QMenu, "popup", lambda self, at: menus.append(self))
    box = page.table.visualRect(page.model.index(row_of(page, "sweep"), NAME))
    page.table.customContextMenuRequested.emit(box.center())
    (menu,) = menus
    texts = [action.text() for action in menu.actions() if not action.isSeparator()]
    assert texts == [action_info("job.cancel").title]
    menu.deleteLater()


def test_a_state_keeps_its_colour_when_its_row_is_selected(fed, page):
    colors = {}
    for chosen in (False, True):
        at = row_of(page, "sweep")
        page.table.selectRow(at if chosen else at + 1)
        fed.settle()
        box = page.table.visualRect(page.model.index(at, STATE))
        image = page.table.viewport().grab(box).toImage()
        ground = image.pixelColor(14, image.height() // 2 - 6)
        colors[chosen] = ground.name()
    assert colors[True] == colors[False]
    assert QColor(colors[True]) != QColor(theme.tokens().surface)


def test_no_duration_is_cut(page):
    header, metrics = page.table.horizontalHeader(), QFontMetrics(page.table.font())
    for seconds in (3.0, 59.6, 3599.0, 86_400.0 * 41):
        width = metrics.horizontalAdvance(duration(seconds))
        assert width + 14 <= header.sectionSize(DURATION), seconds


def test_a_narrow_table_keeps_what_matters(fed, page):
    table = page.table
    header = table.horizontalHeader()
    for width in (560, 2400, 700, 1200, 900):
        table.setFixedWidth(width)
        fed.settle()
        assert not any(table.isColumnHidden(at) for at in (0, NAME, STATE, PROGRESS, DURATION))
        used = sum(header.sectionSize(at) for at in range(len(HEADINGS)) if at != PROGRESS)
        assert width < 700 or used + 170 <= table.viewport().width() + 1, width


def test_cancelled_jobs_of_an_array_are_counted(fed):
    fed.window.show_page("jobs")
    feed(fed, element(20, 0, Cancelled(NOW)), element(21, 1, Cancelled(NOW)))
    shown = cells(fed.window.jobs, row_of(fed.window.jobs, "sweep"))
    assert (shown[STATE], shown[PROGRESS]) == ("cancelled", "all 2 ended · 2 cancelled")


def test_the_row_of_an_array_shows_it_as_a_whole(fed, page):
    page.show_job(23)
    fed.settle()
    head = page.model.rows.head_of(23)
    page._toggle_fold(head)  # what is folded away is replaced by its array
    fed.settle()
    assert page.chosen() == [head]
    shown = page.fold
    assert shown.isVisible() and not page.details.isVisible()
    assert shown.title.text() == "Array sweep"
    text = shown.text.toPlainText()
    assert "10 jobs" in text and "sweep[3]: exit code 1" in text
    assert "on average" in text
    shown.unfold.click()
    fed.settle()
    assert shown.unfold.text() == "Hide its jobs"
    shown.cancel.click()
    assert "Stop job 24" in page.asking.text.text() and "5 queued jobs" in page.asking.text.text()


def test_a_narrow_window_has_a_menu_for_the_buttons_without_room(fed, page):
    fed.window.resize(900, 700)
    fed.settle()
    assert page.more.isVisible() and not page.as_timeline.isVisible()
    schedule, groups, *_ = page.more.menu().actions()
    schedule.trigger()
    fed.settle()
    assert page.timeline.isVisible() and schedule.isChecked()
    schedule.trigger()
    fed.settle()
    assert page.table.isVisible() and not schedule.isChecked(), "there is a way back"
    groups.trigger()
    assert page.groups.isVisible()
    fed.window.resize(1280, 800)
    fed.settle()
    assert page.as_timeline.isVisible() and not page.more.isVisible()


def test_a_narrow_window_has_no_bar_to_scroll_sideways(fed, page):
    fed.window.resize(fed.window.minimumSize())
    for number in (8, 9, 6):
        page.choose(number)
        fed.window.refresh()
        fed.settle()
        assert page.minimumSizeHint().width() <= fed.window.pages.width()
