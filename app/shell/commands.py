"""Carry out the window's own actions, and connect the palette and the sheets to it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QScrollArea, QWidget

from gpudeck.app.format.freeing import gpus_to_free
from gpudeck.app.jobs.requests import SearchJobs
from gpudeck.app.shell.manual_pages import PAGE_OF
from gpudeck.app.shell.palette import Palette
from gpudeck.app.shell.palette_model import (
    PaletteEntry,
    action_entries,
    best_jobs,
    free_entries,
    job_entries,
    page_entries,
    question_entry,
    rank,
    setting_entries,
)
from gpudeck.app.widgets.action_table import action_info
from gpudeck.app.widgets.actions import bind_actions, find_action
from gpudeck.assistant.query.steps import ShowManual, ShowPage
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.search import NEWEST, Search
from gpudeck.scheduler.verbs.control import Configure

if TYPE_CHECKING:
    from gpudeck.app.shell.sheets import ManualSheet, ShortcutSheet
    from gpudeck.app.shell.window import MainWindow


class Commands(QObject):
    """Offer everything that the window can do by words and keys."""

    def __init__(self, window: MainWindow, pages: tuple[str, ...]) -> None:
        super().__init__(window)
        self._window, self._pages = window, pages
        self._found: dict[str, tuple[Job, ...]] = {}
        """The jobs that the daemon found, by the text that was searched."""
        self.palette = Palette(window, self._entries)
        self.palette.searched.connect(self._search)
        bind_actions(
            window,
            {
                "palette": self.palette.open,
                "shortcuts": self.show_shortcuts,
                "help": self.show_help,
                "compact": window.compacted.emit,
                "strip": lambda: window.fold_strip(not window.folded),
                "theme.light": lambda: self._configure("light"),
                "theme.dark": lambda: self._configure("dark"),
                "theme.system": lambda: self._configure("system"),
                "quit": window.close,
            },
        )

    @cached_property
    def shortcut_sheet(self) -> ShortcutSheet:
        """Return the sheet of all shortcuts, which is made when it is first shown."""
        from gpudeck.app.shell.sheets import ShortcutSheet

        return ShortcutSheet(self._window, self._pages)

    @cached_property
    def manual(self) -> ManualSheet:
        """Return the manual, which is read when it is first shown."""
        from gpudeck.app.shell.sheets import ManualSheet

        return ManualSheet(self._window)

    def show_shortcuts(self) -> None:
        """Show the sheet of all shortcuts."""
        self.shortcut_sheet.open()

    def show_help(self) -> None:
        """Show the page of the manual that belongs to the current page."""
        self.manual.open_page(PAGE_OF.get(self.current_page, "monitor"))

    def open_page(self, wanted: ShowPage | ShowManual) -> None:
        """Open a page of the window, or a section of the manual."""
        if isinstance(wanted, ShowManual):
            self.manual.open_page(wanted.page, wanted.heading)
            return
        self._window.show_page(wanted.page)
        if wanted.job:
            self._window.jobs.show_job(wanted.job)

    def run(self, name: str) -> None:
        """Carry out an action of the table; show its page first."""
        info = action_info(name)
        owner: QWidget = self._window
        if info.page:
            if self.current_page != info.page:
                self._window.show_page(info.page)
            owner = getattr(self._window, info.page)
        action = find_action(owner, name)
        if action is not None and action.isEnabled():
            action.trigger()

    @property
    def current_page(self) -> str:
        """Return the name of the page that is shown, as the window calls it."""
        shown = self._window.pages.currentWidget()
        return next((name for name in PAGE_OF if vars(self._window).get(name) is shown), "")

    def _entries(self, text: str) -> list[PaletteEntry]:
        window, current = self._window, self.current_page
        snapshot = window.state.snapshot
        jobs = {job.id: job for job in (snapshot.jobs if snapshot else ())}
        jobs |= {job.id: job for job in self._found.get(text, ())}
        found: Iterable[PaletteEntry] = [
            *page_entries(self._pages, window.show_page, current),
            *action_entries(self.run, current),
            *free_entries(gpus_to_free(snapshot) if snapshot else (), self._ask_to_free),
            *(setting_entries(self._show_setting) if text.strip() else ()),
        ]
        listed = job_entries(
            (jobs[number] for number in sorted(jobs, reverse=True)), self._show_job
        )
        wanted = best_jobs(listed, text)
        ranked = rank([*wanted, *found], text)
        return [*ranked, *question_entry(text, self._ask)]

    def _search(self, text: str) -> None:
        """Ask the daemon for jobs of long ago."""
        if len(text.strip()) < 2 or text in self._found:
            return
        self._window.link.send(
            self,
            SearchJobs(Search(text), NEWEST),
            lambda found: self._take(text, found[0]),
            lambda _: None,
            background=True,
        )

    def _take(self, text: str, jobs: tuple[Job, ...]) -> None:
        self._found = {text: jobs}
        if self.palette.isVisible() and self.palette.box.text() == text:
            self.palette.show_entries()

    def _show_job(self, number: int) -> None:
        self._window.show_page("jobs")
        self._window.jobs.show_job(number)

    def _ask_to_free(self, gpu: str) -> None:
        """Show a GPU, and what happens when it is freed."""
        self._window.show_device(gpu)
        self._window.device.free.click()

    def _show_setting(self, name: str) -> None:
        self._window.show_page("settings")
        reveal(self._window.settings.rows[name])

    def _ask(self, text: str) -> None:
        self._window.show_page("assistant")
        self._window.assistant.view.ask(text)

    def _configure(self, theme: str) -> None:
        self._window.link.send(self, Configure({"theme": theme}))


def reveal(widget: QWidget) -> None:
    """Scroll to a widget, and focus the first part of it that takes the keyboard."""
    above = widget.parentWidget()
    while above is not None and not isinstance(above, QScrollArea):
        above = above.parentWidget()
    if above is not None:
        above.ensureWidgetVisible(widget, 0, above.height() // 3)
    parts = [widget, *widget.findChildren(QWidget)]
    for part in parts:
        if part.focusPolicy() & Qt.FocusPolicy.TabFocus and part.isVisible():
            part.setFocus()
            return
