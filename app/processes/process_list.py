"""List the processes in a table that is sorted, grouped and folded, or say why there are none."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.processes.grouping import Line, process_lines
from gpudeck.app.processes.memory_use import memory_totals
from gpudeck.app.processes.process_rows import (
    CONTAINER,
    CPU,
    JOB,
    MEMORY,
    OF_PAST,
    OF_PRESENT,
    STARTED,
    ProcessRow,
    process_rows,
)
from gpudeck.app.processes.table import DESCENDING, ONLY_GPU, ProcessTable, ProcessTableView
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import NO_LIMIT, Stretch, column, empty_label, set_text
from gpudeck.app.widgets.list_table import chosen_row, height_of_rows, list_card
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.snapshot import Snapshot

_LEAST_ROWS = 4
"""The rows for which the table always has room."""


class ProcessList(QWidget):
    """Show the processes; the selection stays with its process, and nothing is scrolled."""

    changed = Signal()
    """The user sorts, folds or unfolds."""

    def __init__(self) -> None:
        super().__init__()
        self._folded: frozenset[str] = frozenset()
        self._sorted = False
        """The kind of the devices decided what the rows are sorted by at first."""
        self.model = ProcessTable()
        self.table = ProcessTableView(self.model)
        self.table.toggled.connect(self._toggle)
        self._header = self.table.horizontalHeader()
        self._header.sortIndicatorChanged.connect(self.changed)
        self.empty = empty_label("")
        self._frame, self._stack = list_card(self.table, self.empty)
        self._frame.setMinimumHeight(height_of_rows(self.table, _LEAST_ROWS) + 2 * theme.XS + 2)
        self._filling = False
        self.setLayout(column(Stretch(self._frame)))
        self.setFocusProxy(self.table)

    def fill(self, *, wanted: bool) -> None:
        """Take all the height there is, or no more than the rows need."""
        self._filling = wanted
        self._fit()

    def _fit(self) -> None:
        if self._filling or self._stack.currentIndex():
            self.setMaximumHeight(NO_LIMIT)
        else:
            rows = max(len(self.model.rows), _LEAST_ROWS)
            self.setMaximumHeight(height_of_rows(self.table, rows) + 2 * theme.XS + 2)

    @property
    def first(self) -> ProcessRow | None:
        """Return the first process that is shown."""
        return next((line.row for line in self.model.rows if line.row is not None), None)

    def list_past(self, past: bool) -> None:
        """List past processes from now on, or those of the present."""
        self.model.past, self._sorted = past, False

    def explain(self, why: str) -> None:
        """Show why there are no processes instead of the table."""
        set_text(self.empty, why)
        self._stack.setCurrentIndex(1)
        self._fit()

    def show_processes(
        self, snapshot: Snapshot, details: tuple[Detail, ...], words: str, grouping: str
    ) -> tuple[ProcessRow, ...]:
        """Show the processes in which all words of a filter occur, and return them."""
        self._sort_at_first(details)
        by = self._header.sortIndicatorSection()
        descending = self._header.sortIndicatorOrder() == DESCENDING
        devices = [state.device for state in snapshot.devices]
        rows = process_rows(details, devices, snapshot.time, words, by, descending)
        totals = memory_totals(snapshot)
        lines = process_lines(
            rows,
            grouping,
            self._folded,
            by,
            descending,
            lambda process: totals.get(process.device.id) if process.device else None,
        )
        readings = [s.reading.values for s in snapshot.devices if s.reading is not None]
        self.model.cores = max((values.get("cores", 1.0) for values in readings), default=1.0)
        self.model.show_order(by, descending)
        self._show_lines(lines)
        self.table.leave_out(_empty(details, rows, self.model.past))
        self._stack.setCurrentIndex(0 if lines else 1)
        self._fit()
        return rows

    def _sort_at_first(self, details: tuple[Detail, ...]) -> None:
        """Sort past processes by their start, and those of the CPU by load, until the user does."""
        if not self._sorted and any(d.processes or d.cpu_processes for d in details):
            self._sorted = True
            present = CPU if _only_cpu(details) else MEMORY
            self._header.setSortIndicator(STARTED if self.model.past else present, DESCENDING)

    def _show_lines(self, lines: tuple[Line, ...]) -> None:
        chosen, column_ = self.chosen_line(), max(self.table.currentIndex().column(), 0)
        scrolled = self.table.verticalScrollBar().value()
        self.model.show_rows(lines)
        keys = [line.key for line in lines]
        if chosen is not None and chosen.key in keys:
            self.table.choose_row(keys.index(chosen.key), column_)
            self.table.verticalScrollBar().setValue(scrolled)

    def chosen_line(self) -> Line | None:
        """Return the selected line; the current one may be none that the user chose."""
        selected = self.table.selectionModel().hasSelection()
        return chosen_row(self.table, self.model) if selected else None

    def unfold(self) -> None:
        """Unfold all groups, as others take their places."""
        self._folded = frozenset()
        self.changed.emit()

    def fold_all(self) -> None:
        """Fold all groups, or unfold all of them where one is folded."""
        heads = {line.group for line in self.model.rows if line.row is None}
        self._folded = frozenset() if self._folded & heads else frozenset(heads)
        self.changed.emit()

    def _toggle(self, group: str) -> None:
        self._folded = self._folded ^ {group}
        self.changed.emit()


def _only_cpu(details: tuple[Detail, ...]) -> bool:
    return all(not detail.processes for detail in details)


def _empty(details: tuple[Detail, ...], rows: tuple[ProcessRow, ...], past: bool) -> frozenset[int]:
    """Return the columns that say nothing about these processes."""
    found = [p for detail in details for p in (*detail.processes, *detail.cpu_processes)]
    used = {
        JOB: any(p.job is not None or p.assistant for p in found),
        CONTAINER: any(p.container for p in found),
        CPU: _only_cpu(details) or any(row.process.cpu is not None for row in rows),
    }
    unused = {at for at, filled in used.items() if not filled}
    only_gpu = ONLY_GPU if _only_cpu(details) else ()
    return frozenset({*unused, *only_gpu, *(OF_PRESENT if past else OF_PAST)})
