"""Paint a roofline: rate over arithmetic intensity on logarithmic axes, below measured ceilings."""

from __future__ import annotations

import math

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import ChartMark, MarkChart
from gpudeck.app.workloads.legend import contender_color, draw_legend
from gpudeck.app.workloads.roofline import Roofline, attainable, ticks

_LEFT, _BELOW, _RIGHT, _RADIUS = 48.0, 36.0, 14.0, 4.0
_CENTER = int(Qt.AlignmentFlag.AlignCenter)
_RIGHT_ALIGNED = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
LEAST_HEIGHT = 150
"""Pixels of height that the chart needs."""


class RooflineView(MarkChart):
    """Show the points of a roofline."""

    def __init__(self) -> None:
        super().__init__(tr("Roofline"))
        self.roofline = Roofline((), 0.0, 0.0, "", "", (), (), (1.0, 1000.0), (1.0, 1000.0))
        self.order: tuple[str, ...] = ()
        """All contenders; their places give their colours."""
        self._top = 0.0
        self.setMinimumHeight(LEAST_HEIGHT)

    def show_roofline(self, roofline: Roofline, order: tuple[str, ...]) -> None:
        """Show another roofline."""
        if (roofline, order) != (self.roofline, self.order):
            self.roofline, self.order = roofline, order
            self.renew()

    def sizeHint(self) -> QSize:
        return QSize(600, 400)

    def marks(self) -> list[ChartMark]:
        r = _RADIUS + 1
        centers = [(self._at(p.intensity, p.tflops), p) for p in self.roofline.points]
        return [
            ChartMark(QRectF(c.x() - r, c.y() - r, 2 * r, 2 * r), p.tooltip) for c, p in centers
        ]

    def draw(self, painter: QPainter) -> None:
        self._top = draw_legend(painter, self.order, self.width()) + theme.S
        self._draw_axes(painter)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_roof(painter)
        for point in self.roofline.points:
            painter.setPen(QPen(QColor(theme.tokens().surface), 1))
            painter.setBrush(contender_color(self.order, point.contender))
            painter.drawEllipse(self._at(point.intensity, point.tflops), _RADIUS, _RADIUS)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)

    def _draw_axes(self, painter: QPainter) -> None:
        t, area = theme.tokens(), self._area
        for at in ticks(*self.roofline.x):
            x = self._at(at, self.roofline.y[0]).x()
            painter.fillRect(QRectF(x, area.top(), 1, area.height()), QColor(t.grid))
            painter.setPen(QColor(t.muted))
            text = tr_decimal(f"{at:g}")
            half = painter.fontMetrics().horizontalAdvance(text) / 2
            box = QRectF(min(x, self.width() - half) - 30, area.bottom() + 2, 60, 16)
            painter.drawText(box, _CENTER, text)
        for at in ticks(*self.roofline.y):
            y = self._at(self.roofline.x[0], at).y()
            painter.fillRect(QRectF(area.left(), y, area.width(), 1), QColor(t.grid))
            painter.setPen(QColor(t.muted))
            painter.drawText(QRectF(0, y - 8, _LEFT - 6, 16), _RIGHT_ALIGNED, tr_decimal(f"{at:g}"))
        text = tr("FLOP a byte (horizontal), TFLOP/s (vertical)")
        box = QRectF(area.left(), area.bottom() + 18, area.width(), 16)
        painter.drawText(box, _CENTER, text)

    def _draw_roof(self, painter: QPainter) -> None:
        """Draw the ceilings that were measured, dashed where one lies above the other."""
        r, t, area = self.roofline, theme.tokens(), self._area
        painter.save()
        painter.setClipRect(area)
        if r.bandwidth:
            ends = [self._at(x, r.bandwidth * x / 1e12) for x in r.x]
            painter.setPen(QPen(QColor(t.muted), 1, Qt.PenStyle.DashLine))
            painter.drawLine(*ends)
        if r.peak:
            painter.setPen(QPen(QColor(t.muted), 1, Qt.PenStyle.DashLine))
            painter.drawLine(self._at(r.x[0], r.peak), self._at(r.x[1], r.peak))
        if r.peak or r.bandwidth:
            painter.setPen(QPen(QColor(t.text), 2))
            knee = r.x[0]
            if r.peak and r.bandwidth:
                knee = min(max(r.peak * 1e12 / r.bandwidth, r.x[0]), r.x[1])
            painter.drawPolyline([self._at(x, attainable(x, r)) for x in (r.x[0], knee, r.x[1])])
        painter.setPen(QColor(t.text))
        if r.peak:
            self._label_peak(painter)
        if r.bandwidth:
            self._label_slope(painter)
        painter.restore()

    def _label_peak(self, painter: QPainter) -> None:
        """Write above the line, on the left if that is left of the other ceiling."""
        r, area = self.roofline, self._area
        knee = area.right()
        if r.bandwidth:
            knee = self._at(r.peak * 1e12 / r.bandwidth, r.peak).x()
        needed = painter.fontMetrics().horizontalAdvance(r.peak_label) + theme.XL
        on_left = knee - area.left() > needed
        side = Qt.AlignmentFlag.AlignLeft if on_left else Qt.AlignmentFlag.AlignRight
        y = self._at(r.x[0], r.peak).y()
        box = QRectF(area.left() + 6, y - 17, area.width() - 12, 16)
        painter.drawText(box, int(side | Qt.AlignmentFlag.AlignVCenter), r.peak_label)

    def _label_slope(self, painter: QPainter) -> None:
        """Write beside the line, at the point where it enters the area."""
        r, area = self.roofline, self._area
        entry = max(r.x[0], r.y[0] * 1e12 / r.bandwidth)
        start = self._at(entry, r.bandwidth * entry / 1e12)
        end = self._at(entry * 10, r.bandwidth * entry * 10 / 1e12)
        painter.save()
        painter.translate(start)
        painter.rotate(math.degrees(math.atan2(end.y() - start.y(), end.x() - start.x())))
        box = QRectF(theme.XL, -18, area.width(), 16)
        painter.drawText(box, int(Qt.AlignmentFlag.AlignVCenter), r.slope_label)
        painter.restore()

    @property
    def _area(self) -> QRectF:
        return QRectF(
            _LEFT,
            self._top,
            self.width() - _LEFT - _RIGHT,
            max(self.height() - self._top - _BELOW, 1),
        )

    def _at(self, intensity: float, tflops: float) -> QPointF:
        area, r = self._area, self.roofline
        return QPointF(
            area.left() + area.width() * _share(intensity, *r.x),
            area.bottom() - area.height() * _share(tflops, *r.y),
        )


def _share(value: float, low: float, high: float) -> float:
    """Return the place of a value between two others on a logarithmic axis, 0 to 1."""
    return math.log(value / low) / math.log(high / low)
