"""Show which processes use the GPUs, and end one of them."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from app.format.values import plural
from app.link.details_poller import DetailsPoller
from app.link.link import Link
from app.processes.process_rows import COLUMNS, MEMORY, ProcessRow, process_rows, question
from app.state import State
from app.widgets import theme
from app.widgets.controls import (
    QuestionCard,
    Stretch,
    add_shortcuts,
    button,
    column,
    empty_label,
    filter_box,
    label,
    row,
    set_text,
)
from app.widgets.list_table import RowTable, TableColumn, chosen_row, list_card, list_table
from scheduler.protocol.devices import Detail
from scheduler.verbs.devices import KillProcess

EMPTY = "No process uses a GPU."
NO_GPU = "This machine has no NVIDIA GPU, so no process uses one."
RECORDED = "A recording contains no processes."
NOTHING_FOUND = "No process matches the filter."
_ROOM_FOR = {7: 900, 8: 1000}
"""The least width of the page at which the columns Kind and Container are shown."""
DESCENDING, ASCENDING = Qt.SortOrder.DescendingOrder, Qt.SortOrder.AscendingOrder


class ProcessTable(RowTable[ProcessRow]):
    """Show in the headings how the rows are sorted.

    Qt's own indicator has no room beside a title that is aligned on the right.
    """

    def __init__(self) -> None:
        help_ = "{}. Click to sort (S)."
        super().__init__(
            [TableColumn(c.title, c.width, c.right, help_.format(c.help)) for c in COLUMNS]
        )
        self._sorted_by, self._descending = MEMORY, True

    def show_order(self, column: int, descending: bool) -> None:
        """Mark the column that the rows are sorted by."""
        if (column, descending) != (self._sorted_by, self._descending):
            self._sorted_by, self._descending = column, descending
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(COLUMNS) - 1)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        shown = super().headerData(section, orientation, role)
        if role == Qt.ItemDataRole.DisplayRole and shown and section == self._sorted_by:
            return shown + (" ▾" if self._descending else " ▴")
        return shown


class ProcessesPage(QWidget):
    """List the processes that use the GPUs, and end one of them."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._problem: str | None = None
        """Why the devices were not read."""
        self._ending: ProcessRow | None = None
        """The process that the user is asked about."""
        self.filter = filter_box("Search users, commands, containers (Ctrl+F)")
        self.filter.textChanged.connect(self.refresh)
        self.count = label(size="small", meaning="muted")
        self.model = ProcessTable()
        self.table = list_table(
            self.model,
            [column.width for column in COLUMNS],
            "Processes on GPUs",
            "Press S to sort by the column of the current cell",
        )
        self.header = self.table.horizontalHeader()
        self.header.setSectionsClickable(True)
        self.header.setSortIndicator(MEMORY, DESCENDING)
        self.header.sortIndicatorChanged.connect(self.refresh)
        self.table.selectionModel().currentRowChanged.connect(self._enable)
        self.end = button(
            "End process…",
            lambda: self._ask_about(self.chosen()),
            tooltip="Ask the process to end, and kill it if it does not (Del)",
        )
        self.question = QuestionCard(
            "End process", "Cancel", self._kill, lambda: self._ask_about(None)
        )
        self.empty = empty_label(EMPTY)
        self.poller = DetailsPoller(self, link)
        self.poller.read.connect(self._take_details)
        self.poller.failed.connect(self._show_problem)
        bar = row(self.filter, self.count, Stretch(), self.end, spacing=theme.M)
        frame, self._stack = list_card(self.table, self.empty)
        self.setLayout(column(bar, self.question, Stretch(frame)))
        self.setFocusProxy(self.table)
        add_shortcuts(
            self,
            {
                "Del": self.end.click,
                "Esc": self.question.no.click,
                "Ctrl+F": self.filter.setFocus,
                "S": self._sort,
            },
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out the least important columns where there is little room."""
        super().resizeEvent(event)
        for at, least in _ROOM_FOR.items():
            self.table.setColumnHidden(at, self.width() < theme.px(least))

    def refresh(self) -> None:
        """Show the processes that were read last."""
        snapshot, details = self._state.snapshot, self._state.details
        if snapshot is None or details is None:
            waiting = self._state.link.text if snapshot is None else "Reading the processes…"
            set_text(self.empty, self._problem or waiting)
            self._stack.setCurrentIndex(1)
            self._enable()
            return
        chosen, column = self.chosen(), max(self.table.currentIndex().column(), 0)
        by, descending = (
            self.header.sortIndicatorSection(),
            self.header.sortIndicatorOrder() == DESCENDING,
        )
        devices = [state.device for state in snapshot.devices]
        shown = process_rows(details, devices, snapshot.time, self.filter.text(), by, descending)
        self.model.show_order(by, descending)
        self.model.show_rows(shown)
        keys = [process.key for process in shown]
        if chosen is not None and chosen.key in keys:
            self.table.choose_row(keys.index(chosen.key), column)
        total = sum(len(detail.processes) for detail in details)
        count = (
            plural(total, "process", "es") if len(shown) == total else f"{len(shown)} of {total}"
        )
        set_text(self.count, self._problem or count)
        set_text(
            self.empty, NOTHING_FOUND if total else _reason_for_none({d.kind for d in devices})
        )
        self._stack.setCurrentIndex(0 if shown else 1)
        if self._ending is not None and self._ending.key not in keys:
            self._ask_about(None)  # it has ended by itself
        self._enable()

    def _take_details(self, details: tuple[Detail, ...]) -> None:
        self._state.details = details
        self._show_problem(None)

    def _show_problem(self, message: str | None) -> None:
        """Show why the processes could not be read, or that they were read (None)."""
        self._problem = message
        if self.isVisible():
            self.refresh()

    def chosen(self) -> ProcessRow | None:
        """Return the process that the user chose."""
        return chosen_row(self.table, self.model)

    def _sort(self) -> None:
        """Sort by the column of the current cell; in the other direction the second time."""
        at = max(self.table.currentIndex().column(), 0)
        ascending = (
            self.header.sortIndicatorSection() == at
            and self.header.sortIndicatorOrder() == ASCENDING
        )
        self.header.setSortIndicator(at, DESCENDING if ascending else ASCENDING)

    def _enable(self) -> None:
        chosen = self.chosen()
        known = chosen is not None and chosen.process.ticks > 0
        self.end.setEnabled(known and self._ending is None)

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


def _reason_for_none(kinds: set[str]) -> str:
    """Explain why devices of these kinds have no processes."""
    if "nvidia" in kinds:
        return EMPTY
    return RECORDED if "replay" in kinds else NO_GPU
