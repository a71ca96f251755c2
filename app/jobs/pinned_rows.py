"""Keep the first rows of a table in sight while the others are scrolled."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRect, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QStyle, QStyleOptionViewItem, QTableView, QWidget

from gpudeck.app.widgets import theme

_LEAST_BELOW = 3
"""Rows that are scrolled below the pinned ones, in any case."""


class PinnedRows(QWidget):
    """Paint the first rows of a table over those that are scrolled to their place.

    It paints with the table's delegates, since another view would count all rows again.
    """

    pressed = Signal(int)
    """The user pressed the mouse on this row."""

    def __init__(self, table: QTableView, prepare: Callable[[QStyleOptionViewItem], None]) -> None:
        """Pin rows of `table`; `prepare` fills in what the table's own rows are painted with."""
        super().__init__(table)
        self._table, self._prepare = table, prepare
        self._wanted = 0
        self.hide()
        table.verticalScrollBar().valueChanged.connect(self.place)
        table.verticalScrollBar().rangeChanged.connect(self.place)

    def show_rows(self, wanted: int) -> None:
        """Pin this number of rows, as far as they leave room for others."""
        self._wanted = wanted
        self.place()
        self.update()

    @property
    def rows(self) -> int:
        """Return the number of rows that are pinned now."""
        return self.height() // self._row if not self.isHidden() else 0

    @property
    def _row(self) -> int:
        return self._table.verticalHeader().defaultSectionSize()

    def place(self) -> None:
        """Cover the upper end of the table while its first rows are scrolled away."""
        viewport = self._table.viewport().geometry()
        rows = min(self._wanted, viewport.height() // self._row - _LEAST_BELOW)
        scrolled = self._table.verticalScrollBar().value() > 0
        self.setVisible(scrolled and rows > 0)
        if not self.isHidden():
            self.setGeometry(
                viewport.left(), viewport.top(), viewport.width(), rows * self._row + 1
            )
            self.raise_()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit(min(int(event.position().y()) // self._row, self.rows - 1))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t, table = QPainter(self), theme.tokens(), self._table
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.fillRect(0, self.height() - 1, self.width(), 1, QColor(t.line))
        model, chosen = table.model(), table.selectionModel()
        shown = [c for c in range(model.columnCount()) if not table.isColumnHidden(c)]
        for at in range(self.rows):
            for column in shown:
                index, option = model.index(at, column), QStyleOptionViewItem()
                self._prepare(option)
                left = table.columnViewportPosition(column)
                option.rect = QRect(left, at * self._row, table.columnWidth(column), self._row)
                if chosen.isSelected(index):
                    option.state |= QStyle.StateFlag.State_Selected
                    painter.fillRect(option.rect, QColor(t.accent_soft))
                table.itemDelegateForIndex(index).paint(painter, option, index)
