"""Show what may be cleaned up as a tree of kinds and findings with check boxes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from PySide6.QtCore import (
    QAbstractItemModel,
    QItemSelectionModel,
    QModelIndex,
    QObject,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QPainter, QPixmap, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTreeView

from gpudeck.app.cleanup.summary import FindingGroup, age, groups
from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import plain_tooltip
from gpudeck.app.widgets.list_table import LEFT, NO_PARENT, RIGHT, Index, plain_cell
from gpudeck.assistant.housekeeping import TITLES, Finding

HEADINGS = (tr_noop("Item"), tr_noop("Size"), tr_noop("Unused"), tr_noop("Reason"))
_WIDTHS = (420, 80, 80)
_ITEM_SHARE = 0.33
"""The share of the width that the items take in any case; more where the reasons leave room."""
_ROOMY = 640
"""Pixels of width from which on it is shown how long an item is unused; the details say it, too."""
PROCESS_HINT = tr_noop("End these on the Processes page")
_CHOSEN_AT_FIRST = ("cache", "log", "core", "memory")
"""Kinds that nobody creates on purpose."""
_OPEN_AT_MOST = 6
"""The most findings of a kind that are visible at first."""
_TOP = 0
"""The internal id of a kind; that of a finding is the row of its kind plus one."""


_DOT = 9
"""Pixels of the dot of a kind, in its colour in the bar above."""


def _dot(kind: int) -> QPixmap:
    """Return the dot of the kind in this row."""
    colors = theme.owner_colors()
    made = QPixmap(_DOT, _DOT)
    made.fill(Qt.GlobalColor.transparent)
    painter = QPainter(made)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(colors[kind % len(colors)]))
    painter.drawEllipse(0, 0, _DOT - 1, _DOT - 1)
    painter.end()
    return made


class FindModel(QAbstractItemModel):
    """List kinds and their findings. Emits `chosen_changed` when a check box changes."""

    chosen_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.groups: tuple[FindingGroup, ...] = ()
        self._boxes: list[list[bool]] = []

    def show_finds(self, finds: Iterable[Finding]) -> None:
        """Show other findings; those that were shown already keep the state of their boxes."""
        known = {find.place: box for find, box in self._with_boxes()}
        self.beginResetModel()
        self.groups = groups(finds)
        self._boxes = [
            [known.get(find.place, group.kind in _CHOSEN_AT_FIRST) for find in group.finds]
            for group in self.groups
        ]
        self.endResetModel()
        self.chosen_changed.emit()

    def chosen(self) -> tuple[Finding, ...]:
        """Return the findings whose boxes are checked."""
        return tuple(find for find, box in self._with_boxes() if box)

    def _with_boxes(self) -> list[tuple[Finding, bool]]:
        return [
            pair
            for group, boxes in zip(self.groups, self._boxes, strict=True)
            for pair in zip(group.finds, boxes, strict=True)
        ]

    def index(self, row: int, column: int, parent: Index = NO_PARENT) -> QModelIndex:
        if not self.hasIndex(row, column, parent):
            return QModelIndex()
        return self.createIndex(row, column, parent.row() + 1 if parent.isValid() else _TOP)

    def parent(self, child: Index = NO_PARENT) -> QModelIndex | QObject:  # type: ignore[override]
        if not child.isValid() or child.internalId() == _TOP:
            return QModelIndex()
        return self.createIndex(child.internalId() - 1, 0, _TOP)

    def rowCount(self, parent: Index = NO_PARENT) -> int:
        if not parent.isValid():
            return len(self.groups)
        if parent.internalId() != _TOP or parent.column() != 0:
            return 0
        return len(self.groups[parent.row()].finds)

    def columnCount(self, parent: Index = NO_PARENT) -> int:
        return len(HEADINGS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if role == Qt.ItemDataRole.DisplayRole:
            return tr(HEADINGS[section])
        return _alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

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
                return plain_cell(self._cell(index))
            case Qt.ItemDataRole.ToolTipRole if index.column() in (0, 3):
                return plain_tooltip(self._cell(index))
            case Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(index.column())
            case Qt.ItemDataRole.DecorationRole if (
                not index.column() and index.internalId() == _TOP
            ):
                return _dot(index.row())
            case Qt.ItemDataRole.CheckStateRole if self._has_box(index):
                return self._check_state(index)
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Check or clear the box of a finding, or of all findings of a kind."""
        if role != Qt.ItemDataRole.CheckStateRole or not self._has_box(index):
            return False
        checked, top = Qt.CheckState(value) == Qt.CheckState.Checked, index.internalId() == _TOP
        at = self.group_row(index)
        kind, boxes = self.index(at, 0), self._boxes[at]
        if top:
            boxes[:] = [checked] * len(boxes)
            self.dataChanged.emit(self.index(0, 0, kind), self.index(len(boxes) - 1, 0, kind))
        else:
            boxes[index.row()] = checked
            self.dataChanged.emit(index, index)
        self.dataChanged.emit(kind, kind)
        self.chosen_changed.emit()
        return True

    def group_row(self, index: Index) -> int:
        """Return the place of the kind of a row."""
        return index.row() if index.internalId() == _TOP else index.internalId() - 1

    def _has_box(self, index: Index) -> bool:
        return index.column() == 0 and self.groups[self.group_row(index)].kind != "process"

    def _check_state(self, index: Index) -> Qt.CheckState:
        boxes = self._boxes[self.group_row(index)]
        if index.internalId() != _TOP:
            boxes = [boxes[index.row()]]
        if all(boxes):
            return Qt.CheckState.Checked
        return Qt.CheckState.PartiallyChecked if any(boxes) else Qt.CheckState.Unchecked

    def _cell(self, index: Index) -> str:
        group = self.groups[self.group_row(index)]
        if index.internalId() == _TOP:
            hint = tr(PROCESS_HINT) if group.kind == "process" else ""
            return (group.title, memory(group.bytes), "", hint)[index.column()]
        find = group.finds[index.row()]
        reason = tr_text(find.reason)
        return (find.shown, memory(find.bytes), age(find.age), reason)[index.column()]


