"""Show which processes use the GPUs, or the CPU of a machine without one, and end one of them."""

from __future__ import annotations

from collections.abc import Set
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QAction, QGuiApplication, QHideEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_count, tr_noop
from gpudeck.app.link.details_poller import DetailsPoller
from gpudeck.app.link.link import Link
from gpudeck.app.processes.about import ProcessAbout
from gpudeck.app.processes.grouping import GROUPINGS, Line, memory_parts, process_lines
from gpudeck.app.processes.memory_bar import MOST, MemoryBar
from gpudeck.app.processes.past import RENEW_S, SPANS, ReadPast
from gpudeck.app.processes.process_rows import (
    CONTAINER,
    CPU,
    JOB,
    MEMORY,
    OF_PAST,
    OF_PRESENT,
    STARTED,
    ProcessRow,
    percent,
    process_rows,
    question,
)
from gpudeck.app.processes.suspension import ProgramSuspension
from gpudeck.app.processes.table import DESCENDING, ONLY_GPU, ProcessTable, ProcessTableView
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import hint
from gpudeck.app.widgets.actions import bind_actions, show_menu
from gpudeck.app.widgets.controls import (
    QuestionCard,
    Stretch,
    button,
    card,
    choice_box,
    column,
    elided,
    empty_label,
    filter_box,
    label,
    row,
    set_text,
    show_if_any,
)
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.app.widgets.list_table import chosen_row, height_of_rows, list_card
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.devices import KillProcess

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
_LEAST_ROWS = 4
"""The rows for which the table always has room."""
_END, _LONGEST_NAME = tr_noop("End process…"), 16
"""The button without a target, and the most letters of a target's name in it."""


