"""Label the time axis of charts with the local time of day at round moments."""

from __future__ import annotations

import time

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gpudeck.app.charts.plotting import pg
from gpudeck.app.language.texts import tr_moment
from gpudeck.app.widgets import theme

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_SECONDS = (1, 2, 5, 10, 15, 30)
_MINUTES = tuple(n * _MINUTE for n in (1, 2, 5, 10, 30))
_STEPS = (*_SECONDS, *_MINUTES, *(n * _HOUR for n in (1, 2, 6, 12)), *(n * _DAY for n in (1, 2, 5)))
"""Seconds that labels may be apart."""
_LABEL_WIDTH = 76
"""Pixels that a label needs, with the space around it."""


class ClockAxis(pg.AxisItem):  # type: ignore[misc]
    """Show HH:MM, with seconds if labels are less than a minute apart, and midnight as a date.

    The axis moves with every repaint, so it does not use the library's cached picture.
    """

    def __init__(self) -> None:
        super().__init__("bottom")
        self.enableAutoSIPrefix(False)

    def labels(self, width: float) -> list[tuple[float, str]]:
        """Return middles in pixels and texts of the labels that an axis of `width` shows whole."""
        low, high = self.range
        if not high > low:
            return []
        most = width / theme.px(_LABEL_WIDTH)
        step = next((s for s in _STEPS if (high - low) / s <= most), _STEPS[-1])
        # round in local time, since some zones are off by half an hour
        shift = time.localtime(high).tm_gmtoff
        first = -(-(low + shift) // step) * step - shift
        half = (
            QFontMetricsF(self.style["tickFont"] or QFont()).horizontalAdvance(
                "00:00:00" if step < 60 else "00 Mmm"
            )
            / 2
            + 1
        )
        moments = (first + i * step for i in range(int((high - first) // step) + 1))
        marks = (((m - low) / (high - low) * width, _label(m, step)) for m in moments)
        return [(x, text) for x, text in marks if half <= x <= width - half]

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        width, height = self.size().width(), self.size().height()
        painter.setPen(self.pen())
        painter.drawLine(0, 0, int(width), 0)
        painter.setPen(self.textPen())
        painter.setFont(self.style["tickFont"])
        half = theme.px(_LABEL_WIDTH) / 2
        for x, text in self.labels(width):
            painter.drawText(
                QRectF(x - half, 2, 2 * half, height - 2), int(Qt.AlignmentFlag.AlignCenter), text
            )


def _label(moment: float, step: float) -> str:
    local = time.localtime(moment)
    if step >= 600 and (step >= _DAY or (local.tm_hour, local.tm_min) == (0, 0)):
        return tr_moment(moment, form="date")
    return time.strftime("%H:%M:%S" if step < 60 else "%H:%M", local)
