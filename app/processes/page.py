"""Show which processes use the GPUs, or the CPU of a machine without one, and end one of them."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QAction, QHideEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from gpudeck.app.language.texts import tr, tr_count, tr_noop
from gpudeck.app.link.details_poller import DetailsPoller
from gpudeck.app.link.link import Link
from gpudeck.app.processes.about import ProcessAbout
from gpudeck.app.processes.grouping import GROUPINGS
from gpudeck.app.processes.memory_use import MemoryUse
from gpudeck.app.processes.past import SPANS
from gpudeck.app.processes.past_reader import PastReader
from gpudeck.app.processes.process_actions import ProcessActions
from gpudeck.app.processes.process_list import ProcessList
from gpudeck.app.processes.process_rows import ProcessRow
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.actions import bind_actions, show_menu
from gpudeck.app.widgets.controls import (
    Stretch,
    choice_box,
    column,
    filter_box,
    label,
    row,
    set_text,
)
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.snapshot import Snapshot

EMPTY = tr_noop("No process uses a GPU.")
NONE_THEN = tr_noop("No process used a GPU in that time.")
NO_PROCESS = tr_noop("No process of this machine is visible.")
RECORDED = tr_noop("Recordings contain no process data.")
NOTHING_FOUND = tr_noop("No process matches the filter.")
MENU = (
    "process.end",
    "process.suspend",
    "process.resume",
    "",
    "process.job",
    "process.copy",
    "process.pid",
    "",
    "process.fold",
)
"""The actions of the menu of a row; an empty name is a line between them."""
_LOW, _NARROW, _BESIDE = 600, 640, 1500
"""Pixels of height below which the description of the chosen process is low, of width from which
it can be, and of width from which it is beside the table."""


class ProcessesPage(QWidget):
    """List the processes by load and memory, and end one of them."""

    job_chosen = Signal(int)

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state = state
        self._problem: str | None = None
        """Why the devices were not read."""
        self.filter = filter_box(tr("Search names, users, commands (Ctrl+F)"))
        self.grouping = choice_box(tr("Groups"), GROUPINGS)
        self.span = choice_box(tr("Time"), SPANS)
        self.count = label(size="small", meaning="muted")
        self.use, self.list, self.about = MemoryUse(), ProcessList(), ProcessAbout(link)
        self.table = self.list.table
        self.commands = ProcessActions(self, link)
        self.end, self.question = self.commands.end, self.commands.question
        self._past = PastReader(self, link)
        self.poller = DetailsPoller(self, link)
        self.acts = self._bind()
        self._connect()
        self._lay_out()

    def _connect(self) -> None:
        self.filter.textChanged.connect(self.refresh)
        self.grouping.currentIndexChanged.connect(self.list.unfold)
        self.span.currentIndexChanged.connect(self._choose_span)
        self.list.changed.connect(self.refresh)
        self.table.selectionModel().selectionChanged.connect(self._show_chosen)
        self.table.menu_wanted.connect(lambda at: show_menu(self, self.acts, MENU, at))
        self.commands.asked.connect(self._follow_question)
        self.commands.changed.connect(self.poller.request)
        self.commands.job_chosen.connect(self.job_chosen)
        self.about.copied.connect(self.commands.copy_command)
        self.about.job_wanted.connect(self.job_chosen)
        self._past.read.connect(self.refresh)
        self.poller.read.connect(self._take_details)
        self.poller.failed.connect(self._show_problem)

    def _bind(self) -> dict[str, QAction]:
        return bind_actions(
            self,
            self.commands.slots()
            | {
                "process.sort": lambda: self.table.sort_by(
                    max(self.table.currentIndex().column(), 0)
                ),
                "process.group": self.grouping.showPopup,
                "process.fold": self.list.fold_all,
                "process.search": self.filter.setFocus,
            },
        )

    def _lay_out(self) -> None:
        search, buttons = QWidget(), QWidget()
        choices = (self.span, self.grouping, self.count)
        search.setLayout(row(Stretch(self.filter, 9), *choices, Stretch(), spacing=theme.M))
        buttons.setLayout(row(Stretch(), self.end))
        above = FoldRow(search, buttons, (1, 0))
        self._body = column(Stretch(self.list, 3), Stretch(self.about, 2))
        self.setLayout(column(above, self.question, self.use, Stretch(self._body)))
        self.setFocusProxy(self.table)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Describe the chosen process beside the table, or below it."""
        super().resizeEvent(event)
        beside = self.width() >= theme.px(_BESIDE)
        directions = QBoxLayout.Direction
        self._body.setDirection(directions.LeftToRight if beside else directions.TopToBottom)
        low = self.height() < theme.px(_LOW) and self.width() >= theme.px(_NARROW)
        self.about.arrange("beside" if beside else "low" if low else "below")
        self._fill()

    def _fill(self) -> None:
        """Let the table take the height that the description does not take."""
        grows = self.about.isVisibleTo(self) and self.about.form == "below"
        self.list.fill(wanted=not grows)

    def refresh(self) -> None:
        """Show the processes that were read last."""
        snapshot, details = self._state.snapshot, self._state.details
        if snapshot is not None and self._seconds is not None:
            self._past.request(snapshot.time - self._seconds)
            details = self._past.details
        if snapshot is None or details is None:
            waiting = self._state.link.text if snapshot is None else tr("Reading the processes…")
            self.list.explain(self._problem or waiting)
            self.use.hide()
        else:
            self._show_details(snapshot, details)
        self._show_chosen()

    def _show_details(self, snapshot: Snapshot, details: tuple[Detail, ...]) -> None:
        grouping = self.grouping.currentData()
        rows = self.list.show_processes(snapshot, details, self.filter.text(), grouping)
        total = sum(len(detail.processes) + len(detail.cpu_processes) for detail in details)
        count = (
            tr_count("{n} process", "{n} processes", total)
            if len(rows) == total
            else tr("{shown} of {total}", shown=len(rows), total=total)
        )
        set_text(self.count, self._problem or count)
        if not rows:
            none = _reason_for_none(snapshot) if self._seconds is None else NONE_THEN
            self.list.explain(tr(NOTHING_FOUND if total else none))
        if self._seconds is None:
            self.use.show_use(snapshot, rows, grouping)
        else:
            self.use.hide()
        self.commands.leave_ended(rows)

    @property
    def _seconds(self) -> float | None:
        """Return of how many seconds the processes are listed; None: of the present."""
        return SPANS[self.span.currentData()]

    def _choose_span(self) -> None:
        self._past.forget()
        past = self._seconds is not None
        self.list.list_past(past)
        self.end.setVisible(not past)
        self.refresh()

    def _show_chosen(self) -> None:
        """Describe the chosen process, or the first one, and enable what can be done with it."""
        chosen, snapshot = self.chosen(), self._state.snapshot
        told = chosen
        if self.list.chosen_line() is None and self.height() >= theme.px(_LOW):
            told = self.list.first
        self.about.setVisible(told is not None)
        self._fill()
        if told is not None and snapshot is not None:
            since = None if self._seconds is None else snapshot.time - self._seconds
            self.about.show_process(told, since, snapshot.time)
        self.commands.choose(chosen, self._seconds is None, self.acts)
        grouped = GROUPINGS[self.grouping.currentData()] is not None
        self.acts["process.fold"].setEnabled(grouped)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.about.forget()

    def _take_details(self, details: tuple[Detail, ...]) -> None:
        self._state.details = details
        self.about.take(details)
        self._show_problem(None)

    def _show_problem(self, message: str | None) -> None:
        """Show why the processes could not be read, or that they were read (None)."""
        self._problem = message
        if self.isVisible():
            self.refresh()

    def chosen(self) -> ProcessRow | None:
        """Return the process that the user chose; None for a group."""
        line = self.list.chosen_line()
        return line.row if line is not None else None

    def _follow_question(self) -> None:
        """Go back to the table after the question, and enable what applies."""
        if self.question.isHidden():
            self.table.setFocus()
        self._show_chosen()


def _reason_for_none(snapshot: Snapshot) -> str:
    """Explain why the devices have no processes."""
    kinds = {state.device.kind for state in snapshot.devices}
    if kinds == {"cpu"}:
        return NO_PROCESS
    return RECORDED if "replay" in kinds and "nvidia" not in kinds else EMPTY
