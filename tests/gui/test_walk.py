"""Use the window by mouse and keys, with events that come through the platform's window.

The tests run offscreen in `make test`, and on a real X11 server in `make xvfb`.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from gpudeck.app.hosts.host_rows import ReachHost
from gpudeck.app.jobs.arrangement import SortOrder
from gpudeck.app.jobs.requests import SearchJobs
from gpudeck.app.jobs.table import NAME
from gpudeck.app.shell.window import PAGES
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.jobs import Cancelling, queued
from gpudeck.scheduler.protocol.settings import HostSettings, Settings
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.verbs.change import CancelMany, Restore
from gpudeck.scheduler.verbs.control import Configure
from gpudeck.scheduler.verbs.devices import GetDetails, KillProcess
from gpudeck.scheduler.verbs.hosts import SetHost
from gpudeck.scheduler.verbs.submit import Submit
from tests.gui import snapshots
from tests.gui.person import CTRL, LEFT, NONE, SHIFT
from tests.gui.snapshots import NOW
from tests.gui.test_processes_page import DRAW, TRAIN


def test_every_page_can_be_opened_by_mouse_and_keys(person):
    window = person.window
    for number, name in enumerate(PAGES, 1):
        person.click(window.rail.buttons[name])
        assert window.pages.currentWidget() is getattr(window, name)
        place = number % len(PAGES) + 1
        person.key(getattr(Qt.Key, f"Key_{place % 10}"), CTRL)
        assert window.pages.currentWidget() is getattr(window, PAGES[number % len(PAGES)])
        seen = set()
        for _ in range(6):
            person.key(Qt.Key.Key_Tab)
            seen.add(QApplication.focusWidget())
        assert len(seen - {None}) > 2
        person.key(Qt.Key.Key_Tab, SHIFT)


def test_charts_can_be_dragged_zoomed_and_pointed_at(person):
    dashboard = person.window.dashboard
    plot, before = dashboard.charts["util"].view, dashboard.axis.limits
    person.drag(plot, 0.4, 0.7)
    assert dashboard.axis.limits[1] < before[1] - 60, "an earlier time was dragged into sight"
    length = dashboard.axis.seconds
    person.wheel(plot, 2)
    assert dashboard.axis.seconds < 0.7 * length
    person.click(dashboard.bar.live)
    assert dashboard.axis.live
    QTest.mouseMove(person.window.windowHandle(), person.place(plot, 0.3))
    QTest.qWait(20)  # pyqtgraph looks at a hundred moves a second, and leaves out what is faster
    QTest.mouseMove(person.window.windowHandle(), person.place(plot, 0.5))
    person.fed.settle()
    assert dashboard.cursor_share == pytest.approx(0.5, abs=0.1)
    assert "Cursor at " in dashboard.bar.position.text()


def test_a_tile_opens_its_device(person):
    window = person.window
    tile = window.strip.tiles[snapshots.gpu(1).id]
    person.click(tile)
    assert window.pages.currentWidget() is window.device
    assert "GPU 1" in window.header.title.text()
    person.click(window.rail.buttons["dashboard"])
    assert window.pages.currentWidget() is window.dashboard


def test_jobs_can_be_selected_filtered_and_cancelled(person, qtbot):
    window, page = person.window, person.window.jobs
    person.click(window.rail.buttons["jobs"])
    table = page.table
    line = next(at for at, row in enumerate(page.model.rows) if row.id == 8)
    box = table.visualRect(page.model.index(line, 1))
    QTest.mouseClick(
        window.windowHandle(), LEFT, NONE, table.viewport().mapTo(window, box.center())
    )
    person.fed.settle()
    assert page.details.title.text().startswith("Job 8")
    person.click(page.details.cancel)
    assert CancelMany((8,)) not in person.fed.asked, "a running job is not lost by one click"
    assert "what it has not saved is lost" in page.asking.text.text()
    person.click(page.asking.yes)
    assert CancelMany((8,)) in person.fed.asked
    person.click(page.filter)
    person.type("train")
    assert page.filter.text() == "train"
    qtbot.waitUntil(
        lambda: any(isinstance(found, SearchJobs) for found in person.fed.finds)
    )  # once the typing has ended
    assert 0 < len(page.model.rows) < len(window.state.snapshot.jobs)


def test_opening_pages_leaks_no_thread_timer_or_file(person):
    """Open fifty pages and feed two thousand readings after a first round."""
    window = person.window

    def held() -> tuple[int, int, int]:
        gc.collect()
        timers = sum(timer.isActive() for timer in window.findChildren(QTimer))
        return threading.active_count(), timers, len(open_files())

    for name in PAGES:
        window.show_page(name)
    person.fed.settle()
    objects, files, before = len(window.findChildren(QWidget)), open_files(), held()
    for at in range(50):
        window.show_page(PAGES[at % len(PAGES)])
        for i in range(40):
            window.show_snapshot(snapshots.gpu_snapshot(2, NOW + at * 4 + i / 10))
        person.fed.settle()
    window.show_page("dashboard")
    for _ in range(60):  # the repaints that are due, on a busy machine too
        QTest.qWait(250)
        now = held()
        if all(some <= most for some, most in zip(now, before, strict=True)):
            break
    else:
        pytest.fail(f"{before} became {now}: {open_files() - files}")
    assert len(window.findChildren(QWidget)) <= objects + 5


def open_files() -> Counter[str]:
    """Count what this process has open, by name."""
    numbers = Path("/proc/self/fd").iterdir()
    return Counter(str(n.readlink()) for n in numbers if n.is_symlink())


def array_snapshot() -> snapshots.Snapshot:
    """Return a snapshot with an array of six jobs that wait."""
    jobs = []
    for i in range(6):
        made = snapshots.job(
            20 + i, queued(StartFailed("GPU 0 is held by job 8"), 0.0), name=f"sweep[{i}]"
        )
        spec = msgspec.structs.replace(made.spec, index=i)
        jobs.append(msgspec.structs.replace(made, spec=spec, submitted=NOW - 60))
    made = snapshots.gpu_snapshot(2, NOW + 1)
    return msgspec.structs.replace(made, jobs=(*jobs[::-1], *made.jobs), waiting=7)


def test_an_array_is_unfolded_and_a_job_of_it_removed_and_put_back(person):
    window, page = person.window, person.window.jobs
    person.fed.feed(array_snapshot())
    person.click(window.rail.buttons["jobs"])
    folded = page.model.rowCount()
    person.click_row("sweep", inside=0.05)  # its arrow
    assert page.model.rowCount() == folded + 6
    person.click_row("sweep[3]")
    assert page.details.title.text() == "Job 23 · sweep[3]"
    person.key(Qt.Key.Key_Delete)
    assert CancelMany((23,)) in person.fed.asked
    person.fed.reply(CancelMany((23,)), Cancelling((23,)))
    person.fed.settle()
    (toast,) = window.toasts.toasts
    person.click(toast.buttons["Undo"])
    assert person.fed.asked[-1] == Restore((23,))
    header = page.table.horizontalHeader()
    middle = header.sectionViewportPosition(NAME) + header.sectionSize(NAME) / 2
    person.click(header, x=middle / header.width())
    assert page.model.order == SortOrder(NAME, False), "sorted by the heading that was clicked"


def test_the_palette_leads_to_a_page_a_job_and_an_action(person):
    window = person.window
    palette = window.commands.palette
    for text, there in (
        ("settings", lambda: window.pages.currentWidget() is window.settings),
        ("8", lambda: window.jobs.details.title.text().startswith("Job 8")),
        ("groups and", window.jobs.groups.isVisible),
    ):
        person.key(Qt.Key.Key_K, CTRL)
        assert palette.isVisible()
        person.type(text)
        person.key(Qt.Key.Key_Return)
        assert not palette.isVisible() and there(), text
    person.key(Qt.Key.Key_K, CTRL)
    person.type("new job")
    entry = palette.list.visualItemRect(palette.list.item(0)).center()
    at = palette.list.viewport().mapTo(window, entry)
    QTest.mouseClick(window.windowHandle(), LEFT, NONE, at)
    person.fed.settle()
    assert window.jobs.form.isVisible()


def test_shortcuts_and_the_manual_open_over_any_page_and_esc_leaves_them(person):
    window = person.window
    person.click(window.rail.buttons["jobs"])
    window.jobs.table.setFocus()
    person.key(Qt.Key.Key_Question)
    sheet = window.commands.shortcut_sheet
    assert sheet.isVisible()
    person.key(Qt.Key.Key_Escape)
    assert not sheet.isVisible() and window.jobs.table.hasFocus()
    person.key(Qt.Key.Key_F1)
    assert window.commands.manual.isVisible()
    person.click(window.commands.manual.close_button)
    assert not window.commands.manual.isVisible()


def test_a_job_is_queued_like_an_earlier_one(person):
    window, page = person.window, person.window.jobs
    person.click(window.rail.buttons["jobs"])
    person.click_row("train")
    page.table.setFocus()
    person.key(Qt.Key.Key_D, CTRL)
    assert page.form.editors["command"].text() == "python train.py --epochs=3"
    person.click(page.form.clear)
    person.type("true")
    person.click(page.form.queue)
    (sent,) = [request for request in person.fed.asked if isinstance(request, Submit)]
    assert sent.spec.argv == ("true",)


def test_processes_are_grouped_folded_and_ended(person):
    fed = person.fed
    person.click(person.window.rail.buttons["processes"])
    page = person.window.processes
    ids = [state.device.id for state in person.window.state.snapshot.devices]
    fed.reply(GetDetails, (Detail(ids[0], NOW, (), (TRAIN, DRAW)),))
    fed.settle()
    page.grouping.setCurrentText("By user")
    fed.settle()
    cell = page.table.visualRect(page.list.model.index(0, 0))
    at = page.table.viewport().mapTo(person.window, QPoint(cell.left() + 12, cell.center().y()))
    QTest.mouseClick(person.window.windowHandle(), LEFT, NONE, at)
    fed.settle()
    assert page.list.model.rows[0].cells[0] == "▸  ada", "the arrow folds the group"
    page.table.setFocus()
    person.key(Qt.Key.Key_Right)
    person.key(Qt.Key.Key_Down)
    person.key(Qt.Key.Key_Delete)
    assert page.question.isVisible()
    person.key(Qt.Key.Key_Escape)
    assert not page.question.isVisible()
    person.key(Qt.Key.Key_Delete)
    person.click(page.question.yes)
    kills = [request for request in fed.asked if isinstance(request, KillProcess)]
    assert kills == [KillProcess(TRAIN.pid, TRAIN.ticks)]


def test_the_line_of_an_alert_is_dragged(person):
    person.click(person.window.rail.buttons["alerts"])
    chart = person.window.alerts.rules.charts["temp"]
    level, y = chart.level, chart.line_y() / chart.height()
    person.fed.asked.clear()
    handle, steps = person.window.windowHandle(), 4
    QTest.mousePress(handle, LEFT, NONE, person.place(chart, 0.5, y))
    for i in range(1, steps + 1):
        QTest.mouseMove(handle, person.place(chart, 0.5, y + 0.2 * i / steps))
        QTest.qWait(15)
    QTest.mouseRelease(handle, LEFT, NONE, person.place(chart, 0.5, y + 0.2))
    person.fed.settle()
    (request,) = (r for r in person.fed.asked if isinstance(r, Configure))
    assert request.changes["alert_temperature"] > 87 - level, "it is raised earlier now"


def test_a_machine_is_added_by_keys(person):
    fed = person.fed
    person.key(Qt.Key.Key_8, CTRL)
    page = person.window.hosts
    person.key(Qt.Key.Key_N, CTRL)
    person.type("lab1")
    person.key(Qt.Key.Key_Tab)
    person.type("ada@lab1")
    person.key(Qt.Key.Key_Return)
    fed.reply(ReachHost, "It has 1 GPU: NVIDIA H100 (read with NVML).")
    assert fed.asked[-1] == SetHost("lab1", HostSettings("ada@lab1"))
    fed.reply(SetHost, Settings())
    fed.settle()
    assert page.said.text().startswith("lab1 was added.")
    assert not page.form.isVisible()
