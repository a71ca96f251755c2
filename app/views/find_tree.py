"""What may be cleaned up, by kind, with check boxes."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTreeWidget, QTreeWidgetItem, QTreeWidgetItemIterator

from app.models.cleaning import Group, age, groups
from app.models.format import memory
from assistant.housekeeping import Find

HEADINGS = ("What", "Size", "Last used", "Why it may go")
_WIDTHS = (420, 100, 100)
_FIND = Qt.ItemDataRole.UserRole
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
END = "to be ended on the page of processes"
_FEW = 6
"""Finds of a kind that are shown without being asked for."""
_CHOSEN = ("cache", "log", "core", "memory")
"""Kinds that are chosen at first; what a person may have made on purpose is not."""


class FindTree(QTreeWidget):
    """Emits `changed` once other finds are chosen."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.finds: tuple[Find, ...] = ()
        self.setHeaderLabels(HEADINGS)
        self.setAccessibleName("What may be cleaned up")
        self.setAccessibleDescription("Space chooses or leaves a row, Right and Left open and close a kind")
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setUniformRowHeights(True)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.header()
        header.setStretchLastSection(True)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        for at, width in enumerate(_WIDTHS):
            header.resizeSection(at, width)
        for at in (1, 2):
            self.headerItem().setTextAlignment(at, _RIGHT)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(0)
        self._pause.timeout.connect(self.changed)
        self.itemChanged.connect(lambda *_: self._pause.start())

    def show_finds(self, finds: Iterable[Find]) -> None:
        """Instead of those that are shown."""
        self.finds = tuple(finds)
        self.blockSignals(True)
        self.clear()
        for group in groups(self.finds):
            rows = [_find(find) for find in group.finds]
            self.addTopLevelItem(top := _row(group.title, memory(group.bytes), "", END if group.kind == "process" else ""))
            top.addChildren(rows)
            _offer(group, top, rows)
            top.setExpanded(len(group.finds) <= _FEW)
        self.blockSignals(False)
        self.setCurrentIndex(self.model().index(0, 0))
        self.changed.emit()

    def chosen(self) -> tuple[Find, ...]:
        """Those whose boxes are checked."""
        found, rows = [], QTreeWidgetItemIterator(self, QTreeWidgetItemIterator.IteratorFlag.Checked)
        while item := rows.value():
            if isinstance(find := item.data(0, _FIND), Find):
                found.append(find)
            rows += 1
        return tuple(found)


def _offer(group: Group, top: QTreeWidgetItem, rows: Iterable[QTreeWidgetItem]) -> None:
    """Boxes to check; none for processes, which are not moved."""
    if group.kind == "process":
        return
    state = Qt.CheckState.Checked if group.kind in _CHOSEN else Qt.CheckState.Unchecked
    for row in rows:
        row.setCheckState(0, state)
    top.setFlags(top.flags() | Qt.ItemFlag.ItemIsAutoTristate)
    top.setCheckState(0, state)


def _find(find: Find) -> QTreeWidgetItem:
    made = _row(find.shown, memory(find.bytes), age(find.age), find.reason)
    made.setData(0, _FIND, find)
    for at in (0, 3):
        made.setToolTip(at, made.text(at))
    return made


def _row(*cells: str) -> QTreeWidgetItem:
    made = QTreeWidgetItem(list(cells))
    for at in (1, 2):
        made.setTextAlignment(at, _RIGHT)
    return made
