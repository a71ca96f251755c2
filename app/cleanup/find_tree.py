"""What may be cleaned up, by kind, with check boxes."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTreeView

from app.cleanup.find_model import FindModel
from assistant.housekeeping import Finding

_WIDTHS = (420, 100, 100)
_FEW = 6
"""Finds of a kind that are shown without being asked for."""


class FindTree(QTreeView):
    """`rows` has them, and says which are chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.finds: tuple[Finding, ...] = ()
        self.rows = FindModel()
        self.setModel(self.rows)
        self.setAccessibleName("What may be cleaned up")
        self.setAccessibleDescription(
            "Space chooses or leaves a row, Right and Left open and close a kind"
        )
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setUniformRowHeights(True)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.header()
        header.setStretchLastSection(True)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        for at, width in enumerate(_WIDTHS):
            header.resizeSection(at, width)

    def show_finds(self, finds: Iterable[Finding]) -> None:
        """Instead of those that are shown; kinds that were shown already stay open or closed."""
        was_open = {
            group.kind: self.isExpanded(self.rows.index(at, 0))
            for at, group in enumerate(self.rows.groups)
        }
        self.finds = tuple(finds)
        self.rows.show_finds(self.finds)
        for at, group in enumerate(self.rows.groups):
            self.setExpanded(
                self.rows.index(at, 0), was_open.get(group.kind, len(group.finds) <= _FEW)
            )
        self.setCurrentIndex(self.rows.index(0, 0))
