"""Paint a state as a pill in its colour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.list_table import Index
from gpudeck.app.widgets.stylesheet import PILL_SHARE
from gpudeck.language.numbers import capitalized

_INDENT = 10
"""Pixels before a pill, as before the heading of its column."""
_PADDING = 16
"""Pixels of a pill that are not text."""
PLAIN = Qt.ItemDataRole.UserRole + 1
"""The role by which a model says that a state is a word without a pill, as it needs nobody."""


def show_pills(table: QTableView, column: int, states: Iterable[str]) -> None:
    """Show a column as pills, and make it wide enough for each of these states, translated."""
    table.setItemDelegateForColumn(column, StateDelegate(table))
    metrics = QFontMetrics(theme.font(theme.SMALL, strong=True))
    widest = max(metrics.horizontalAdvance(capitalized(tr(state))) for state in states)
    width = max(table.columnWidth(column), widest + _PADDING + 2 * _INDENT)
    table.horizontalHeader().resizeSection(column, width)


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
        room = view.rect.width() - _INDENT - _PADDING
        text = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, room)
        width = painter.fontMetrics().horizontalAdvance(text) + _PADDING
        height = painter.fontMetrics().height() + 4
        box = QRectF(
            view.rect.left() + _INDENT, view.rect.center().y() - height / 2 + 0.5, width, height
        )
        side = Qt.AlignmentFlag.AlignCenter
        if index.data(PLAIN):
            painter.setFont(theme.font())
            side = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
            box.setRight(view.rect.right())
        else:
            painter.setPen(theme.blend(color, QColor(t.surface), 3 * PILL_SHARE))
            painter.setBrush(theme.blend(color, QColor(t.surface), PILL_SHARE))
            painter.drawRoundedRect(box, height / 2, height / 2)
        painter.setPen(color)
        painter.drawText(box, int(side), text)
        painter.restore()
