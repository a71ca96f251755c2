"""Room for a table that never ends in half a row."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QTableView, QWidget


class WholeRows(QWidget):
    """As high as it is given, while its table is a whole number of rows high."""

    def __init__(self, table: QTableView) -> None:
        super().__init__()
        self._table = table
        table.setParent(self)
        self.setMinimumHeight(table.minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        row = self._table.verticalHeader().defaultSectionSize()
        over = self._table.horizontalHeader().sizeHint().height() + 2 * self._table.frameWidth()
        rows = max((self.height() - over) // row, 0)
        self._table.setGeometry(0, 0, self.width(), over + rows * row if rows else self.height())
        super().resizeEvent(event)