def _alignment(column: int) -> int:
    return RIGHT if column in (1, 2) else LEFT


class FindTree(QTreeView):
    """Show the findings of a search; `rows` is its model."""

    def __init__(self) -> None:
        super().__init__()
        self.finds: tuple[Finding, ...] = ()
        self.rows = FindModel()
        self.setModel(self.rows)
        self.setObjectName("Items to clean up")
        self.setAccessibleName(tr("Items to clean up"))
        self.setAccessibleDescription(
            tr("Space checks or clears a row, Right and Left open and close a kind")
        )
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setUniformRowHeights(True)
        self.setIconSize(QSize(_DOT, _DOT))
        self.setIndentation(theme.px(theme.L + theme.XS))
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # the end of a path names the item
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.header()
        header.setStretchLastSection(True)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_items()

    def _fit_items(self) -> None:
        """Show the items whole where the reasons leave room for them."""
        header, width = self.header(), self.viewport().width()
        self.setColumnHidden(2, width < theme.px(_ROOMY))
        for at in (1, 2):
            header.resizeSection(at, max(self.sizeHintForColumn(at), theme.px(_WIDTHS[at])))
        needed = max(self.sizeHintForColumn(0), theme.px(_WIDTHS[0]))
        both = width - header.sectionSize(1) - header.sectionSize(2)
        spare = min(both - self.sizeHintForColumn(3), both // 2 - 1)  # the reason decides
        header.resizeSection(0, min(needed, max(spare, int(_ITEM_SHARE * width))))

    def described(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return the title of the chosen row, and what is known of it as captions and values."""
        index = self.currentIndex()
        if not self.selectionModel().isSelected(index) or not self.rows.groups:
            return "", ()
        group = self.rows.groups[self.rows.group_row(index)]
        if index.internalId() == _TOP:
            oldest = max(find.age for find in group.finds)
            return group.title, ((tr("Size"), memory(group.bytes)), (tr("Oldest"), age(oldest)))
        find = group.finds[index.row()]
        return tr(TITLES[group.kind]), (
            (tr("Item"), find.shown),
            (tr("Size"), memory(find.bytes)),
            (tr("Unused"), age(find.age)),
            (tr("Reason"), tr_text(find.reason)),
        )

    def show_finds(self, finds: Iterable[Finding]) -> None:
        """Show other findings; kinds that were shown already stay open or closed."""
        was_open = {
            group.kind: self.isExpanded(self.rows.index(at, 0))
            for at, group in enumerate(self.rows.groups)
        }
        self.finds = tuple(finds)
        self.rows.show_finds(self.finds)
        for at, group in enumerate(self.rows.groups):
            few = len(group.finds) <= _OPEN_AT_MOST
            self.setExpanded(self.rows.index(at, 0), was_open.get(group.kind, few))
        at_first = QItemSelectionModel.SelectionFlag.NoUpdate  # keys work; a check is the choice
        self.selectionModel().setCurrentIndex(self.rows.index(0, 0), at_first)
        self._fit_items()
