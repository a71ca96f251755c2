"""Connect the window to the daemon and the desktop, and end everything cleanly."""

from __future__ import annotations

import gc
import locale
import os
import signal
import socket
from types import FrameType

from PySide6.QtCore import (
    QLibraryInfo,
    QLoggingCategory,
    QObject,
    QSocketNotifier,
    Qt,
    QTranslator,
    Signal,
)
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

from gpudeck.app import DESKTOP_ID
from gpudeck.app.charts.history import SECONDS
from gpudeck.app.devices.freeing import free_gpus
from gpudeck.app.format.freeing import gpus_to_free, jobs_on_gpus, suspended_jobs
from gpudeck.app.language import texts
from gpudeck.app.link.link import Link
from gpudeck.app.link.snapshots import SnapshotFeed
from gpudeck.app.shell.memory import WindowMemory
from gpudeck.app.shell.notifications import Notifier, send_notice
from gpudeck.app.shell.tray import Tray
from gpudeck.app.shell.window import MainWindow
from gpudeck.app.strip.compact import CompactStrip
from gpudeck.app.strip.summary import summarize
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import delay
from gpudeck.scheduler.notices.notice import Notice
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.verbs.suspension import ResumeJob, SuspendJob

_PRELOAD_MS = 2500
"""Milliseconds after the start, when the first charts have been drawn."""


class Desktop(QObject):
    """Hold the window, its feed, its link, the tray icon and the compact strip."""

    _unsent = Signal(Notice)

    def __init__(self, app: QApplication) -> None:
        super().__init__()
        self._app = app
        self._theme = "system"
        self._visible: set[str] = set()
        """Which of "window" and "strip" the user can see."""
        self._notifier = Notifier(self._notify)
        self._preload_timer = delay(self, _PRELOAD_MS, self._preload)
        self.tray, self.compact = Tray(), CompactStrip()
        self._unsent.connect(self.tray.notify)
        self.link, self.feed = Link(), SnapshotFeed(SECONDS)
        self.window = MainWindow(self.link)
        self.feed.arrived.connect(self._take)
        self.feed.history.connect(self.window.load_history)
        self.feed.linked.connect(self.window.show_link)
        self.window.themed.connect(self._use_theme)
        self._memory = WindowMemory(self.window)
        self.window.closed.connect(self._memory.save)
        self.window.visibility_changed.connect(lambda on: self._set_visible("window", on))
        self.compact.closed.connect(lambda: self._set_visible("strip", False))
        self.window.compacted.connect(self._toggle_compact)
        self.compact.opened.connect(self._raise)
        self.tray.opened.connect(self._raise)
        self.tray.compacted.connect(self._toggle_compact)
        self.tray.freed.connect(self._free)
        self.tray.suspended.connect(self._suspend)
        self.tray.resumed.connect(self._resume)
        self.tray.quitted.connect(self.window.close)
        app.styleHints().colorSchemeChanged.connect(lambda _: self._use_theme(self._theme))

    def start(self) -> None:
        """Show the window where it was, and connect."""
        try:
            self._use_theme(settings.load().theme)
        except UserError as e:
            self._use_theme("system")
            self.window.status.show_message(str(e))
        self._memory.restore()
        self.window.show()
        self._preload_timer.start()
        self.tray.start()
        self.feed.start()

    def greet(self) -> None:
        """Show the welcome page when a person opens the window for the first time."""
        if self._memory.first_time():
            self.window.show_welcome()

    def stop(self) -> None:
        """End the feed and all requests, and wait for them."""
        self._preload_timer.stop()
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
            self._notifier.update(snapshot, self.window.state.notify)
            now = summarize(snapshot)
            self.tray.show_summary(now)
            found = gpus_to_free(snapshot), jobs_on_gpus(snapshot), suspended_jobs(snapshot)
            self.tray.show_jobs(*map(bool, found))
            self.compact.show_summary(now)

    def _preload(self) -> None:
        """Make the jobs page, which takes longest, and freeze the garbage collector."""
        gc.enable()
        _ = self.window.jobs
        gc.collect()
        gc.freeze()  # visiting all objects again would block the window for 40 ms each time

    def _use_theme(self, name: str) -> None:
        self._theme = name
        schemes: dict[str, theme.Scheme] = {"dark": "dark", "light": "light"}
        theme.apply(self._app, schemes.get(name) or theme.system_scheme(self._app))

    def _notify(self, notice: Notice) -> None:
        send_notice(notice, self._unsent.emit)

    def _free(self) -> None:
        """Keep all GPUs of this machine free for a time."""
        if (snapshot := self.window.state.snapshot) is not None:
            gpus = tuple(gpu.id for gpu in gpus_to_free(snapshot))
            free_gpus(self, self.link, gpus, snapshot)

    def _suspend(self) -> None:
        """Take all jobs of the user off their GPUs."""
        if (snapshot := self.window.state.snapshot) is not None:
            for job in jobs_on_gpus(snapshot):
                self.link.send(self, SuspendJob(job.id))

    def _resume(self) -> None:
        """Have all jobs come back that somebody suspended."""
        if (snapshot := self.window.state.snapshot) is not None:
            for job in suspended_jobs(snapshot):
                self.link.send(self, ResumeJob(job.id))

    def _toggle_compact(self) -> None:
        if self.compact.isVisible():
            self.compact.close()
        else:
            self.compact.show()
            self._set_visible("strip", True)

    def _set_visible(self, part: str, visible: bool) -> None:
        """Have the devices read at the full rate while the window or the strip is visible."""
        if visible:
            self._visible.add(part)
        else:
            self._visible.discard(part)
        self.feed.set_live(bool(self._visible))

    def _raise(self) -> None:
        """Bring the window to the front."""
        self.window.setWindowState(self.window.windowState() & ~Qt.WindowState.WindowMinimized)
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()


