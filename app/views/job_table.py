"""The jobs as a Qt table model, and how its cells are painted."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QRectF, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem

from app import theme
from app.models.jobs import Row

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()

HEADINGS = ("Job", "Name", "State", "Device", "Progress", "Duration", "TFLOP/s")
WIDTHS = (64, 200, 110, 80, 0, 120, 90)
"""Pixels; 0: what is left."""
PROGRESS = HEADINGS.index("Progress")
_RIGHT = (HEADINGS.index("Duration"), HEADINGS.index("TFLOP/s"))
_STATE = HEADINGS.index("State")
SHARE = Qt.ItemDataRole.UserRole


class JobTable(QAbstractTableModel):
    """Rows that change in place keep their selection; only rows that come and go move others."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[Row, ...] = ()

    def show_rows(self, rows: tuple[Row, ...]) -> None:
        """Both the old and the new rows have falling ids."""
        wanted = {row.id for row in rows}
        for at in reversed(range(len(self.rows))):
            if self.rows[at].id not in wanted:
                self.beginRemoveRows(_NOWHERE, at, at)
                self.rows = self.rows[:at] + self.rows[at + 1 :]
                self.endRemoveRows()
        for at, row in enumerate(rows):
            if at >= len(self.rows) or self.rows[at].id != row.id:
                self.beginInsertRows(_NOWHERE, at, at)
                self.rows = (*self.rows[:at], row, *self.rows[at:])
                self.endInsertRows()
        changed = [at for at, (old, new) in enumerate(zip(self.rows, rows, strict=True)) if old != new]
        self.rows = rows
        for at in changed:
            self.dataChanged.emit(self.index(at, 0), self.index(at, len(HEADINGS) - 1))

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(HEADINGS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return HEADINGS[section]
        return _alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row, column = self.rows[index.row()], index.column()
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return (str(row.id), row.name, row.state, row.device, row.doing, row.duration, row.tflops)[column]
        if role == Qt.ItemDataRole.ForegroundRole:
            return QColor(_color(row, column))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        return row.share if role == SHARE and column == PROGRESS else None


class ProgressDelegate(QStyledItemDelegate):
    """The cell's text with a thin bar under it while there is progress."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        super().paint(painter, option, index)
        share = index.data(SHARE)
        if share is None:
            return
        box: Any = option
        line = QRectF(box.rect.left() + 10, box.rect.bottom() - 5, box.rect.width() - 20, 3)
        painter.fillRect(line, QColor(theme.tokens().line))
        line.setWidth(line.width() * share)
        painter.fillRect(line, QColor(theme.tokens().accent))


def _alignment(column: int) -> int:
    side = Qt.AlignmentFlag.AlignRight if column in _RIGHT else Qt.AlignmentFlag.AlignLeft
    return int(side | Qt.AlignmentFlag.AlignVCenter)


def _color(row: Row, column: int) -> str:
    t = theme.tokens()
    if row.meaning and column in (_STATE, PROGRESS):
        return theme.meaning_color(row.meaning)
    if column == _STATE:
        return t.accent if row.state == "running" else t.text
    return t.muted if column == PROGRESS else t.text
