"""Paint earlier results of a workload as bars, newest on the right."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter

from app.format.results import EarlierResult
from app.format.values import significant
from app.widgets import theme
from app.widgets.mark_chart import ChartMark, MarkChart

_WIDEST, _GAP, _ROOM = 44.0, 8.0, 20.0
_CENTER = int(Qt.AlignmentFlag.AlignCenter)


class ResultBars(MarkChart):
    """Show TFLOP/s as the height of a bar; a failed result is drawn in outline."""

    def __init__(self) -> None:
        super().__init__("Earlier results")
        self.bars: tuple[EarlierResult, ...] = ()
        self.setMinimumHeight(96)

    def show_bars(self, bars: tuple[EarlierResult, ...]) -> None:
        """Show other results."""
        if bars != self.bars:
            self.bars = bars
            self.renew()

    def marks(self) -> list[ChartMark]:
        width = min(_WIDEST, (self.width() + _GAP) / max(len(self.bars), 1) - _GAP)
        highest = max((bar.tflops for bar in self.bars), default=0.0) or 1.0
        room = self.height() - 2 * _ROOM
        marks = []
        for i, bar in enumerate(self.bars):
            height = room * bar.tflops / highest
            box = QRectF(i * (width + _GAP), _ROOM + room - height, width, max(height, 1.0))
            marks.append(ChartMark(box, bar.tooltip))
        return marks

    def draw(self, painter: QPainter) -> None:
        t, base = theme.tokens(), self.height() - _ROOM
        painter.fillRect(QRectF(0, base, self.width(), 1), QColor(t.line))
        for mark, bar in zip(self.marks(), self.bars, strict=True):
            box, newest = mark.box, bar is self.bars[-1]
            if bar.passed:
                painter.fillRect(box, QColor(t.accent if newest else t.line))
            else:
                painter.setPen(QColor(t.failed))
                painter.drawRect(box.adjusted(0, 0, -1, -1))
            painter.setPen(QColor(t.text if newest else t.muted))
            room = QRectF(box.left() - _GAP / 2, 0, box.width() + _GAP, _ROOM)
            if painter.fontMetrics().horizontalAdvance("0000") <= room.width():
                above = room.translated(0, box.top() - _ROOM)
                painter.drawText(above, _CENTER, significant(bar.tflops))
                painter.drawText(room.translated(0, base), _CENTER, str(bar.job))
