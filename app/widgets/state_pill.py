"""Paint a state as a pill in its colour."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from gpudeck.app.widgets import theme
from gpudeck.app.widgets.list_table import Index
from gpudeck.app.widgets.stylesheet import PILL_SHARE
from gpudeck.language.numbers import capitalized

_INDENT = 10
"""Pixels before a pill, as before the heading of its column."""


class StateDelegate(QStyledItemDelegate):
    """Paint the state as a pill in its colour, which it keeps where the row is selected."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        text = capitalized(str(index.data(Qt.ItemDataRole.DisplayRole) or ""))
        view: Any = QStyleOptionViewItem(option)
        self.initStyleOption(view, index)
        view.text = ""
        view.widget.style().drawControl(
            QStyle.ControlElement.CE_ItemViewItem, view, painter, view.widget
        )
        if not text:
            return
        color = QColor(index.data(Qt.ItemDataRole.ForegroundRole))
        t = theme.tokens()
        font = theme.font(theme.SMALL, strong=True)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font)
        width = painter.fontMetrics().horizontalAdvance(text) + 16
        height = painter.fontMetrics().height() + 4
        box = QRectF(
            view.rect.left() + _INDENT, view.rect.center().y() - height / 2 + 0.5, width, height
        )
        painter.setPen(theme.blend(color, QColor(t.surface), 3 * PILL_SHARE))
        painter.setBrush(theme.blend(color, QColor(t.surface), PILL_SHARE))
        painter.drawRoundedRect(box, height / 2, height / 2)
        painter.setPen(color)
        painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), text)
        painter.restore()
