"""A chart painted by hand whose marks can be pointed at: with the mouse for a tooltip, with a click or the arrow keys for its figures."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QToolTip, QWidget

from app.widgets import theme

_STEPS = {
    Qt.Key.Key_Left: QPointF(-1, 0),
    Qt.Key.Key_Right: QPointF(1, 0),
    Qt.Key.Key_Up: QPointF(0, -1),
    Qt.Key.Key_Down: QPointF(0, 1),
}


@dataclass(frozen=True)
class ChartMark:
    """Something drawn that stands for a measurement."""

    box: QRectF
    tooltip: str


class MarkChart(QWidget):
    """Subclasses give `marks` and `draw`. Emits `pointed` with the tooltip of the mark that was chosen."""

    pointed = Signal(str)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.current: int | None = None
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def marks(self) -> list[ChartMark]:
        """All that can be pointed at, as it lies now."""
        raise NotImplementedError

    def draw(self, painter: QPainter) -> None:
        """Everything but the frame around the current mark."""
        raise NotImplementedError

    def renew(self) -> None:
        """What is shown has changed."""
        self.current = None
        self.setAccessibleDescription("")
        self.update()

    def choose(self, index: int | None) -> None:
        """Make a mark the current one, and tell of it."""
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
        marks = self.marks()
        if self.current is not None and self.current < len(marks):
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QColor(theme.tokens().text))
            painter.drawRect(marks[self.current].box.adjusted(-1, -1, 0, 0))
        elif self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QColor(theme.tokens().accent))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.choose(self._mark_at(event.position()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = _STEPS.get(Qt.Key(event.key()))
        if step is None or not self.marks():
            super().keyPressEvent(event)
        else:
            self.choose(self._next(step))

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            index = self._mark_at(QPointF(event.pos()))
            QToolTip.showText(
                event.globalPos(), "" if index is None else self.marks()[index].tooltip, self
            )
            return True
        return super().event(event)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self.update()
        super().changeEvent(event)

    def _mark_at(self, point: QPointF) -> int | None:
        """The smallest mark there: marks may lie one over another."""
        found = [
            (m.box.width() * m.box.height(), i)
            for i, m in enumerate(self.marks())
            if m.box.contains(point)
        ]
        return min(found)[1] if found else None

    def _next(self, step: QPointF) -> int | None:
        """The nearest mark in a direction; the first one where none is chosen yet."""
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
                found.append((along + 3 * across, i))  # straight on before askew
        return min(found)[1] if found else None


def contender_color(index: int) -> QColor:
    """The colour of the `index`-th contender of a Result, the same in all its charts."""
    series = theme.tokens().series
    return QColor(series[index % len(series)])


def draw_legend(painter: QPainter, names: tuple[str, ...], width: float) -> float:
    """Names with their colours from the top left on, in as many lines as it takes. Returns the height used."""
    t, metrics = theme.tokens(), painter.fontMetrics()
    line, x, y = metrics.height() + theme.XS, 0.0, 0.0
    for i, name in enumerate(names):
        wide = 14 + metrics.horizontalAdvance(name) + theme.M
        if x and x + wide > width:
            x, y = 0.0, y + line
        painter.fillRect(QRectF(x, y + line / 2 - 4, 8, 8), contender_color(i))
        painter.setPen(QColor(t.text))
        painter.drawText(QRectF(x + 14, y, wide, line), int(Qt.AlignmentFlag.AlignVCenter), name)
        x += wide
    return y + line
