"""Show the main window: the rail, the strip of devices, a page and the status line."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QHideEvent,
    QKeySequence,
    QResizeEvent,
    QShortcut,
    QShowEvent,
)
from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.series import Floats
from gpudeck.app.dashboard.page import DashboardPage
from gpudeck.app.format.free_devices import free_devices
from gpudeck.app.language.texts import tr
from gpudeck.app.link.link import Link
from gpudeck.app.link.notice import Notice
from gpudeck.app.shell.banner import Banner
from gpudeck.app.shell.commands import Commands
from gpudeck.app.shell.header import Header
from gpudeck.app.shell.page_titles import page_key, title
from gpudeck.app.shell.rail import Rail
from gpudeck.app.shell.status_line import StatusLine
from gpudeck.app.state import LinkStatus, State
from gpudeck.app.strip.strip import Strip
from gpudeck.app.strip.summary import unacknowledged
from gpudeck.app.strip.tile_model import tiles
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    REACHES_EDGE,
    EdgeScrollArea,
    PageStack,
    Stretch,
    column,
    delay,
    grid_layout,
)
from gpudeck.app.widgets.toast import ToastStack
from gpudeck.scheduler.protocol.settings import Settings as SchedulerSettings
from gpudeck.scheduler.protocol.snapshot import Columns, Snapshot
from gpudeck.scheduler.verbs.control import Configure

if TYPE_CHECKING:  # a page is imported when it is first shown
    from gpudeck.app.alerts.page import AlertsPage
    from gpudeck.app.assistant.page import AssistantPage
    from gpudeck.app.cleanup.page import CleanupPage
    from gpudeck.app.code.page import CodePage
    from gpudeck.app.devices.page import DevicePage
    from gpudeck.app.hosts.page import HostsPage
    from gpudeck.app.jobs.page import JobsPage
    from gpudeck.app.models.offer import ModelOffer
    from gpudeck.app.models.page import ModelsPage
    from gpudeck.app.processes.page import ProcessesPage
    from gpudeck.app.settings.page import SettingsPage
    from gpudeck.app.shell.welcome import Welcome
    from gpudeck.app.workloads.page import WorkloadsPage

P = TypeVar("P", bound=QWidget)


class Page(Protocol):
    """Describe what the window needs of the page that is shown."""

    def refresh(self) -> None: ...
    def setFocus(self) -> None: ...


PAGES = (
    "dashboard",
    "jobs",
    "workloads",
    "assistant",
    "models",
    "alerts",
    "processes",
    "hosts",
    "cleanup",
    "settings",
)
_PART_OF = {"code": "workloads"}
"""Pages without a button in the rail, and the page that leads to them."""
_REPAINT_MS = 100
"""Milliseconds between two repaints, however fast snapshots come."""
SMALLEST = QSize(800, 560)
"""The least size; less on a smaller screen. A page that needs more room is scrolled."""
LEAST_WIDTH = 480
"""The least width on a screen of which half is narrower than SMALLEST."""


_LOAD = (60.0, 40)
"""Seconds of the sparklines in the tiles, and their points."""


class MainWindow(QWidget):
    """Show the pages. Snapshots come by method calls, and requests leave through the link."""

    themed = Signal(str)
    """The theme of the settings changed: system, light or dark."""
    closed = Signal()
    page_made = Signal(QWidget)
    """A page is shown for the first time."""
    compacted = Signal()
    """The user wants the compact strip shown or hidden."""
    visibility_changed = Signal(bool)
    """The window was shown or restored (True), hidden or minimised (False)."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.state, self.link = State(), link
        self.rail, self.strip, self.status = Rail(PAGES), Strip(), StatusLine()
        self.header = Header(self.strip)
        self.pages = PageStack()
        self.folded = False
        """The user collapsed the strip, which is always collapsed away from the dashboard."""
        self.banner = Banner()
        self._theme, self.shown = "", "dashboard"
        self._dirty = self._visible = False
        self.pace = delay(self, _REPAINT_MS, self._catch_up)
        self._lay_out()
        self.rail.chosen.connect(self.show_page)
        self.strip.opened.connect(self.show_device)
        self.strip.job_wanted.connect(self._begin_job)
        self.strip.overviewed.connect(self._show_devices)
        self.strip.charted.connect(self.dashboard.show_only)
        self.dashboard.device_chosen.connect(self.show_device)
        self.dashboard.bar.folded.connect(self.fold_strip)
        link.ordered.connect(lambda: self.status.show_message(""))
        link.failed.connect(self.status.show_message)
        self.toasts = ToastStack(self, self.status.height() + theme.M)
        link.announced.connect(self._show_notice)
        link.withdrawn.connect(self.toasts.withdraw)
        self.status.compact.clicked.connect(self.compacted)
        self.commands = Commands(self, PAGES)
        for i, name in enumerate(PAGES, 1):
            QShortcut(QKeySequence(page_key(i)), self, lambda n=name: self.show_page(n))
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
        from gpudeck.app.jobs.page import JobsPage

        return self._add_page("jobs", JobsPage(self.state, self.link))

    @cached_property
    def workloads(self) -> WorkloadsPage:
        from gpudeck.app.workloads.page import WorkloadsPage

        page = self._add_page("workloads", WorkloadsPage(self.state, self.link))
        page.code_opened.connect(lambda: self.show_page("code"))
        page.model_tried.connect(self._try_model)
        return page

    @cached_property
    def code(self) -> CodePage:
        from gpudeck.app.code.page import CodePage

        page = self._add_page("code", CodePage(self.link))
        page.left.connect(lambda: self.show_page("workloads"))
        return page

    @cached_property
    def assistant(self) -> AssistantPage:
        from gpudeck.app.assistant.page import AssistantPage

        page = self._add_page("assistant", AssistantPage(self.state, self.link, self.offer))
        page.models_opened.connect(lambda: self.show_page("models"))
        page.code_opened.connect(self._show_code)
        page.page_opened.connect(self.commands.open_page)
        return page

    @cached_property
    def offer(self) -> ModelOffer:
        """Return the model that is offered to a user who has none."""
        from gpudeck.app.models.offer import ModelOffer

        return ModelOffer(self.state, self.link)

    @cached_property
    def models(self) -> ModelsPage:
        page = self._add_page("models", self.assistant.models)
        page.left.connect(lambda: self.show_page("assistant"))
        return page

    @cached_property
    def alerts(self) -> AlertsPage:
        from gpudeck.app.alerts.page import AlertsPage

        page = self._add_page("alerts", AlertsPage(self.state, self.link))
        page.job_chosen.connect(self._show_job)
        page.device_chosen.connect(self.show_device)
        return page

    @cached_property
    def processes(self) -> ProcessesPage:
        from gpudeck.app.processes.page import ProcessesPage

        page = self._add_page("processes", ProcessesPage(self.state, self.link))
        page.job_chosen.connect(self._show_job)
        return page

    @cached_property
    def hosts(self) -> HostsPage:
        from gpudeck.app.hosts.page import HostsPage

        page = self._add_page("hosts", HostsPage(self.state, self.link))
        page.device_chosen.connect(self.show_device)
        return page

    @cached_property
    def settings(self) -> SettingsPage:
        from gpudeck.app.settings.page import SettingsPage

        page = self._add_page("settings", SettingsPage(self.state, self.link))
        page.configured.connect(self._take_settings)
        page.cleaning.connect(lambda: self.show_page("cleanup"))
        return page

    @cached_property
    def device(self) -> DevicePage:
        from gpudeck.app.devices.page import DevicePage

        page = self._add_page("device", DevicePage(self.state, self.link))
        page.titled.connect(self.header.show_title)
        page.stepped.connect(self.strip.mark_shown)
        page.left.connect(lambda: self.show_page("dashboard"))
        return page

    @cached_property
    def cleanup(self) -> CleanupPage:
        from gpudeck.app.cleanup.page import CleanupPage

        return self._add_page("cleanup", CleanupPage(self.link))

    @cached_property
    def welcome(self) -> Welcome:
        """Return the page of a window that is opened for the first time."""
        from gpudeck.app.shell.welcome import Welcome

        page = Welcome(self.state, self.offer)
        page.setAccessibleName(tr("Welcome"))
        page.chosen.connect(self.show_page)
        page.source_wanted.connect(
            lambda source: self.link.send(self, Configure({"source": source}), self._take_settings)
        )
        self.pages.addWidget(page)
        return page

    def _add_page(self, name: str, page: P) -> P:
        page.setAccessibleName(title(name))
        self.pages.addWidget(page)
        self.page_made.emit(page)
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
        """Show one of PAGES, or a page that one of them leads to."""
        self.rail.show_chosen(_PART_OF.get(name, name))
        self.shown = name
        self.header.show_title(title(name))
        self._show(getattr(self, name))
        self._page.setFocus()
        self.refresh()

    def show_device(self, device: str) -> None:
        """Show the page of one device."""
        self.rail.show_chosen("dashboard")
        self._show(self.device, device)
        self.device.show_device(device)
        self.device.setFocus()

    def _show_devices(self, host: str) -> None:
        """Show the devices of a machine on the dashboard; those of all if it is empty."""
        self.show_page("dashboard")
        self.fold_strip(False)
        self.strip.show_machine(host)

    def show_welcome(self) -> None:
        """Show the welcome page."""
        self.rail.show_chosen("welcome")
        self.header.show_title(title("welcome"))
        self._show(self.welcome)
        self.welcome.steps["dashboard"].setFocus()
        self.refresh()

    def fold_strip(self, folded: bool) -> None:
        """Collapse the strip on the dashboard too, or show it there again."""
        self.folded = folded
        self.dashboard.bar.show_folded(folded)
        if (page := self.pages.currentWidget()) is not None:
            self._show(page, self.strip.chips.shown)

    def _show(self, page: QWidget, device: str = "") -> None:
        """Show a page, with the strip collapsed unless the page is about the devices.

        Args:
            device: The one that the page is about; empty if it is about no single one.
        """
        self.strip.mark_shown(device)
        self.pages.setCurrentWidget(page)
        self._area.leave_margin(wanted=not page.property(REACHES_EDGE))
        about_devices = page is self.dashboard
        self.header.collapse(self.folded or not about_devices)

    def refresh(self) -> None:
        """Draw the strip, the current page and the status line. Hidden pages cost nothing."""
        if self.state.snapshot is not None:
            shown = tiles(self.state.snapshot)
            self.strip.show_tiles(shown, self.state.snapshot.settings.telemetry_hz, self._load)
            self.header.show_tiles(shown)
            self.header.show_free(free_devices(self.state.snapshot))
        self.rail.buttons["alerts"].show_badge(unacknowledged(self.state.snapshot))
        self._page.refresh()
        self.status.refresh(self.state)
        self.banner.show_notices(self.state.snapshot.notices if self.state.snapshot else ())

    def _load(self, device: str) -> Floats:
        """Return the utilisation of a device in the last minute."""
        return self.state.history.recent(device, "util", *_LOAD)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.rail.fit(self.width(), self.height())
        super().resizeEvent(event)

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
        made = self.toasts.show_text(notice.text, [*notice.actions], notice.seconds, notice.file)
        made.notice = notice

    def _show_job(self, number: int) -> None:
        self.show_page("jobs")
        self.jobs.show_job(number)

    def _begin_job(self, device: str) -> None:
        """Open the form of a job for this device."""
        self.show_page("jobs")
        self.jobs.begin_job(device)

    def _try_model(self, folder: str) -> None:
        self.show_page("models")
        self.models.serve_folder(folder)

    def _show_code(self, path: str) -> None:
        self.show_page("code")
        self.code.open_path(path)

    def _lay_out(self) -> None:
        self.setWindowTitle("GPU Deck")
        room = self.screen().availableSize()
        # half of a screen is enough: a window that needs more cannot be snapped to one side
        half = QSize(max(room.width() // 2, LEAST_WIDTH), room.height())
        self.setMinimumSize(SMALLEST.boundedTo(half).boundedTo(room))
        self.resize(QSize(1280, 800).boundedTo(room))
        above = column(self.banner, self.header, margins=(0, 0, theme.M, 0))
        self._area = EdgeScrollArea(self.pages)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        right = column(above, Stretch(self._area), margins=(theme.M, theme.M, 0, theme.S))
        layout = grid_layout(self, 0, 0)
        layout.addWidget(self.rail, 0, 0, 2, 1)
        layout.addLayout(right, 0, 1)
        layout.addWidget(self.status, 1, 1)
