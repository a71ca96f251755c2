"""What the window remembers between two starts, and how it follows the desktop's light or dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QRect, QSettings, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from gpudeck.app.shell.desktop import Desktop
from gpudeck.app.shell.memory import WindowMemory
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.support import state_folder


def reopened(qapp: QApplication) -> Iterator[Fed]:
    """A second window with what the first one left."""
    made = Fed(qapp)
    made.window.hide()
    WindowMemory(made.window).restore()
    made.window.show()
    made.feed(snapshots.cpu_snapshot())
    yield made
    made.window.close()
    made.window.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def test_page_size_columns_and_strip_are_as_they_were(fed: Fed, qapp, tmp_path: Path) -> None:
    with state_folder(tmp_path / "home"):
        memory = WindowMemory(fed.window)
        fed.window.setGeometry(0, 0, 790, 570)  # within the screen of the platform without one
        fed.window.show_page("jobs")
        fed.window.fold_strip(True)
        fed.feed(snapshots.cpu_snapshot())
        header = fed.window.jobs.table.horizontalHeader()
        header.resizeSection(1, 147)
        memory.save()
        for again in reopened(qapp):
            assert again.window.pages.currentWidget() is again.window.jobs
            assert again.window.size() == fed.window.size()
            assert again.window.folded
            assert again.window.jobs.table.horizontalHeader().sectionSize(1) == 147


def test_a_window_of_a_larger_screen_opens_wholly_on_this_one(
    fed: Fed, qapp, tmp_path: Path
) -> None:
    with state_folder(tmp_path / "home"):
        memory = WindowMemory(fed.window)
        fed.window.setGeometry(QRect(3000, 2000, 2400, 1600))
        memory.save()
        room = QGuiApplication.primaryScreen().availableGeometry()
        for again in reopened(qapp):
            there = again.window.geometry()
            assert there.width() <= room.width() and there.height() <= room.height()
            assert room.contains(there.center()) and there.top() >= 0 and there.left() >= 0


@pytest.mark.parametrize("junk", ["no such page", "code"])
def test_what_no_window_has_written_is_ignored(fed: Fed, tmp_path: Path, junk: str) -> None:
    with state_folder(tmp_path / "home") as home:
        store = QSettings(str(home / "window.ini"), QSettings.Format.IniFormat)
        store.setValue("page", junk)
        store.setValue("geometry", "nonsense")
        store.setValue("columns/Jobs", "nonsense")
        store.sync()
        WindowMemory(fed.window).restore()
        assert fed.window.pages.currentWidget() is fed.window.dashboard


def test_light_and_dark_of_the_desktop_are_followed_unless_one_is_chosen(
    qapp: QApplication, clean_qt: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform without a screen has no scheme of its own: only that answer is replaced."""
    desktop_has = ["light"]
    monkeypatch.setattr(theme, "system_scheme", lambda app: desktop_has[0])

    def switch(scheme: str) -> str:
        desktop_has[0] = scheme
        wanted = Qt.ColorScheme.Dark if scheme == "dark" else Qt.ColorScheme.Light
        qapp.styleHints().colorSchemeChanged.emit(wanted)
        return desktop.window.grab().toImage().pixelColor(2, 300).name()

    with state_folder(tmp_path / "home"):
        settings.save(Settings(model_folder=TEMPLATE))
        desktop = Desktop(qapp)
        desktop.window.show()
        light = switch("light")
        dark = switch("dark")
        assert (light, dark) == (theme.LIGHT.surface, theme.DARK.surface)
        assert switch("light") == light
        desktop.window.themed.emit("dark")
        assert switch("light") == dark, "the setting is stronger than the desktop"
        desktop.window.themed.emit("system")
        assert switch("light") == light
        desktop.window.close()
        desktop.stop()
        desktop.window.deleteLater()
        theme.apply(qapp, "light")
