"""Show which colours of a heat map stand for which values."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QLinearGradient, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme

_RAMP, _LEAST_RAMP, _HEIGHT = 56, 20, 8
"""Pixels of the row of colours, and the least of its length that shows how they differ."""


class HeatScale(QWidget):
    """Paint the colours of a heat map between the lowest and the highest value, if they fit."""

    def __init__(self) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self.ends = ("", "")
        self.hide()

    def show_ends(self, low: str, high: str) -> None:
        """Show these values at the two ends."""
        if (low, high) != self.ends:
            self.ends = low, high
            self.setAccessibleName(tr("Pale for {low}, strong for {high}", low=low, high=high))
            self.updateGeometry()
            self.update()

    def sizeHint(self) -> QSize:
        metrics = self.fontMetrics()
        texts = sum(metrics.horizontalAdvance(text) for text in self.ends)
        return QSize(texts + theme.px(_RAMP) + 2 * theme.S + theme.M, metrics.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(theme.font(theme.SMALL))
        painter.setPen(theme.tokens().muted)
        inside = self.rect().adjusted(theme.M, 0, 0, 0)
        low, high = (painter.fontMetrics().horizontalAdvance(text) for text in self.ends)
        ramp = QRectF(inside).adjusted(low + theme.S, 0, -high - theme.S, 0)
        if ramp.width() < theme.px(_LEAST_RAMP):
            return
        sides = (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
        for text, side in zip(self.ends, sides, strict=True):
            painter.drawText(inside, int(side | Qt.AlignmentFlag.AlignVCenter), text)
        height = theme.px(_HEIGHT)
        ramp.setTop((self.height() - height) / 2)
        ramp.setHeight(height)
        colors = QLinearGradient(ramp.topLeft(), ramp.topRight())
        colors.setColorAt(0.0, theme.shade(0.0))
        colors.setColorAt(1.0, theme.shade(1.0))
        painter.fillRect(ramp, colors)
