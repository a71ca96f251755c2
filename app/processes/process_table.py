"""The processes that use a GPU as a Qt table model."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QTableView

from app.processes.process_rows import COLUMNS, MEMORY, Row
from app.widgets.list_table import list_table

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()


class ProcessTable(QAbstractTableModel):
    """Rows that only change their figures keep the selection; `rows` is replaced as a whole where any comes, goes or moves."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[Row, ...] = ()
        self._order = (MEMORY, True)

    def show_order(self, column: int, descending: bool) -> None:
        """Tell in the headings by which column, and how, the rows are sorted: Qt's own mark has no room beside a title on the right."""
        if (column, descending) != self._order:
            self._order = (column, descending)
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(COLUMNS) - 1)

    def show_rows(self, rows: tuple[Row, ...]) -> None:
        """Show these, in this order."""
        if [row.key for row in rows] != [row.key for row in self.rows]:
            self.beginResetModel()
            self.rows = rows
            self.endResetModel()
        elif rows != self.rows:
            self.rows = rows
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(COLUMNS) - 1))

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                mark = " ▾" if self._order[1] else " ▴"
                return COLUMNS[section].title + (mark if section == self._order[0] else "")
            case Qt.ItemDataRole.ToolTipRole:
                return f"{COLUMNS[section].meaning[0].upper()}{COLUMNS[section].meaning[1:]}. Click to sort (S)."
            case Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(section)
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self.rows[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.cells[index.column()]
            case Qt.ItemDataRole.ToolTipRole:
                return row.tooltip
            case Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(index.column())
        return None


def process_view(model: ProcessTable) -> QTableView:
    """The table, sorted by its headings: connect to `horizontalHeader().sortIndicatorChanged`."""
    widths = [column.width for column in COLUMNS]
    table = list_table(
        model, widths, "Processes on GPUs", "S sorts by the column of the current cell"
    )
    table.horizontalHeader().setSectionsClickable(True)
    table.horizontalHeader().setSortIndicator(MEMORY, Qt.SortOrder.DescendingOrder)
    return table


def _alignment(column: int) -> int:
    side = Qt.AlignmentFlag.AlignRight if COLUMNS[column].right else Qt.AlignmentFlag.AlignLeft
    return int(side | Qt.AlignmentFlag.AlignVCenter)
