"""The window on a display: wired to the daemon, remembered, and ended cleanly."""

from __future__ import annotations

import gc
import os
import signal
import socket
from types import FrameType

from PySide6.QtCore import QByteArray, QObject, QSettings, QSocketNotifier, Qt, QTimer
from PySide6.QtWidgets import QApplication

from app import __version__
from app.charts.history import SECONDS
from app.link.link import Link
from app.link.snapshots import SnapshotFeed
from app.shell.notifications import Herald, notify
from app.shell.tray import Tray
from app.shell.window import MainWindow
from app.strip.compact import CompactStrip
from app.strip.summary import summarize
from app.widgets import theme
from scheduler.protocol import paths, settings
from scheduler.protocol.errors import UserError

_AHEAD_MS = 2500
"""After the start, once the first charts are there."""


class Desktop(QObject):
    """A window with its feeds. `start` shows it; `stop` ends the feeds and waits for them."""

    def __init__(self, app: QApplication) -> None:
        super().__init__()
        self._app = app
        self._theme = "system"
        self._seen: set[str] = set()
        """What of ours can be seen now."""
        self._herald = Herald(self._notify)
        self._ahead = QTimer(self)
        self._ahead.setSingleShot(True)
        self._ahead.setInterval(_AHEAD_MS)
        self.tray, self.compact = Tray(), CompactStrip()
        self.link, self.feed = Link(), SnapshotFeed(SECONDS)
        self.window = MainWindow(self.link)
        self.feed.arrived.connect(self._take)
        self._ahead.timeout.connect(self._settle)
        self.feed.history.connect(self.window.load_history)
        self.feed.linked.connect(self.window.show_link)
        self.window.themed.connect(self._use_theme)
        self.window.closed.connect(self._remember)
        self.window.seen.connect(lambda seen: self._look("window", seen))
        self.compact.closed.connect(lambda: self._look("strip", False))
        self.window.compacted.connect(self._toggle_compact)
        self.compact.opened.connect(self._raise)
        self.tray.opened.connect(self._raise)
        self.tray.compacted.connect(self._toggle_compact)
        self.tray.quitted.connect(self.window.close)
        app.styleHints().colorSchemeChanged.connect(lambda _: self._use_theme(self._theme))

    def start(self) -> None:
        """Show the window where it was, and connect."""
        try:
            self._use_theme(settings.load().theme)
        except UserError as e:
            self._use_theme("system")
            self.window.status.show_message(str(e))
        geometry = _store().value("geometry")
        if isinstance(geometry, QByteArray):
            self.window.restoreGeometry(geometry)
        self.window.show()
        self._ahead.start()
        self.tray.start()
        self.feed.start()

    def greet(self) -> None:
        """Show the first page to who opens the window for the first time."""
        if _store().value("welcomed") is None:
            _store().setValue("welcomed", __version__)
            self.window.show_welcome()

    def stop(self) -> None:
        self._ahead.stop()
        gc.enable()
        gc.unfreeze()
        self.window.hide()
        self.compact.close()
        self.tray.stop()
        self.feed.stop()
        self.link.stop()

    def _take(self) -> None:
        if (snapshot := self.feed.take()) is not None:
            self.window.show_snapshot(snapshot)
            self._herald.hear(snapshot)
            now = summarize(snapshot)
            self.tray.show_summary(now)
            self.compact.show_summary(now)

    def _settle(self) -> None:
        """What is better done before somebody waits for it."""
        gc.enable()
        _ = self.window.jobs  # it takes longest to make
        gc.collect()
        gc.freeze()  # what is there now stays: to look through it again and again would hold up the window for 40 ms each time

    def _use_theme(self, name: str) -> None:
        self._theme = name
        theme.apply(
            self._app,
            "dark"
            if name == "dark"
            else "light"
            if name == "light"
            else theme.system_scheme(self._app),
        )

    def _notify(self, title: str, text: str) -> None:
        if not notify(title, text):
            self.tray.notify(title, text)

    def _toggle_compact(self) -> None:
        if self.compact.isVisible():
            self.compact.close()
        else:
            self.compact.show()
            self._look("strip", True)

    def _look(self, what: str, seen: bool) -> None:
        """The devices are read fast while the window or the strip can be seen."""
        self._seen = self._seen | {what} if seen else self._seen - {what}
        self.feed.look(bool(self._seen))

    def _raise(self) -> None:
        """Bring the window before the others."""
        self.window.setWindowState(self.window.windowState() & ~Qt.WindowState.WindowMinimized)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()

    def _remember(self) -> None:
        _store().setValue("geometry", self.window.saveGeometry())


def open_window() -> int:
    """Open the window and stay until it is closed. Returns the exit status."""
    scale()
    app = theme.application()
    app.setApplicationName("gpudeck")
    app.setApplicationDisplayName("GPU Deck")
    paths.ensure(paths.home())
    desktop = Desktop(app)
    signals = _Signals(desktop.window)
    desktop.greet()
    desktop.start()
    try:
        return app.exec()
    finally:
        signals.close()
        desktop.stop()


def scale() -> None:
    """Make everything as large as the settings ask for: Qt reads it when the application is made."""
    try:
        wanted = settings.load().scale
    except UserError:
        return  # told when the window is shown
    if wanted != 1.0:
        os.environ.setdefault("QT_SCALE_FACTOR", f"{wanted:g}")


class _Signals:
    """SIGINT and SIGTERM close the window. Python runs its handlers only when it runs at all, so a byte on a socket wakes it."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):
            end.setblocking(False)
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read)
        self._notifier.activated.connect(lambda: self._read.recv(64))
        self._old_fd = signal.set_wakeup_fd(self._write.fileno())
        self._old = {
            number: signal.signal(number, self._close_window)
            for number in (signal.SIGINT, signal.SIGTERM)
        }

    def close(self) -> None:
        """As it was before."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._notifier.setEnabled(False)
        self._read.close()
        self._write.close()

    def _close_window(self, number: int, frame: FrameType | None) -> None:
        self._window.close()


def _store() -> QSettings:
    return QSettings(str(paths.home() / "window.ini"), QSettings.Format.IniFormat)
