"""Show the main window: the rail, the strip of devices, a page and the status line."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from PySide6.QtCore import QEvent, QSize, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QHideEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QGridLayout, QStackedWidget, QVBoxLayout, QWidget

from app.dashboard.page import DashboardPage
from app.link.link import Link
from app.link.notice import Notice
from app.shell.commands import Commands
from app.shell.rail import Rail
from app.shell.status_line import StatusLine
from app.state import LinkStatus, State
from app.strip.strip import Strip
from app.strip.summary import unacknowledged
from app.strip.tile_model import tiles
from app.widgets import theme
from app.widgets.toast import ToastStack
from scheduler.protocol.settings import Settings as SchedulerSettings
from scheduler.protocol.snapshot import Columns, Snapshot

if TYPE_CHECKING:  # a page is imported when it is first shown
    from app.alerts.page import AlertsPage
    from app.assistant.page import AssistantPage
    from app.cleanup.page import CleanupPage
    from app.devices.page import DevicePage
    from app.jobs.page import JobsPage
    from app.processes.page import ProcessesPage
    from app.settings.page import SettingsPage
    from app.shell.welcome import Welcome
    from app.workloads.page import WorkloadsPage

P = TypeVar("P", bound=QWidget)


class Page(Protocol):
    """Describe what the window needs of the page that is shown."""

    def refresh(self) -> None: ...
    def setFocus(self) -> None: ...


PAGES = ("dashboard", "jobs", "workloads", "assistant", "alerts", "processes", "settings")
_REPAINT_MS = 100
"""Milliseconds between two repaints, however fast snapshots come."""
SMALLEST = QSize(1024, 680)


class MainWindow(QWidget):
    """Show the pages. Snapshots come by method calls, and requests leave through the link."""

    themed = Signal(str)
    """The theme of the settings changed: system, light or dark."""
    closed = Signal()
    compacted = Signal()
    """The user wants the compact strip shown or hidden."""
    visibility_changed = Signal(bool)
    """The window was shown or restored (True), hidden or minimised (False)."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.state, self.link = State(), link
        self.rail, self.strip, self.status = Rail(PAGES), Strip(), StatusLine()
        self.pages = QStackedWidget()
        self._theme = ""
        self._dirty = self._visible = False
        self.pace = QTimer(self)
        self.pace.setSingleShot(True)
        self.pace.setInterval(_REPAINT_MS)
        self.pace.timeout.connect(self._catch_up)
        self._lay_out()
        self.rail.chosen.connect(self.show_page)
        self.strip.opened.connect(self.show_device)
        self.strip.charted.connect(self.dashboard.show_only)
        link.ordered.connect(lambda: self.status.show_message(""))
        link.failed.connect(self.status.show_message)
        self.toasts = ToastStack(self, self.status.height() + theme.M)
        link.announced.connect(self._show_notice)
        self.status.compact.clicked.connect(self.compacted)
        self.commands = Commands(self, PAGES)
        for i, name in enumerate(PAGES, 1):
            QShortcut(QKeySequence(f"Ctrl+{i}"), self, lambda n=name: self.show_page(n))
        self.show_page("dashboard")
        self.status.refresh(self.state)

    # The pages: each is made when it is first shown, so that the window opens sooner

    @cached_property
    def dashboard(self) -> DashboardPage:
        page = self._add_page("dashboard", DashboardPage(self.state, self.link))
        page.job_chosen.connect(self._show_job)
        return page

    @cached_property
    def jobs(self) -> JobsPage:
        from app.jobs.page import JobsPage

        return self._add_page("jobs", JobsPage(self.state, self.link))

    @cached_property
    def workloads(self) -> WorkloadsPage:
        from app.workloads.page import WorkloadsPage

        return self._add_page("workloads", WorkloadsPage(self.state, self.link))

    @cached_property
    def assistant(self) -> AssistantPage:
        from app.assistant.page import AssistantPage

        return self._add_page("assistant", AssistantPage(self.state, self.link))

    @cached_property
    def alerts(self) -> AlertsPage:
        from app.alerts.page import AlertsPage

        page = self._add_page("alerts", AlertsPage(self.state, self.link))
        page.job_chosen.connect(self._show_job)
        page.device_chosen.connect(self.show_device)
        return page

    @cached_property
    def processes(self) -> ProcessesPage:
        from app.processes.page import ProcessesPage

        return self._add_page("processes", ProcessesPage(self.state, self.link))

    @cached_property
    def settings(self) -> SettingsPage:
        from app.settings.page import SettingsPage

        page = self._add_page("settings", SettingsPage(self.state, self.link))
        page.configured.connect(self._take_settings)
        page.cleaning.connect(self.show_clean)
        return page

    @cached_property
    def device(self) -> DevicePage:
        from app.devices.page import DevicePage

        page = self._add_page("device", DevicePage(self.state, self.link))
        page.left.connect(lambda: self.show_page("dashboard"))
        return page

    @cached_property
    def clean(self) -> CleanupPage:
        from app.cleanup.page import CleanupPage

        page = self._add_page("clean up", CleanupPage(self.link))
        page.left.connect(lambda: self.show_page("settings"))
        return page

    @cached_property
    def welcome(self) -> Welcome:
        """Return the page of a window that is opened for the first time."""
        from app.shell.welcome import Welcome

        page = Welcome(self.state)
        page.setAccessibleName("Welcome")
        page.chosen.connect(self.show_page)
        self.pages.addWidget(page)
        return page

    def _add_page(self, name: str, page: P) -> P:
        page.setAccessibleName(name.capitalize())
        self.pages.addWidget(page)
        return page

    def load_history(self, device: str, history: Columns) -> None:
        """Take the history of a device."""
        self.state.history.load(device, history.times, history.columns)
        self._refresh_soon()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot, which is drawn within a tenth of a second."""
        self.state.update(snapshot)
        self._take_settings(snapshot.settings)
        self._refresh_soon()

    def show_link(self, connected: bool, text: str) -> None:
        """Show whether the daemon answers."""
        self.state.link = LinkStatus(connected, text)
        self.status.refresh(self.state)

    def show_page(self, name: str) -> None:
        """Show one of PAGES."""
        self.rail.show_chosen(name)
        self.pages.setCurrentWidget(getattr(self, name))
        self._page.setFocus()
        self.refresh()

    def show_device(self, device: str) -> None:
        """Show the page of one device."""
        self.rail.show_chosen("dashboard")
        self.pages.setCurrentWidget(self.device)
        self.device.show_device(device)
        self.device.setFocus()

    def show_clean(self) -> None:
        """Show the clean-up page."""
        self.rail.show_chosen("settings")
        self.pages.setCurrentWidget(self.clean)
        self.clean.setFocus()

    def show_welcome(self) -> None:
        """Show the welcome page."""
        self.rail.show_chosen("dashboard")
        self.pages.setCurrentWidget(self.welcome)
        self.welcome.steps["dashboard"].setFocus()
        self.refresh()

    def refresh(self) -> None:
        """Draw the strip, the current page and the status line. Hidden pages cost nothing."""
        if self.state.snapshot is not None:
            self.strip.show_tiles(
                tiles(self.state.snapshot), self.state.snapshot.settings.telemetry_hz
            )
        self.rail.buttons["alerts"].show_badge(unacknowledged(self.state.snapshot))
        self._page.refresh()
        self.status.refresh(self.state)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self.refresh()
        elif event.type() == QEvent.Type.WindowStateChange:
            self._set_visible(self.isVisible() and not self.isMinimized())
        super().changeEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        self._set_visible(not self.isMinimized())
        super().showEvent(event)

    def hideEvent(self, event: QHideEvent) -> None:
        self._set_visible(False)
        super().hideEvent(event)

    def _set_visible(self, visible: bool) -> None:
        """Draw what came while the window was not visible."""
        self._visible = visible
        self._catch_up()
        self.visibility_changed.emit(visible)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.pace.stop()
        self.closed.emit()
        super().closeEvent(event)

    @property
    def _page(self) -> Page:
        return cast("Page", self.pages.currentWidget())  # only pages are added

    def _take_settings(self, settings: SchedulerSettings) -> None:
        """Change the theme at once if the settings name another one."""
        if settings.theme != self._theme:
            self._theme = settings.theme
            self.themed.emit(self._theme)

    def _refresh_soon(self) -> None:
        if self.pace.isActive() or not self._visible:
            self._dirty = True
        else:
            self.refresh()
            self.pace.start()

    def _catch_up(self) -> None:
        if self._dirty and self._visible:
            self._dirty = False
            self.refresh()
            self.pace.start()

    def _show_notice(self, notice: Notice) -> None:
        self.toasts.show_text(notice.text, [*notice.actions], notice.seconds, notice.file)

    def _show_job(self, number: int) -> None:
        self.show_page("jobs")
        self.jobs.show_job(number)

    def _lay_out(self) -> None:
        self.setWindowTitle("GPU Deck")
        self.setMinimumSize(SMALLEST)
        self.resize(1280, 800)
        right = QVBoxLayout()
        right.setContentsMargins(theme.M, theme.M, theme.M, theme.S)
        right.setSpacing(theme.S)
        right.addWidget(self.strip)
        right.addWidget(self.pages, 1)
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.rail, 0, 0, 2, 1)
        layout.addLayout(right, 0, 1)
        layout.addWidget(self.status, 1, 1)
