"""The palette, the sheet of shortcuts and the manual, by keys and mouse."""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtTest import QTest

from gpudeck.app.assistant.requests import Ask
from gpudeck.app.settings.form import SETTINGS
from gpudeck.app.shell.palette_model import PaletteEntry, rank
from gpudeck.app.shell.sheets import shortcut_groups
from gpudeck.app.shell.window import PAGES
from gpudeck.app.widgets.action_table import ACTIONS, action_info
from gpudeck.scheduler.verbs.control import Configure
from tests.gui import snapshots
from tests.gui.conftest import Fed

CTRL = Qt.KeyboardModifier.ControlModifier


def open_palette(fed: Fed, text: str) -> list[PaletteEntry]:
    QTest.keyClick(fed.window, Qt.Key.Key_K, CTRL)
    palette = fed.window.commands.palette
    assert palette.isVisible() and palette.box.hasFocus()
    QTest.keyClicks(palette.box, text)
    fed.settle()
    return palette.entries()


def press(fed: Fed, key: Qt.Key) -> None:
    QTest.keyClick(fed.window.commands.palette.box, key)
    fed.settle()


@pytest.fixture
def window(fed: Fed):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.activateWindow()
    fed.settle()
    return fed.window


def test_pages_jobs_actions_and_settings_are_found_and_run(fed, window):
    assert open_palette(fed, "workl")[0].title == "Workloads"
    press(fed, Qt.Key.Key_Return)
    assert window.pages.currentWidget() is window.workloads
    assert not window.commands.palette.isVisible()

    assert open_palette(fed, "8")[0].title.startswith("8 · ")
    press(fed, Qt.Key.Key_Return)
    assert window.pages.currentWidget() is window.jobs
    assert window.jobs.details.title.text().startswith("Job 8")

    assert open_palette(fed, "new job")[0].title == "New job"
    press(fed, Qt.Key.Key_Return)
    assert window.jobs.form.isVisible()

    title = next(s for s in SETTINGS if s.name == "quiet_hours").title
    assert title in [entry.title for entry in open_palette(fed, title)]
    while window.commands.palette.list.currentItem().text() != title:
        press(fed, Qt.Key.Key_Down)
    press(fed, Qt.Key.Key_Return)
    assert window.pages.currentWidget() is window.settings
    assert window.settings.rows["quiet_hours"].isAncestorOf(fed.app.focusWidget())

    assert open_palette(fed, "dark theme")[0].title == "Use the dark theme"
    press(fed, Qt.Key.Key_Return)
    assert Configure({"theme": "dark"}) in fed.asked


def test_what_was_typed_can_be_asked_and_is_always_offered(fed, window):
    entries = open_palette(fed, "why is the gpu hot?")
    assert entries[-1].kind == "Ask"
    press(fed, Qt.Key.Key_Up)  # from the first to the last
    press(fed, Qt.Key.Key_Return)
    assert window.pages.currentWidget() is window.assistant
    (asked,) = [request for request in fed.asked if isinstance(request, Ask)]
    assert asked.text == "why is the gpu hot?"


def test_jobs_of_long_ago_are_found_by_the_daemon(fed, window, qtbot):
    open_palette(fed, "ancient")
    palette = window.commands.palette
    qtbot.waitUntil(lambda: any(find.search.text == "ancient" for find in fed.finds))
    old = snapshots.job(3, snapshots.Done(1.0, 2.0), name="ancient run")
    find = next(f for f in fed.finds if f.search.text == "ancient")
    fed.reply(find, ((old,), None))
    fed.settle()
    assert palette.entries()[0].title == "3 · ancient run"


def test_esc_and_a_click_elsewhere_leave_the_palette_where_the_focus_was(fed, window):
    window.show_page("jobs")
    window.jobs.table.setFocus()
    open_palette(fed, "x")
    press(fed, Qt.Key.Key_Escape)
    assert window.jobs.table.hasFocus() and not window.commands.palette.isVisible()
    open_palette(fed, "")
    QTest.keyClick(window, Qt.Key.Key_K, CTRL)
    assert not window.commands.palette.isVisible()


def test_the_palette_never_leaves_the_window(fed, window):
    window.resize(window.minimumSize())
    open_palette(fed, "e")
    assert window.rect().contains(window.commands.palette.geometry())


def test_best_matches_come_first():
    def entry(title: str, words: str = "") -> PaletteEntry:
        return PaletteEntry("Action", title, lambda: None, words=words)

    all_of = [entry("Save a report", "pdf"), entry("New job"), entry("Run the job again")]
    assert [e.title for e in rank(all_of, "job")] == ["New job", "Run the job again"]
    assert [e.title for e in rank(all_of, "job ru")] == ["Run the job again"]
    assert [e.title for e in rank(all_of, "pdf")] == ["Save a report"]
    assert [e.title for e in rank(all_of, "nwjb")] == ["New job"]
    assert rank(all_of, "zebra") == []
    assert rank(all_of, " ") == all_of


def test_each_action_of_the_table_does_something(fed, window):
    for name in (*PAGES, "code"):
        window.show_page(name)
    window.show_device(snapshots.gpu(0).id)
    bound = {action.objectName() for action in window.findChildren(QAction)}
    bound |= {action.objectName() for action in window.actions()}
    assert {info.name for info in ACTIONS} <= bound
    for info in ACTIONS:
        owner = getattr(window, info.page) if info.page else window
        (action,) = [a for a in owner.actions() if a.objectName() == info.name]
        assert action.text() == info.title
        assert [s.toString() for s in action.shortcuts()] == [
            QKeySequence(keys).toString() for keys in info.keys
        ]


def test_no_two_shortcuts_of_a_page_are_the_same():
    for page in {info.page for info in ACTIONS}:
        keys = [key for info in ACTIONS if info.page in ("", page) for key in info.keys]
        assert len(keys) == len(set(keys)), page


def test_the_sheet_lists_every_shortcut(fed, window):
    window.show_page("jobs")
    QTest.keyClick(window, Qt.Key.Key_Question)
    sheet = window.commands.shortcut_sheet
    assert sheet.isVisible()
    listed = " ".join(k for rows in shortcut_groups(PAGES).values() for _, k in rows)
    for shortcut in window.findChildren(QShortcut):
        assert shortcut.key().toString() in listed.replace("Return", "Return Enter Ctrl+Enter")
    QTest.keyClick(sheet, Qt.Key.Key_Escape)
    assert not sheet.isVisible()


def test_a_question_mark_can_be_typed(fed, window):
    window.show_page("jobs")
    window.jobs.filter.setFocus()
    QTest.keyClicks(window.jobs.filter, "what?")
    assert window.jobs.filter.text() == "what?"
    assert "shortcut_sheet" not in vars(window.commands)


@pytest.mark.parametrize(("page", "heading"), [("jobs", "queue"), ("alerts", "alert")])
def test_f1_shows_the_manual_of_the_page(fed, window, page, heading):
    window.show_page(page)
    QTest.keyClick(window, Qt.Key.Key_F1)
    manual = window.commands.manual
    assert manual.isVisible()
    first = manual.text.toPlainText().strip().splitlines()[0]
    assert re.search(heading, first, re.I)
    assert manual.choice.currentText().casefold() in first.casefold()
    QTest.keyClick(manual, Qt.Key.Key_Escape)
    assert not manual.isVisible()


def test_tooltips_name_the_keys_of_the_table():
    from gpudeck.app.widgets.action_table import hint

    assert hint("job.new") == "New job (Ctrl+N)"
    assert hint("jobs.pause", "Start no more jobs") == "Start no more jobs"
    assert action_info("job.new").page == "jobs"
