"""Show how a model would fill the free memory of a device."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.format.values import memory
from app.models.fit import Fit
from app.widgets import theme
from app.widgets.controls import label, set_text

_HEIGHT, _DOT = 6, 8
"""Pixels of height of the bar, and of the dots before the names."""


class FitBar(QWidget):
    """Show a line of text over a bar of weights, work and cache."""

    def __init__(self) -> None:
        super().__init__()
        self.text = label(size="small", meaning="muted", wrap=True)
        self.bar = _Bar()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.XS)
        layout.addWidget(self.text)
        layout.addWidget(self.bar)

    def show_fit(self, fit: Fit) -> None:
        """Show how the model fits, or why it does not."""
        set_text(self.text, fit.text)
        theme.mark(self.text, "meaning", "muted" if fit.room else "hot")
        self.bar.setVisible(fit.room is not None)
        self.bar.show_fit(fit)


class _Bar(QWidget):
    """Paint the parts of the memory as a bar, and their names and sizes below it."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: tuple[tuple[str, int], ...] = ()
        self.setFixedHeight(_HEIGHT + theme.XS + theme.px(theme.SMALL) + theme.S)
        self.setAccessibleName("Memory of the model")

    def show_fit(self, fit: Fit) -> None:
        if fit.parts != self._parts:
            self._parts = fit.parts
            self.setAccessibleDescription(", ".join(self._texts()))
            self.setToolTip("\n".join(self._texts()))
            self.update()

    def _texts(self) -> list[str]:
        return [f"{name} {memory(size)}" for name, size in self._parts]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        colors = [QColor(color) for color in (t.accent, t.muted, t.series[2], t.line)]
        whole, left = sum(size for _, size in self._parts) or 1, 0.0
        for (_, size), color in zip(self._parts, colors, strict=False):
            width = size / whole * self.width()
            painter.fillRect(QRectF(left, 0, width, _HEIGHT), color)
            left += width
        painter.setFont(theme.font(theme.SMALL))
        metrics, left = painter.fontMetrics(), 0.0
        top, height = _HEIGHT + theme.XS, metrics.height()
        for text, color in zip(self._texts(), colors, strict=False):
            wide = _DOT + theme.XS + metrics.horizontalAdvance(text)
            if left + wide > self.width():
                return  # the tooltip has all of them
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawEllipse(QRectF(left, top + (height - _DOT) / 2, _DOT, _DOT))
            painter.setPen(QColor(t.muted))
            box = QRectF(left + _DOT + theme.XS, top, wide, height)
            painter.drawText(box, int(Qt.AlignmentFlag.AlignVCenter), text)
            left += wide + theme.L
