"""What may be cleaned up as a tree of kinds and finds, with check boxes; a row costs nothing until it is seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from PySide6.QtCore import (
    QAbstractItemModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    Signal,
)

from app.cleanup.summary import Group, age, groups
from app.format.values import memory
from assistant.housekeeping import Finding

Index = QModelIndex | QPersistentModelIndex
HEADINGS = ("What", "Size", "Last used", "Why it may go")
END = "to be ended on the page of processes"
_CHOSEN = ("cache", "log", "core", "memory")
"""Kinds that are chosen at first; what a person may have made on purpose is not."""
_NOWHERE = QModelIndex()
_TOP = 0
"""Internal id of a kind; that of a find is one more than the row of its kind."""
_RIGHT = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
_LEFT = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)


class FindModel(QAbstractItemModel):
    """Emits `chosen_changed` once other finds are chosen."""

    chosen_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.groups: tuple[Group, ...] = ()
        self._boxes: list[list[bool]] = []

    def show_finds(self, finds: Iterable[Finding]) -> None:
        """Instead of those that are shown; those that were shown already stay chosen, or left, as they are."""
        known = {
            find.place: box
            for group, boxes in zip(self.groups, self._boxes, strict=True)
            for find, box in zip(group.finds, boxes, strict=True)
        }
        self.beginResetModel()
        self.groups = groups(finds)
        self._boxes = [
            [known.get(find.place, group.kind in _CHOSEN) for find in group.finds]
            for group in self.groups
        ]
        self.endResetModel()
        self.chosen_changed.emit()

    def chosen(self) -> tuple[Finding, ...]:
        """Those whose boxes are checked."""
        return tuple(
            find
            for group, boxes in zip(self.groups, self._boxes, strict=True)
            for find, box in zip(group.finds, boxes, strict=True)
            if box
        )

    def index(self, row: int, column: int, parent: Index = _NOWHERE) -> QModelIndex:
        if not self.hasIndex(row, column, parent):
            return QModelIndex()
        return self.createIndex(row, column, parent.row() + 1 if parent.isValid() else _TOP)

    def parent(self, child: Index = _NOWHERE) -> QModelIndex | QObject:  # type: ignore[override]
        if not child.isValid() or child.internalId() == _TOP:
            return QModelIndex()
        return self.createIndex(child.internalId() - 1, 0, _TOP)

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        if not parent.isValid():
            return len(self.groups)
        return (
            len(self.groups[parent.row()].finds)
            if parent.internalId() == _TOP and parent.column() == 0
            else 0
        )

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        return len(HEADINGS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return HEADINGS[section]
            case Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(section)
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.NoItemFlags
        flags = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
        if index.internalId() != _TOP:
            flags |= Qt.ItemFlag.ItemNeverHasChildren
        return flags | Qt.ItemFlag.ItemIsUserCheckable if self._has_box(index) else flags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return self._cell(index)
            case Qt.ItemDataRole.ToolTipRole if index.column() in (0, 3):
                return self._cell(index)
            case Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(index.column())
            case Qt.ItemDataRole.CheckStateRole if self._has_box(index):
                return self._state(index)
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Choose or leave a find, or all of a kind."""
        if role != Qt.ItemDataRole.CheckStateRole or not self._has_box(index):
            return False
        checked, top = Qt.CheckState(value) == Qt.CheckState.Checked, index.internalId() == _TOP
        at = index.row() if top else index.internalId() - 1
        if top:
            self._boxes[at] = [checked] * len(self._boxes[at])
        else:
            self._boxes[at][index.row()] = checked
        kind = self.index(at, 0)
        self.dataChanged.emit(kind, kind)
        if top:
            self.dataChanged.emit(
                self.index(0, 0, kind), self.index(len(self._boxes[at]) - 1, 0, kind)
            )
        else:
            self.dataChanged.emit(index, index)
        self.chosen_changed.emit()
        return True

    def _has_box(self, index: Index) -> bool:
        return index.column() == 0 and self._group(index).kind != "process"

    def _group(self, index: Index) -> Group:
        return self.groups[index.row() if index.internalId() == _TOP else index.internalId() - 1]

    def _state(self, index: Index) -> Qt.CheckState:
        top = index.internalId() == _TOP
        boxes = (
            self._boxes[index.row()] if top else [self._boxes[index.internalId() - 1][index.row()]]
        )
        return (
            Qt.CheckState.Checked
            if all(boxes)
            else Qt.CheckState.PartiallyChecked
            if any(boxes)
            else Qt.CheckState.Unchecked
        )

    def _cell(self, index: Index) -> str:
        group = self._group(index)
        if index.internalId() == _TOP:
            return (group.title, memory(group.bytes), "", END if group.kind == "process" else "")[
                index.column()
            ]
        find = group.finds[index.row()]
        match index.column():
            case 0:
                return find.shown
            case 1:
                return memory(find.bytes)
            case 2:
                return age(find.age)
        return find.reason


def _alignment(column: int) -> int:
    return _RIGHT if column in (1, 2) else _LEFT
