"""The alerts as a Qt table model."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor

from app.alerts.alert_rows import Line
from app.widgets import theme

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()

HEADINGS = ("State", "Since", "Lasted", "What")
WIDTHS = (90, 170, 130, 0)
"""Pixels; 0: what is left."""


class AlertTable(QAbstractTableModel):
    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[Line, ...] = ()

    def show_rows(self, rows: tuple[Line, ...]) -> None:
        """Show these; where the same ones are listed in the same order, only what changed of them is told."""
        if [r.id for r in rows] != [r.id for r in self.rows]:
            self.beginResetModel()
            self.rows = rows
            self.endResetModel()
        elif rows != self.rows:
            self.rows = rows
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(HEADINGS) - 1))

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(HEADINGS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        return HEADINGS[section] if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        line = self.rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return (line.state, line.since, line.lasted, line.what)[index.column()]
        if role == Qt.ItemDataRole.ForegroundRole:
            t = theme.tokens()
            if line.state == "raised" and index.column() in (0, len(HEADINGS) - 1):
                return QColor(theme.meaning_color(line.meaning))
            return QColor(t.muted if line.state == "over" else t.text)
        return None
