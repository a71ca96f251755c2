"""The jobs as a Qt table model, and how its cells are painted."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QMimeData, QModelIndex, QPersistentModelIndex, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem

from app import theme
from app.models.job_list import WAITING, Line, neighbour

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()

HEADINGS = ("Job", "Name", "State", "Device", "Needs", "Progress", "Duration", "TFLOP/s")
WIDTHS = (58, 150, 88, 76, 140, 0, 84, 76)
"""Pixels; 0: what is left."""
PROGRESS = HEADINGS.index("Progress")
_RIGHT = (HEADINGS.index("Duration"), HEADINGS.index("TFLOP/s"))
_STATE = HEADINGS.index("State")
_NEEDS = HEADINGS.index("Needs")
SHARE = Qt.ItemDataRole.UserRole
_MIME = "application/x-gpudeck-job"


class JobTable(QAbstractTableModel):
    """Rows that change in place keep their selection; only rows that come, go and move are told as such.

    Emits `wanted` when the reader comes to the last row, and `more` says that there is more; `moved` with a job that waits, the one
    beside which it was dropped, and whether after that one.
    """

    wanted = Signal()
    moved = Signal(int, int, bool)

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Line] = []
        self.more = False

    def show_rows(self, lines: Sequence[Line]) -> None:
        """Show these lines, in this order."""
        start, end = _same(self.rows, lines), 0
        if start < max(len(self.rows), len(lines)):
            end = _same(self.rows[: start - 1 if start else None : -1], lines[: start - 1 if start else None : -1])
        if start + end == len(self.rows) < len(lines):
            self.beginInsertRows(_NOWHERE, start, len(lines) - end - 1)
            self.rows[start:start] = lines[start : len(lines) - end]
            self.endInsertRows()
        elif start + end < len(self.rows):
            places = {line.id: at for at, line in enumerate(lines)}
            self._remove(places)
            self._sort(places)
            self._insert(lines)
        others = [at for at, same in enumerate(map(operator.is_, self.rows, lines)) if not same]
        changed = [at for at in others if self.rows[at] != lines[at]]
        self.rows = list(lines)
        if changed:
            self.dataChanged.emit(self.index(changed[0], 0), self.index(changed[-1], len(HEADINGS) - 1))

    def _remove(self, places: dict[int, int]) -> None:
        """Take out what has no place any more, run by run from the end."""
        end = len(self.rows)
        while end:
            start = end
            while start and self.rows[start - 1].id not in places:
                start -= 1
            if start < end:
                self.beginRemoveRows(_NOWHERE, start, end - 1)
                del self.rows[start:end]
                self.endRemoveRows()
            end = max(start - 1, 0)

    def _sort(self, places: dict[int, int]) -> None:
        """Bring what is left into its new order; what is selected stays selected."""
        ordered = sorted(self.rows, key=lambda line: places[line.id])
        if all(old is new for old, new in zip(self.rows, ordered, strict=True)):
            return
        self.layoutAboutToBeChanged.emit()
        now = {line.id: at for at, line in enumerate(ordered)}
        old = self.persistentIndexList()
        new = [self.index(now[self.rows[index.row()].id], index.column()) for index in old]
        self.rows = ordered
        self.changePersistentIndexList(old, new)
        self.layoutChanged.emit()

    def _insert(self, lines: Sequence[Line]) -> None:
        """Put in what is new, run by run from the beginning."""
        known, at = {line.id for line in self.rows}, 0
        while at < len(lines):
            end = at
            while end < len(lines) and lines[end].id not in known:
                end += 1
            if at < end:
                self.beginInsertRows(_NOWHERE, at, end - 1)
                self.rows[at:at] = lines[at:end]
                self.endInsertRows()
            at = end + 1

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(HEADINGS)

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.ItemIsDropEnabled
        movable = self.rows[index.row()].kind == WAITING
        return super().flags(index) | (Qt.ItemFlag.ItemIsDragEnabled if movable else Qt.ItemFlag.NoItemFlags)

    def supportedDropActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    def mimeTypes(self) -> list[str]:
        return [_MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        data = QMimeData()
        data.setData(_MIME, str(self.rows[indexes[0].row()].id).encode())
        return data

    def canDropMimeData(self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index) -> bool:
        return self._goal(data, row, parent) is not None

    def dropMimeData(self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index) -> bool:
        """Nothing moves here: the next snapshot tells what became of it."""
        if (goal := self._goal(data, row, parent)) is not None:
            self.moved.emit(*goal)
        return False

    def _goal(self, data: QMimeData, row: int, parent: Index) -> tuple[int, int, bool] | None:
        job = bytes(data.data(_MIME).data()).decode()
        if not job.isdecimal():
            return None
        found = neighbour(self.rows, int(job), parent.row() if parent.isValid() else row)
        return None if found is None else (int(job), *found)

    def canFetchMore(self, parent: Index) -> bool:
        return self.more

    def fetchMore(self, parent: Index) -> None:
        self.wanted.emit()

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return HEADINGS[section]
        return _alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        line, column = self.rows[index.row()], index.column()
        row = line.row
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return (str(row.id), row.name, row.state, row.device, line.needs, row.doing, row.duration, row.tflops)[column]
        if role == Qt.ItemDataRole.ForegroundRole:
            return QColor(_color(line, column))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        return row.share if role == SHARE and column == PROGRESS else None


def _same(old: Sequence[Line], new: Sequence[Line]) -> int:
    """How many lines from the first on are those of the same jobs: of a long history nearly all, and most of them the very same."""
    there = enumerate(map(operator.is_, old, new))
    return next((at for at, same in there if not same and old[at].id != new[at].id), min(len(old), len(new)))


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


def _color(line: Line, column: int) -> str:
    t, row = theme.tokens(), line.row
    if row.meaning and column in (_STATE, PROGRESS):
        return theme.meaning_color(row.meaning)
    if column == _STATE:
        return t.accent if row.state == "running" else t.text
    return t.muted if column in (PROGRESS, _NEEDS) else t.text