def open_window() -> int:
    """Open the window and wait until it is closed. Return the exit status."""
    scale()
    app = theme.application()
    size_text(app)
    translate(app)
    introduce(app)
    paths.ensure(paths.home())
    desktop = Desktop(app)
    signals = _Signals(desktop.window)
    desktop.start()
    desktop.greet()
    try:
        return app.exec()
    finally:
        signals.close()
        desktop.stop()


def introduce(app: QApplication) -> None:
    """Tell the desktop the names and the icon by which it shows the windows."""
    # where `gpudeck desktop install` was not run, portals refuse the name, and Qt would print that
    QLoggingCategory.setFilterRules("qt.qpa.services.warning=false")
    app.setDesktopFileName(DESKTOP_ID)
    app.setApplicationName("gpudeck")
    app.setApplicationDisplayName("GPU Deck")
    app.setWindowIcon(QIcon(str(paths.assets() / "icons" / f"{DESKTOP_ID}.svg")))


def scale() -> None:
    """Apply the size of the settings, which Qt reads when the application is made."""
    try:
        wanted = settings.load().scale
    except UserError:
        return  # `start` shows the error
    if wanted != 1.0:
        os.environ.setdefault("QT_SCALE_FACTOR", f"{wanted:g}")


def size_text(app: QApplication) -> None:
    """Apply the font size of the settings to all widgets that are made from now on."""
    try:
        theme.set_text_size(app, settings.load().font_size)
    except UserError:
        return  # `start` shows the error


def translate(app: QApplication) -> None:
    """Apply the language of the settings to all texts that are made from now on, Qt's included."""
    try:
        texts.use(settings.load().language)
    except UserError:
        texts.use("desktop")  # `start` shows the error
    locale.setlocale(locale.LC_TIME, "C")  # Qt applied the desktop's; `tr_date` names days
    translator = QTranslator(app)
    folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
    if translator.load(f"qtbase_{texts.language()}", folder):
        app.installTranslator(translator)


class _Signals:
    """Close the window on SIGINT and SIGTERM.

    Python runs signal handlers only while it runs itself, so a byte on a socket wakes it.
    """

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
        """Restore the previous handlers."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._notifier.setEnabled(False)
        self._read.close()
        self._write.close()

    def _close_window(self, number: int, frame: FrameType | None) -> None:
        self._window.close()
