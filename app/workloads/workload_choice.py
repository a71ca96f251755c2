"""Choose a workload: a button with its title and the rate that it reached last."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton

from gpudeck.app.widgets import theme

_RIGHT = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
_PADDING = 10


class WorkloadChoice(QPushButton):
    """Show a title on the left, and the newest TFLOP/s on the right where there is room."""

    def __init__(self, title: str, summary: str) -> None:
        super().__init__(title)
        self.rate = ""
        self.setProperty("kind", "nav")
        self.setCheckable(True)
        self.setAutoDefault(False)
        self.setToolTip(summary)

    def show_rate(self, rate: str) -> None:
        """Show the newest rate; an empty text for none."""
        if rate != self.rate:
            self.rate = rate
            self.setAccessibleDescription(f"{rate} TFLOP/s" if rate else "")
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.rate:
            return
        painter = QPainter(self)
        title = self.fontMetrics().horizontalAdvance(self.text())
        painter.setFont(theme.font(theme.SMALL))
        needed = title + painter.fontMetrics().horizontalAdvance(self.rate) + 3 * _PADDING
        if needed <= self.width():
            painter.setPen(QColor(theme.tokens().muted))
            painter.drawText(self.rect().adjusted(0, 0, -_PADDING, 0), _RIGHT, self.rate)
