"""A thin band under the jobs that says what else happened when: throttling, alerts, Xid events."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QToolTip, QWidget

from app.dashboard.timeline import Mark
from app.widgets import theme

_HEIGHT = 5
_REACH = 3
"""Pixels beside a mark that still count as on it."""


def color(mark: Mark) -> str:
    """In the colours that these things have everywhere."""
    return str(getattr(theme.tokens(), mark.meaning))


class Marks(QWidget):
    """At least three pixels wide each; hidden while there are none."""

    def __init__(self, left: int, right: int) -> None:
        """`left`, `right`: pixels at both sides that do not belong to the time axis."""
        super().__init__()
        self._left, self._right = left, right
        self.marks: tuple[Mark, ...] = ()
        self._limits = (0.0, 1.0)
        self.setFixedHeight(_HEIGHT)
        self.setAccessibleName("What happened over time")
        self.hide()

    def show_marks(self, marks: tuple[Mark, ...], limits: tuple[float, float]) -> None:
        """`limits`: both ends of the time axis, seconds since the epoch."""
        if marks or self.marks:
            self.marks, self._limits = marks, limits
            self.setVisible(bool(marks))
            self.setAccessibleDescription(
                "; ".join(mark.tooltip.replace("\n", ", ") for mark in marks[-5:])
            )
            self.update()

    def boxes(self) -> list[tuple[QRectF, Mark]]:
        """Where each mark is drawn."""
        start, end = self._limits
        width = self.width() - self._left - self._right
        found = []
        for mark in self.marks:
            x, right = (
                self._left + width * min(max((t - start) / (end - start), 0.0), 1.0)
                for t in (mark.start, mark.end)
            )
            found.append(
                (QRectF(min(x, self._left + width - 3), 0, max(right - x, 3), _HEIGHT), mark)
            )
        return found

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        for box, mark in self.boxes():
            painter.fillRect(box, QColor(color(mark)))

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            at = QPointF(event.pos())
            here = [
                mark.tooltip
                for box, mark in self.boxes()
                if box.adjusted(-_REACH, 0, _REACH, 0).contains(at)
            ]
            QToolTip.showText(event.globalPos(), "\n".join(here), self)
            return True
        return super().event(event)
