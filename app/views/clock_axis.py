"""The charts' time axis: local time of day at round moments."""

from __future__ import annotations

import time

import pyqtgraph as pg
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300)
_LABEL_WIDTH = 76  # pixels a label needs, with the space around it


class ClockAxis(pg.AxisItem):  # type: ignore[misc]
    """Labels as HH:MM, with seconds where labels are less than a minute apart.

    It moves with every repaint, so it paints itself directly instead of through the library's cached picture.
    """

    def __init__(self) -> None:
        super().__init__("bottom")
        self.enableAutoSIPrefix(False)

    def labels(self, width: float) -> list[tuple[float, str]]:
        """Position (pixels) of the middle and text of every label that an axis `width` pixels wide shows whole."""
        low, high = self.range
        if not high > low:
            return []
        step = next((s for s in _STEPS if (high - low) / s * _LABEL_WIDTH <= width), _STEPS[-1])
        shift = time.localtime(high).tm_gmtoff % step  # round in local time, also where the zone is off by half an hour
        first = -(-(low + shift) // step) * step - shift
        form = "%H:%M:%S" if step < 60 else "%H:%M"
        half = QFontMetricsF(self.style["tickFont"] or QFont()).horizontalAdvance("00:00:00" if step < 60 else "00:00") / 2 + 1
        moments = (first + i * step for i in range(int((high - first) // step) + 1))
        marks = (((m - low) / (high - low) * width, time.strftime(form, time.localtime(m))) for m in moments)
        return [(x, text) for x, text in marks if half <= x <= width - half]

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        width, height = self.size().width(), self.size().height()
        painter.setPen(self.pen())
        painter.drawLine(0, 0, int(width), 0)
        painter.setPen(self.textPen())
        painter.setFont(self.style["tickFont"])
        half = _LABEL_WIDTH / 2
        for x, text in self.labels(width):
            painter.drawText(QRectF(x - half, 2, 2 * half, height - 2), int(Qt.AlignmentFlag.AlignCenter), text)
