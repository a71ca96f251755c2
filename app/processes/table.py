"""Show the processes as a table, with bars of load and memory, and groups that fold."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent

from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.processes.grouping import Line
from gpudeck.app.processes.process_rows import (
    AGE,
    COLUMNS,
    COMMAND,
    CONTAINER,
    CPU,
    DEVICE,
    JOB,
    KIND,
    MEMORY,
    NAME,
    PAST_TITLES,
    PID,
    SM_SHARE,
)
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.list_table import (
    Index,
    ListTable,
    RowTable,
    TableColumn,
    set_up_table,
)
from gpudeck.app.widgets.share_delegate import SHARE, ShareDelegate

DESCENDING, ASCENDING = Qt.SortOrder.DescendingOrder, Qt.SortOrder.AscendingOrder
_ARROW = 26
"""Pixels at the left of a name, where the arrow of a group is."""
_NARROW, _NARROW_NAME = 900, 150
"""Pixels of a table in which names have less room, and of these names."""
_OPTIONAL = {KIND: 320, CONTAINER: 320, AGE: 240, JOB: 180, DEVICE: 140, PID: 120}
"""The columns that a narrow table leaves out, in this order, where the command would have fewer
pixels than these."""
ONLY_GPU = (DEVICE, SM_SHARE, KIND)
"""The columns that say nothing about processes of the CPU."""


class ProcessTable(RowTable[Line]):
    """Show in the headings how the rows are sorted.

    Qt's own indicator has no room beside a title that is aligned on the right.
    """

    def __init__(self) -> None:
        super().__init__(
            [
                TableColumn(
                    c.title, c.width, c.right, tr("{what}. Click to sort (S).", what=tr(c.help))
                )
                for c in COLUMNS
            ]
        )
        self._sorted_by, self._descending = MEMORY, True
        self.past = False
        """Past processes are listed."""
        self._largest = 1.0
        """The largest share of a device's memory, beside which the others are shown."""
        self.cores = 1.0
        """The cores of the machine, which a load is a share of."""

    def show_order(self, column: int, descending: bool) -> None:
        """Mark the column that the rows are sorted by."""
        if (column, descending) != (self._sorted_by, self._descending):
            self._sorted_by, self._descending = column, descending
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(COLUMNS) - 1)

    def show_rows(self, rows: tuple[Line, ...]) -> None:
        self._largest = max((line.share or 0.0 for line in rows), default=0.0) or 1.0
        super().show_rows(rows)

    def color(self, row: Line, column: int) -> str | None:
        quiet = row.row is not None and column not in (NAME, CPU, MEMORY, SM_SHARE)
        return theme.tokens().muted if quiet else None

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        shown = super().headerData(section, orientation, role)
        if role == Qt.ItemDataRole.DisplayRole and self.past and section in PAST_TITLES:
            shown = tr(PAST_TITLES[section])
        if role == Qt.ItemDataRole.DisplayRole and shown and section == self._sorted_by:
            return shown + (" ▾" if self._descending else " ▴")
        return shown

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        line, column = self.rows[index.row()], index.column()
        if role == SHARE:
            if column == MEMORY:
                return line.share / self._largest if line.share is not None else None
            return line.load / 100 / self.cores if column == CPU and line.load else None
        if role == Qt.ItemDataRole.FontRole and line.row is None:
            return theme.font(strong=True)
        return super().data(index, role)


class ProcessTableView(ListTable):
    """Show the processes; groups are folded and unfolded by mouse and keys."""

    toggled = Signal(str)
    """The user folds or unfolds the group of this name."""

    def __init__(self, model: ProcessTable) -> None:
        widths = [column.width for column in COLUMNS]
        super().__init__(widths, _OPTIONAL)
        self._model = model
        self._form = (False, False)
        """The table is narrow, and has no commands."""
        set_up_table(
            self,
            model,
            widths,
            tr_noop("Processes"),
            tr("Press S to sort by the column of the current cell"),
        )
        for column in (CPU, MEMORY):
            self.setItemDelegateForColumn(column, ShareDelegate(self, above=4))
        self.horizontalHeader().setSectionsClickable(True)
        self.horizontalHeader().setSortIndicator(MEMORY, DESCENDING)
        self.doubleClicked.connect(lambda index: self._toggle(index.row()))

    def sort_by(self, column: int) -> None:
        """Sort by a column; in the other direction the second time."""
        header = self.horizontalHeader()
        again = header.sortIndicatorSection() == column
        descending = header.sortIndicatorOrder() == DESCENDING
        header.setSortIndicator(column, ASCENDING if again and descending else DESCENDING)

    def fit_columns(self) -> None:
        """Narrow the names in a narrow table, too; without commands they have what is left."""
        header, room = self.horizontalHeader(), self.viewport().width()
        narrow, past = form = room < theme.px(_NARROW), COMMAND in self._empty
        width = theme.px(_NARROW_NAME if narrow else COLUMNS[NAME].width)
        if past or form != self._form:
            self._form = form
            header.resizeSection(NAME, width)
        self._optional = dict.fromkeys(_OPTIONAL, 0) if past else _OPTIONAL
        super().fit_columns()
        if past and header.length() < room:
            header.resizeSection(NAME, width + room - header.length())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        plain = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        row, key = self.currentIndex().row(), Qt.Key(event.key())
        if plain and key != Qt.Key.Key_F10:
            super().keyPressEvent(event)
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self._fold_by_key(row, unfold=key == Qt.Key.Key_Right)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self._toggle(row)
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            self.choose_row(0 if key == Qt.Key.Key_Home else self._model.rowCount() - 1)
        elif key == Qt.Key.Key_Menu or (key == Qt.Key.Key_F10 and plain):
            place = self.visualRect(self._model.index(max(row, 0), NAME)).center()
            self.menu_wanted.emit(self.viewport().mapToGlobal(place))
        else:
            super().keyPressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        index = self.indexAt(event.position().toPoint())
        inside = event.position().x() - self.visualRect(index).left()
        left = event.button() == Qt.MouseButton.LeftButton
        if left and index.column() == NAME and 0 <= inside < _ARROW:
            self._toggle(index.row())

    def _line(self, row: int) -> Line | None:
        return self._model.rows[row] if 0 <= row < len(self._model.rows) else None

    def _toggle(self, row: int) -> None:
        line = self._line(row)
        if line is not None and line.row is None:
            self.toggled.emit(line.group)

    def _fold_by_key(self, row: int, unfold: bool) -> None:
        """Unfold or fold the group of the row; from a process, go to the row of its group."""
        line = self._line(row)
        if line is None or not line.group:
            return
        below = self._line(row + 1)
        if line.row is None:
            if (below is not None and below.row is not None) != unfold:
                self.toggled.emit(line.group)
        elif not unfold:
            heads = (at for at, other in enumerate(self._model.rows) if other.row is None)
            self.choose_row(max(at for at in heads if at < row))
