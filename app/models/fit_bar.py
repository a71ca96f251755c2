"""Show how a model would fill the free memory of a device."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.models.fit import Fit
from app.widgets import theme
from app.widgets.controls import label, set_text

_HEIGHT = 6


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
    def __init__(self) -> None:
        super().__init__()
        self._shares: tuple[float, ...] = ()
        self.setFixedHeight(_HEIGHT)
        self.setToolTip(
            "From the left: weights, memory to compute with, cache; the rest stays free"
        )

    def show_fit(self, fit: Fit) -> None:
        room = fit.room
        parts = (room.weights, room.work, room.cache) if room else ()
        shares = tuple(part / max(fit.free, 1) for part in parts)
        if shares != self._shares:
            self._shares = shares
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        box = QRectF(self.rect())
        painter.fillRect(box, QColor(t.line))
        left = box.left()
        for share, colour in zip(self._shares, (t.accent, t.muted, t.series[2]), strict=False):
            width = min(share * box.width(), box.right() - left)
            painter.fillRect(QRectF(left, box.top(), width, box.height()), QColor(colour))
            left += width
