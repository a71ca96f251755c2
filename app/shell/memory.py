"""Remember where the window was, what it showed, and how wide its columns were."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QRect, QSettings
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHeaderView, QTableView, QTreeView, QWidget

from gpudeck.app.shell.window import PAGES, MainWindow
from gpudeck.scheduler.protocol import paths


class WindowMemory:
    """Save the window's state to a file when it is closed, and restore it when it is opened."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window
        self._store = QSettings(str(paths.home() / "window.ini"), QSettings.Format.IniFormat)
        window.page_made.connect(self._restore_columns)

    def first_time(self) -> bool:
        """Report, once, that no window was opened before."""
        if self._store.value("welcomed") is not None:
            return False
        self._store.setValue("welcomed", "yes")
        return True

    def restore(self) -> None:
        """Put the window where it was, but wholly on the screen, with the page it showed."""
        geometry = self._store.value("geometry")
        if isinstance(geometry, QByteArray):
            self._window.restoreGeometry(geometry)
        screen = self._window.screen() or QGuiApplication.primaryScreen()
        room, there = screen.availableGeometry(), self._window.geometry()
        if not room.contains(there):
            self._window.setGeometry(_inside(there, room))
        self._restore_columns(self._window.dashboard)
        if self._store.value("folded") == "yes":
            self._window.fold_strip(True)
        page = self._store.value("page")
        if page in PAGES:
            self._window.show_page(str(page))

    def save(self) -> None:
        """Note the window's present state."""
        self._store.setValue("geometry", self._window.saveGeometry())
        self._store.setValue("page", self._window.shown)
        self._store.setValue("folded", "yes" if self._window.folded else "no")
        for name, header in _headers(self._window).items():
            self._store.setValue(f"columns/{name}", header.saveState())

    def _restore_columns(self, page: QWidget) -> None:
        for name, header in _headers(page).items():
            state = self._store.value(f"columns/{name}")
            if isinstance(state, QByteArray):
                header.restoreState(state)


def _inside(there: QRect, room: QRect) -> QRect:
    """Return a rectangle of the same size, or smaller, that lies within `room`."""
    size = there.size().boundedTo(room.size())
    left = min(max(there.left(), room.left()), room.right() + 1 - size.width())
    top = min(max(there.top(), room.top()), room.bottom() + 1 - size.height())
    return QRect(left, top, size.width(), size.height())


def _headers(widget: QWidget) -> dict[str, QHeaderView]:
    """Return the headings of the tables and trees in a widget, by their names in English."""
    tables = {
        view.objectName(): view.horizontalHeader() for view in widget.findChildren(QTableView)
    }
    trees = {view.objectName(): view.header() for view in widget.findChildren(QTreeView)}
    return {name: header for name, header in (tables | trees).items() if name}
