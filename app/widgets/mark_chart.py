"""Paint charts whose marks show their values when the user points at or moves to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QToolTip, QWidget

from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import plain_tooltip

_STEPS = {
    Qt.Key.Key_Left: QPointF(-1, 0),
    Qt.Key.Key_Right: QPointF(1, 0),
    Qt.Key.Key_Up: QPointF(0, -1),
    Qt.Key.Key_Down: QPointF(0, 1),
}


@dataclass(frozen=True)
class ChartMark:
    """Something drawn that stands for a value."""

    box: QRectF
    tooltip: str


def show_tooltip(widget: QWidget, event: QEvent, tooltip_at: Callable[[QPointF], str]) -> bool:
    """Show the tooltip of a point if `event` asks for it; return True if it does."""
    if not isinstance(event, QHelpEvent):
        return False
    text = plain_tooltip(tooltip_at(QPointF(event.pos())))
    QToolTip.showText(event.globalPos(), text, widget)
    return True


class MarkChart(QWidget):
    """Paint marks that the user can choose; subclasses implement `marks` and `draw`.

    Emits `pointed` with the tooltip of the mark that was chosen.
    """

    pointed = Signal(str)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.current: int | None = None
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def marks(self) -> list[ChartMark]:
        """Return everything that can be pointed at, in its current place."""
        raise NotImplementedError

    def draw(self, painter: QPainter) -> None:
        """Paint everything but the frame around the current mark."""
        raise NotImplementedError

    def renew(self) -> None:
        """Forget the current mark and paint everything again."""
        self.current = None
        self.setAccessibleDescription("")
        self.update()

    def choose(self, index: int | None) -> None:
        """Make a mark the current one."""
        if index is not None and index != self.current:
            self.current = index
            text = self.marks()[index].tooltip
            self.setAccessibleDescription(text)
            self.pointed.emit(text)
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(theme.font(theme.SMALL))
        self.draw(painter)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        marks = self.marks()
        if self.current is not None and self.current < len(marks):
            painter.setPen(QColor(theme.tokens().text))
            painter.drawRect(marks[self.current].box.adjusted(-1, -1, 0, 0))
        elif self.hasFocus():
            painter.setPen(QColor(theme.tokens().accent))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.choose(self.mark_at(event.position()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = _STEPS.get(Qt.Key(event.key()))
        if step is None or not self.marks():
            super().keyPressEvent(event)
        else:
            self.choose(self.mark_beside(step))

    def event(self, event: QEvent) -> bool:
        return show_tooltip(self, event, self._tooltip_at) or super().event(event)

    def _tooltip_at(self, point: QPointF) -> str:
        index = self.mark_at(point)
        return "" if index is None else self.marks()[index].tooltip

    def mark_at(self, point: QPointF) -> int | None:
        """Return the index of the smallest mark at a point, since marks may overlap."""
        found = [
            (m.box.width() * m.box.height(), i)
            for i, m in enumerate(self.marks())
            if m.box.contains(point)
        ]
        return min(found)[1] if found else None

    def mark_beside(self, step: QPointF) -> int | None:
        """Return the index of the nearest mark in a direction; 0 if none is chosen yet."""
        marks = self.marks()
        if self.current is None:
            return 0
        here = marks[self.current].box.center()
        found = []
        for i, mark in enumerate(marks):
            way = mark.box.center() - here
            along = QPointF.dotProduct(way, step)
            across = abs(way.x() * step.y() - way.y() * step.x())
            if along > 0.5:
                found.append((along + 3 * across, i))  # prefer marks straight ahead
        return min(found)[1] if found else None
