"""Paint a thin bar under the text of a cell that has a share."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QObject, QRectF, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem

from gpudeck.app.widgets.controls import draw_share
from gpudeck.app.widgets.list_table import Index

SHARE = Qt.ItemDataRole.UserRole
"""The role by which a model gives the share, 0 to 1; None for no bar."""


class ShareDelegate(QStyledItemDelegate):
    """Paint a cell, and its share as a bar."""

    def __init__(self, parent: QObject, above: int) -> None:
        """Paint bars whose upper edges are `above` pixels above the lower edges of their cells."""
        super().__init__(parent)
        self._above = above

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        super().paint(painter, option, index)
        share = index.data(SHARE)
        if share is None:
            return
        box: Any = option
        rect = box.rect
        bar = QRectF(rect.left() + 10, rect.bottom() - self._above, rect.width() - 20, 3)
        draw_share(painter, bar, min(share, 1.0))