class ProcessesPage(QWidget):
    """List the processes by load and memory, and end one of them."""

    job_chosen = Signal(int)

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._problem: str | None = None
        """Why the devices were not read."""
        self._past: tuple[Detail, ...] | None = None
        """The processes of the chosen time; None while they are not read."""
        self._asked: ReadPast | None = None
        self._ending: ProcessRow | None = None
        """The process that the user is asked about."""
        self._folded: frozenset[str] = frozenset()
        self._sorted = False
        """The kind of the devices decided what the rows are sorted by at first."""
        self._make_parts()
        self.poller = DetailsPoller(self, link)
        self.poller.read.connect(self._take_details)
        self.poller.failed.connect(self._show_problem)
        self._suspension = ProgramSuspension(self, link)
        self._suspension.changed.connect(self.poller.request)
        self.acts = self._bind()
        self._lay_out()

    def _make_parts(self) -> None:
        self.filter = filter_box(tr("Search names, users, commands (Ctrl+F)"))
        self.filter.textChanged.connect(self.refresh)
        self.grouping = choice_box(tr("Groups"), GROUPINGS)
        self.grouping.currentIndexChanged.connect(self._regroup)
        self.span = choice_box(tr("Time"), SPANS)
        self.span.currentIndexChanged.connect(self._choose_span)
        self.count = label(size="small", meaning="muted")
        self.title, self.usage = label(tr("Memory"), strong=True), label(meaning="muted")
        self.bar = MemoryBar()
        self.unlisted = elided(size="small", meaning="muted")
        """Says what the memory is that no listed process uses."""
        self.model = ProcessTable()
        self.table = ProcessTableView(self.model)
        self.header = self.table.horizontalHeader()
        self.header.sortIndicatorChanged.connect(self.refresh)
        self.table.selectionModel().selectionChanged.connect(self._enable)
        self.table.toggled.connect(self._toggle)
        self.table.menu_wanted.connect(lambda at: show_menu(self, self.acts, MENU, at))
        self.end = button(
            tr(_END),
            lambda: self._ask_about(self.chosen()),
            tooltip=hint("process.end", tr("Ask the process to end, and kill it if it does not")),
        )
        self.question = QuestionCard(
            tr("End process"), tr("Cancel"), self._kill, lambda: self._ask_about(None)
        )
        self.empty = empty_label(tr(EMPTY))
        self.about = ProcessAbout(self._link)
        self.about.copied.connect(lambda: self._copy(command=True))

    def _bind(self) -> dict[str, QAction]:
        return bind_actions(
            self,
            {
                "process.end": self.end.click,
                "process.suspend": self._suspend,
                "process.resume": self._suspension.resume_all,
                "process.copy": lambda: self._copy(command=True),
                "process.pid": lambda: self._copy(command=False),
                "process.job": self._show_job,
                "process.sort": lambda: self.table.sort_by(
                    max(self.table.currentIndex().column(), 0)
                ),
                "process.group": self.grouping.showPopup,
                "process.fold": self._fold_all,
                "process.search": self.filter.setFocus,
                "process.leave": self.question.no.click,
            },
        )

    def _lay_out(self) -> None:
        search, buttons = QWidget(), QWidget()
        choices = (self.span, self.grouping, self.count)
        search.setLayout(row(Stretch(self.filter, 9), *choices, Stretch(), spacing=theme.M))
        buttons.setLayout(row(Stretch(), self.end))
        above = FoldRow(search, buttons, (1, 0))
        inside = column(
            row(self.title, self.usage, Stretch(), spacing=theme.S),
            self.bar,
            self.unlisted,
            spacing=0,
        )
        inside.setContentsMargins(theme.L, theme.M, theme.L, theme.S)
        self.use = card(inside)
        self._frame, self._stack = list_card(self.table, self.empty)
        self._frame.setMinimumHeight(height_of_rows(self.table, _LEAST_ROWS) + 2 * theme.XS + 2)
        self._body = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._body.setSpacing(theme.S)
        self._body.addWidget(self._frame, 3)
        self._body.addWidget(self.about)
        self.setLayout(column(above, self.question, self.use, Stretch(self._body)))
        self.setFocusProxy(self.table)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Describe the chosen process beside the table, or below it."""
        super().resizeEvent(event)
        beside = self.width() >= theme.px(_BESIDE)
        directions = QBoxLayout.Direction
        self._body.setDirection(directions.LeftToRight if beside else directions.TopToBottom)
        self._body.setStretch(1, 2 if beside else 0)
        low = self.height() < theme.px(_LOW) and self.width() >= theme.px(_NARROW)
        self.about.arrange("beside" if beside else "low" if low else "below")

    def refresh(self) -> None:
        """Show the processes that were read last."""
        snapshot, details = self._state.snapshot, self._state.details
        if snapshot is not None and self._seconds is not None:
            self._read_past(snapshot.time - self._seconds)
            details = self._past
        if snapshot is None or details is None:
            waiting = self._state.link.text if snapshot is None else tr("Reading the processes…")
            set_text(self.empty, self._problem or waiting)
            self._stack.setCurrentIndex(1)
            self.use.hide()
            self._enable()
            return
        self._sort_at_first(details)
        by = self.header.sortIndicatorSection()
        descending = self.header.sortIndicatorOrder() == DESCENDING
        devices = [state.device for state in snapshot.devices]
        rows = process_rows(details, devices, snapshot.time, self.filter.text(), by, descending)
        totals = _memory_totals(snapshot)
        lines = process_lines(
            rows,
            self.grouping.currentData(),
            self._folded,
            by,
            descending,
            lambda process: totals.get(process.device.id) if process.device else None,
        )
        self._show_lines(lines, by, descending)
        self._show_use(snapshot, details, rows)
        total = sum(len(detail.processes) + len(detail.cpu_processes) for detail in details)
        count = (
            tr_count("{n} process", "{n} processes", total)
            if len(rows) == total
            else tr("{shown} of {total}", shown=len(rows), total=total)
        )
        set_text(self.count, self._problem or count)
        kinds = {device.kind for device in devices}
        none = _reason_for_none(kinds) if self._seconds is None else NONE_THEN
        set_text(self.empty, tr(NOTHING_FOUND if total else none))
        self._stack.setCurrentIndex(0 if lines else 1)
        if self._ending is not None and self._ending.key not in {r.key for r in rows}:
            self._ask_about(None)  # it has ended by itself
        self._enable()

    @property
    def _seconds(self) -> float | None:
        """Return of how many seconds the processes are listed; None: of the present."""
        return SPANS[self.span.currentData()]

    def _choose_span(self) -> None:
        self._past = self._asked = None
        self._sorted = False
        self.model.past = self._seconds is not None
        self.end.setVisible(not self.model.past)
        self.refresh()

    def _read_past(self, since: float) -> None:
        """Request the processes since a moment, again from time to time."""
        if self._asked is None or since - self._asked.since >= RENEW_S:
            self._asked = ReadPast(since)
            self._link.send(self, self._asked, partial(self._take_past, self._asked))

    def _take_past(self, asked: ReadPast, details: tuple[Detail, ...]) -> None:
        if asked is self._asked:
            self._past = details
            self.refresh()

    def _show_chosen(self) -> None:
        """Describe the chosen process."""
        chosen, snapshot = self.chosen(), self._state.snapshot
        self.about.setVisible(chosen is not None)
        if chosen is not None and snapshot is not None:
            since = None if self._seconds is None else snapshot.time - self._seconds
            self.about.show_process(chosen, since, snapshot.time)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.about.forget()

    def _show_lines(self, lines: tuple[Line, ...], by: int, descending: bool) -> None:
        """Show the lines; the selection stays with its process, and nothing is scrolled."""
        chosen, column_ = self._chosen_line(), max(self.table.currentIndex().column(), 0)
        scrolled = self.table.verticalScrollBar().value()
        self.model.show_order(by, descending)
        self.model.show_rows(lines)
        keys = [line.key for line in lines]
        if chosen is not None and chosen.key in keys:
            self.table.choose_row(keys.index(chosen.key), column_)
            self.table.verticalScrollBar().setValue(scrolled)

    def _show_use(
        self, snapshot: Snapshot, details: tuple[Detail, ...], rows: tuple[ProcessRow, ...]
    ) -> None:
        """Show how much of the memory is used, and by whom."""
        readings = [s.reading.values for s in snapshot.devices if s.reading is not None]
        used = sum(values.get("mem_used", 0.0) for values in readings)
        total = sum(_memory_totals(snapshot).values())
        only_cpu = all(not detail.processes for detail in details)
        unknown = {CPU} if all(row.process.cpu is None for row in rows) else set[int]()
        others = OF_PAST if self._seconds is None else OF_PRESENT
        empty = frozenset(ONLY_GPU if only_cpu else unknown) | _empty(details)
        self.table.leave_out(empty | others)
        self.model.cores = max((values.get("cores", 1.0) for values in readings), default=1.0)
        self.use.setVisible(bool(rows) and total > 0 and self._seconds is None)
        grouping = self.grouping.currentData()
        lines = process_lines(rows, grouping, frozenset(), MEMORY, True, _none)
        self.bar.show_owners(memory_parts(lines, grouping, MOST), used, total)
        loads = [process.process.cpu for process in rows if process.process.cpu is not None]
        parts = [tr("{used} of {total} in use", used=memory(used), total=memory(total))]
        parts[0] += f" ({100 * used / total:.0f} %)" if total else ""
        if loads:
            parts.append(tr("CPU {share} of one core", share=percent(sum(loads))))
        set_text(self.usage, " · ".join(parts))
        hidden = tr(
            "{amount} are not listed: processes of other users or containers, and what the driver "
            "itself needs.",
            amount=memory(self.bar.hidden),
        )
        show_if_any(self.unlisted, hidden if self.bar.hidden else "")

    def _sort_at_first(self, details: tuple[Detail, ...]) -> None:
        """Sort past processes by their start, and those of the CPU by load, until the user does."""
        if not self._sorted and any(d.processes or d.cpu_processes for d in details):
            self._sorted = True
            only_cpu = all(not detail.processes for detail in details)
            present = CPU if only_cpu else MEMORY
            self.header.setSortIndicator(STARTED if self.model.past else present, DESCENDING)

    def _take_details(self, details: tuple[Detail, ...]) -> None:
        self._state.details = details
        self.about.take(details)
        self._show_problem(None)

    def _show_problem(self, message: str | None) -> None:
        """Show why the processes could not be read, or that they were read (None)."""
        self._problem = message
        if self.isVisible():
            self.refresh()

    def _chosen_line(self) -> Line | None:
        """Return the selected line; the current one may be none that the user chose."""
        selected = self.table.selectionModel().hasSelection()
        return chosen_row(self.table, self.model) if selected else None

    def chosen(self) -> ProcessRow | None:
        """Return the process that the user chose; None for a group."""
        line = self._chosen_line()
        return line.row if line is not None else None

    def _enable(self) -> None:
        self._show_chosen()
        chosen = self.chosen()
        known = chosen is not None and chosen.process.ticks > 0 and self._seconds is None
        self.end.setEnabled(known and self._ending is None)
        text = _end_text(chosen.process) if chosen is not None and known else tr(_END)
        if self.end.text() != text:
            self.end.setText(text)
        for name in ("process.copy", "process.pid"):
            self.acts[name].setEnabled(chosen is not None)
        self.acts["process.job"].setEnabled(chosen is not None and chosen.process.job is not None)
        foreign = known and chosen is not None and chosen.process.foreign
        uses_gpu = chosen is not None and chosen.process.kind != "cpu"
        self.acts["process.suspend"].setEnabled(foreign and uses_gpu)
        self.acts["process.fold"].setEnabled(GROUPINGS[self.grouping.currentData()] is not None)

    def _regroup(self) -> None:
        self._folded = frozenset()
        self.refresh()

    def _toggle(self, group: str) -> None:
        self._folded = self._folded ^ {group}
        self.refresh()

    def _fold_all(self) -> None:
        """Fold all groups, or unfold all of them where one is folded."""
        heads = {line.group for line in self.model.rows if line.row is None}
        self._folded = frozenset() if self._folded & heads else frozenset(heads)
        self.refresh()

    def _copy(self, command: bool) -> None:
        if (chosen := self.chosen()) is not None:
            process: Process = chosen.process
            text = process.command or process.name if command else str(process.pid)
            QGuiApplication.clipboard().setText(text)

    def _show_job(self) -> None:
        chosen = self.chosen()
        if chosen is not None and chosen.process.job is not None:
            self.job_chosen.emit(chosen.process.job)

    def _suspend(self) -> None:
        if (chosen := self.chosen()) is not None:
            self._suspension.suspend(chosen.process)

    def _ask_about(self, process: ProcessRow | None) -> None:
        self._ending = process
        if process is not None:
            self.question.ask(question(process.process))
        else:
            self.question.hide()
            self.table.setFocus()
        self._enable()

    def _kill(self) -> None:
        if self._ending is not None:
            process = self._ending.process
            request = KillProcess(process.pid, process.ticks)
            self._link.send(self, request, lambda _: self.poller.request())
            self._ask_about(None)


def _none(_: ProcessRow) -> float | None:
    return None


def _end_text(process: Process) -> str:
    """Return the text of the button that ends a process."""
    name = process.name
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return tr("End {name} {pid}…", name=short.replace("&", "&&"), pid=process.pid)


def _empty(details: tuple[Detail, ...]) -> frozenset[int]:
    """Return the columns in which no process has a value."""
    found = [p for detail in details for p in (*detail.processes, *detail.cpu_processes)]
    used = {JOB: any(p.job is not None or p.assistant for p in found)}
    used[CONTAINER] = any(p.container for p in found)
    return frozenset(at for at, filled in used.items() if not filled)


def _memory_totals(snapshot: Snapshot) -> dict[str, float]:
    """Return the bytes of the memory of each device that reports it."""
    return {
        state.device.id: state.reading.values["mem_total"]
        for state in snapshot.devices
        if state.reading is not None and "mem_total" in state.reading.values
    }


def _reason_for_none(kinds: Set[str]) -> str:
    """Explain why devices of these kinds have no processes."""
    if kinds == {"cpu"}:
        return NO_PROCESS
    return RECORDED if "replay" in kinds and "nvidia" not in kinds else EMPTY
