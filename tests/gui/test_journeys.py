"""Journeys of a person through several parts of the window, by mouse and keys.

Like `test_walk`: offscreen in `make test`, and on a real X11 server in `make xvfb`. The last
journey runs a job of a real daemon.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit, QMenu

from gpudeck.app.shell.desktop import Desktop
from gpudeck.app.shell.window import LEAST_WIDTH, PAGES
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.jobs import Cancelling
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.verbs.bookings import Booked, CancelBooking, Reserve
from gpudeck.scheduler.verbs.change import CancelMany
from gpudeck.scheduler.verbs.control import Configure
from tests.gui import snapshots
from tests.gui.person import CTRL, LEFT, NONE, Person
from tests.gui.test_bookings_panel import HELD, SECOND, reserved
from tests.support import state_folder

PATIENCE_MS = 20_000


def test_a_gpu_is_reserved_and_given_back(person: Person) -> None:
    window, page, fed = person.window, person.window.jobs, person.fed
    person.click(window.rail.buttons["jobs"])
    person.click(page.open_bookings)
    person.type("1")
    for text in ("", "+2h", "night"):
        person.key(Qt.Key.Key_Tab)
        person.type(text)
    assert page.bookings.said.text().startswith("Will reserve GPU 1 for group night, ")
    person.click(page.bookings.make)
    assert fed.asked[-1].booking.gpus == (SECOND,)
    fed.reply(Reserve, Booked(3))
    fed.feed(reserved(n3=HELD))
    assert page.bookings.said.text().startswith("Booking 3: GPU 1 for group night")
    person.click(page.bookings.cancel)
    assert fed.asked[-1] == CancelBooking(3)
    person.key(Qt.Key.Key_Escape)
    assert not page.bookings.isVisible() and page.details.isVisible()


def test_jobs_are_sorted_selected_together_and_cancelled_with_one_question(person: Person) -> None:
    window, page, fed = person.window, person.window.jobs, person.fed
    person.click(window.rail.buttons["jobs"])
    before = list(page.model.rows.ids)
    for _ in range(3):
        person.click(page.table.horizontalHeader(), x=0.02)
        if page.model.order is not None:
            assert list(page.model.rows.ids) in (sorted(before), sorted(before, reverse=True))
    assert list(page.model.rows.ids) == before, "the third click restores the order of the queue"
    page.table.setFocus()
    person.key(Qt.Key.Key_End)
    assert page.details.title.text().startswith(f"Job {before[-1]} ")
    person.key(Qt.Key.Key_Home)
    assert page.details.title.text().startswith(f"Job {before[0]} ")
    person.key(Qt.Key.Key_A, CTRL)
    assert page.chosen() == before
    person.click(page.several)
    assert "running jobs?" in page.asking.text.text() and page.asking.no.hasFocus()
    person.key(Qt.Key.Key_Return)  # on the button that changes nothing
    assert not any(isinstance(request, CancelMany) for request in fed.asked)
    person.click(page.several)
    person.click(page.asking.yes)
    (sent,) = (request for request in fed.asked if isinstance(request, CancelMany))
    assert set(sent.jobs) == {7, 8, 9}
    fed.reply(CancelMany, Cancelling((9,)))
    fed.settle()
    assert [toast.buttons.keys() >= {"Undo"} for toast in window.toasts.toasts] == [True]


def test_the_menu_of_a_row_holds_what_the_keys_do(person: Person, qtbot) -> None:
    window, page = person.window, person.window.jobs
    person.click(window.rail.buttons["jobs"])
    table = page.table
    box = table.visualRect(page.model.index(page.model.rows.place(9), 1))
    table.customContextMenuRequested.emit(box.center())
    menu = qtbot.waitUntil(lambda: QApplication.activePopupWidget() is not None) or (
        QApplication.activePopupWidget()
    )
    assert isinstance(menu, QMenu)
    entry = next(action for action in menu.actions() if action.text().startswith("Hold"))
    QTest.mouseClick(menu, LEFT, NONE, menu.actionGeometry(entry).center())
    person.fed.settle()
    assert person.fed.asked, "the waiting job is held"


def test_a_setting_is_found_changed_and_reset(person: Person) -> None:
    window, page, fed = person.window, person.window.settings, person.fed
    person.click(window.rail.buttons["settings"])
    person.key(Qt.Key.Key_F, CTRL)
    person.type("too hot")
    shown = [name for name, row in page.rows.items() if row.isVisible()]
    assert shown == ["alert_temperature"]
    row = page.rows["alert_temperature"]
    person.click(row.line)
    person.key(Qt.Key.Key_A, CTRL)
    person.type("12")
    person.key(Qt.Key.Key_Return)
    assert fed.asked[-1] == Configure({"alert_temperature": 12.0})
    changed = Settings(alert_temperature=12.0)
    fed.reply(Configure, changed)
    fed.feed(msgspec.structs.replace(snapshots.gpu_snapshot(2), settings=changed))
    assert row.reset.isVisible()
    person.click(row.reset)
    assert fed.asked[-1] == Configure({"alert_temperature": Settings().alert_temperature})


def test_charts_are_exported_and_the_file_is_offered(person: Person, qtbot, tmp_path: Path) -> None:
    window = person.window
    window.dashboard.setFocus()
    person.key(Qt.Key.Key_E, CTRL)
    dialog = window.dashboard.findChild(QFileDialog)
    file = tmp_path / "charts.png"
    line = dialog.findChild(QLineEdit)
    line.setFocus()
    line.clear()
    QTest.keyClicks(line, str(file))
    QTest.keyClick(line, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: bool(window.toasts.toasts), timeout=PATIENCE_MS)
    (toast,) = window.toasts.toasts
    assert set(toast.buttons) >= {"Open", "Show in folder"} and file.stat().st_size > 10_000


def test_the_log_fills_the_screen_and_the_theme_follows_the_palette(person: Person) -> None:
    window, page = person.window, person.window.jobs
    person.click(window.rail.buttons["jobs"])
    person.click_row("train")
    page.table.setFocus()
    person.key(Qt.Key.Key_F11)
    assert page.details.log.isVisible() and not page.table.isVisible()
    person.key(Qt.Key.Key_Escape)
    assert page.table.isVisible() and not window.isFullScreen()
    person.key(Qt.Key.Key_K, CTRL)
    person.type("dark theme")
    person.key(Qt.Key.Key_Return)
    assert person.fed.asked[-1] == Configure({"theme": "dark"})


@pytest.mark.parametrize("half", [False, True], ids=["smallest", "half a screen"])
def test_every_page_is_reached_by_mouse_in_a_small_window(person: Person, half: bool) -> None:
    window, screen = person.window, QGuiApplication.primaryScreen().availableGeometry()
    size = (max(screen.width() // 2, LEAST_WIDTH), screen.height()) if half else (800, 560)
    window.resize(*size)
    person.fed.settle()
    assert (window.width(), window.height()) == size
    for name in PAGES:
        person.click(window.rail.buttons[name])
        assert window.pages.currentWidget() is getattr(window, name)
        assert window.rail.buttons[name].isChecked()
        assert window.width() == size[0], "no page makes the window wider"


@pytest.fixture
def at_desktop(qapp: QApplication, clean_qt: None, tmp_path: Path) -> Iterator[Person]:
    """A person at the real window, with a real daemon."""
    with state_folder(tmp_path / "home"):
        settings.save(Settings(model_folder=TEMPLATE))
        desktop = Desktop(qapp)
        desktop.start()
        desktop.window.resize(1280, 800)
        made = SimpleNamespace(window=desktop.window, settle=qapp.processEvents)
        yield Person(made)
        desktop.window.close()
        desktop.stop()
        desktop.window.deleteLater()


def test_a_real_job_is_queued_watched_and_run_again(
    at_desktop: Person, qtbot, tmp_path: Path
) -> None:
    person, window = at_desktop, at_desktop.window
    qtbot.waitUntil(lambda: window.state.snapshot is not None, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: bool(window.state.snapshot.devices), timeout=PATIENCE_MS)
    person.click(window.rail.buttons["jobs"])
    page = window.jobs
    person.click(page.new)
    person.type("sh -c 'echo first line; sleep 0.2; exit 3'")
    assert page.form.editors["command"].text().startswith("sh -c")
    person.key(Qt.Key.Key_Return, CTRL)
    qtbot.waitUntil(
        lambda: any(job.status == "failed" for job in window.state.snapshot.jobs),
        timeout=PATIENCE_MS,
    )
    qtbot.waitUntil(lambda: "first line" in page.details.log.toPlainText(), timeout=PATIENCE_MS)
    assert "exit" in page.details.facts.toPlainText()
    page.table.setFocus()
    person.key(Qt.Key.Key_R, CTRL)
    qtbot.waitUntil(
        lambda: [job.status for job in window.state.snapshot.jobs] == ["failed", "failed"],
        timeout=PATIENCE_MS,
    )
    person.click(window.rail.buttons["dashboard"])
    file = tmp_path / "history.csv"
    window.dashboard.save(str(file))
    qtbot.waitUntil(file.exists, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: bool(window.toasts.toasts), timeout=PATIENCE_MS)
    with file.open() as lines:
        assert len(list(csv.reader(lines))) > 1
