"""Earlier results of a workload as bars, the newest on the right."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QToolTip, QWidget

from app.format.values import significant
from app.widgets import theme
from app.workloads.results import Bar

_WIDEST, _GAP, _ROOM = 44.0, 8.0, 20.0


class ResultBars(QWidget):
    """Height is TFLOP/s; a failed result is drawn in outline."""

    def __init__(self) -> None:
        super().__init__()
        self.bars: tuple[Bar, ...] = ()
        self.setMinimumHeight(96)
        self.setAccessibleName("Earlier results")

    def show_bars(self, bars: tuple[Bar, ...]) -> None:
        if bars != self.bars:
            self.bars = bars
            self.update()

    def boxes(self) -> list[QRectF]:
        """The rectangle of each bar."""
        if not self.bars:
            return []
        width = min(_WIDEST, (self.width() + _GAP) / len(self.bars) - _GAP)
        highest = max((b.tflops for b in self.bars), default=0.0) or 1.0
        room = self.height() - 2 * _ROOM
        return [
            QRectF(
                i * (width + _GAP),
                _ROOM + room * (1 - b.tflops / highest),
                width,
                max(room * b.tflops / highest, 1.0),
            )
            for i, b in enumerate(self.bars)
        ]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        font = self.font()
        font.setPixelSize(theme.SMALL)
        painter.setFont(font)
        base = self.height() - _ROOM
        painter.fillRect(QRectF(0, base, self.width(), 1), QColor(t.line))
        for i, (box, bar) in enumerate(zip(self.boxes(), self.bars, strict=True)):
            newest = i == len(self.bars) - 1
            if bar.passed:
                painter.fillRect(box, QColor(t.accent if newest else t.line))
            else:
                painter.setPen(QColor(t.failed))
                painter.drawRect(box.adjusted(0, 0, -1, -1))
            painter.setPen(QColor(t.text if newest else t.muted))
            wide = QRectF(box.left() - _GAP / 2, 0, box.width() + _GAP, _ROOM)
            if painter.fontMetrics().horizontalAdvance("0000") <= wide.width():
                painter.drawText(
                    wide.translated(0, box.top() - _ROOM),
                    int(Qt.AlignmentFlag.AlignCenter),
                    significant(bar.tflops),
                )
                painter.drawText(
                    wide.translated(0, base), int(Qt.AlignmentFlag.AlignCenter), str(bar.job)
                )

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            found = (
                bar
                for box, bar in zip(self.boxes(), self.bars, strict=True)
                if box.left() <= event.pos().x() <= box.right()
            )
            QToolTip.showText(event.globalPos(), next((bar.tooltip for bar in found), ""), self)
            return True
        return super().event(event)
