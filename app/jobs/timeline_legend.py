"""Explain the bars of the timeline of the queue."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from gpudeck.app.jobs.queue_timeline import Bar, Kind
from gpudeck.app.jobs.timeline_field import hatch, look
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.widgets import theme

_SWATCH = (22, 12)
_SHOWN: tuple[tuple[Kind, str], ...] = (
    ("past", tr_noop("ended")),
    ("running", tr_noop("running")),
    ("waiting", tr_noop("waiting")),
    ("booked", tr_noop("booked")),
)


class TimelineLegend(QWidget):
    """Paint one bar of each kind, with its name."""

    def sizeHint(self) -> QSize:
        metrics = self.fontMetrics()
        names = sum(metrics.horizontalAdvance(tr(name)) for _, name in _SHOWN)
        swatches = len(_SHOWN) * (theme.px(_SWATCH[0]) + theme.S + theme.L)
        return QSize(names + swatches, metrics.height() + 2)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(theme.font(theme.SMALL))
        wide, high = map(theme.px, _SWATCH)
        at, metrics = 0.0, painter.fontMetrics()
        for kind, name in _SHOWN:
            fill, edge, _ = look(Bar(kind, 0, "", "", 0.0, None))
            box = QRectF(at + 0.5, (self.height() - high) / 2 + 0.5, wide - 1, high - 1)
            dashed = kind == "waiting"
            style = Qt.PenStyle.DashLine if dashed else Qt.PenStyle.SolidLine
            painter.setPen(Qt.PenStyle.NoPen if kind == "booked" else QPen(edge, 1, style))
            painter.setBrush(hatch() if kind == "booked" else fill)
            painter.drawRoundedRect(box, 3, 3)
            painter.setPen(QColor(theme.tokens().muted))
            text = QRectF(at + wide + 6, 0, self.width(), self.height())
            painter.drawText(text, int(Qt.AlignmentFlag.AlignVCenter), tr(name))
            at += wide + theme.S + metrics.horizontalAdvance(tr(name)) + theme.L
