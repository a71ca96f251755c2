"""Draw one value of several runs over their steps, on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QFrame

from gpudeck.app.charts.scales import round_ticks
from gpudeck.app.format.values import precise
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.widgets import theme

WIDTH, HEIGHT = 200, 132
"""The least pixels of a chart."""
_GUTTER = 54
"""Pixels of the values beside the scale."""
_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)


@dataclass(frozen=True)
class OverlaidCurve:
    """One curve; its steps rise, [n] each."""

    steps: Sequence[float]
    values: Sequence[float]
    color: str
    strong: bool = False
    """Draw it over the others, with a wider line."""


class OverlayChart(QFrame):
    """Show the curves of one value, with the lowest and the highest of all on its scale."""

    def __init__(self, title: str, across: str = "", *, from_zero: bool = False) -> None:
        """Show `title`; `across` says what the curves are drawn over, if not over steps."""
        super().__init__()
        self._across, self._from_zero = across or tr("step"), from_zero
        self.setProperty("card", "true")
        self.title = title
        self.curves: tuple[OverlaidCurve, ...] = ()
        self.setMinimumSize(theme.px(WIDTH), theme.px(HEIGHT))
        self.setAccessibleName(title)

    def show_curves(self, curves: tuple[OverlaidCurve, ...]) -> None:
        """Show these curves; each has a value."""
        if curves != self.curves:
            self.curves = curves
            newest = ", ".join(precise(curve.values[-1]) for curve in curves)
            self.setAccessibleDescription(newest)
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(WIDTH), theme.px(HEIGHT))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, colors = QPainter(self), theme.tokens()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        inside = QRectF(self.rect()).adjusted(theme.M, theme.S, -theme.M, -theme.S)
        painter.setFont(theme.font(theme.SMALL))
        line = QFontMetricsF(painter.font()).height()
        head = QRectF(inside.left(), inside.top(), inside.width(), line)
        newest = precise(self.curves[0].values[-1]) if len(self.curves) == 1 else ""
        metrics = painter.fontMetrics()
        room = round(head.width()) - metrics.horizontalAdvance(newest) - theme.XS
        painter.setPen(QColor(colors.muted))
        painter.drawText(
            head, _LEFT, metrics.elidedText(self.title, Qt.TextElideMode.ElideRight, room)
        )
        painter.setPen(QColor(colors.text))
        painter.drawText(head, _RIGHT, newest)
        if not self.curves:
            return
        plot = inside.adjusted(theme.px(_GUTTER), line + theme.S, 0, -line - theme.XS)
        lowest, highest = _range(value for curve in self.curves for value in curve.values)
        scale = round_ticks(min(lowest, 0.0) if self._from_zero else lowest, highest)
        low, high = scale[0], scale[-1]
        first, last = _range(step for curve in self.curves for step in curve.steps)
        self._paint_scale(painter, plot, scale, (first, last))
        for curve in sorted(self.curves, key=lambda curve: curve.strong):
            points = [
                QPointF(
                    plot.left() + (x - first) / (last - first) * plot.width(),
                    plot.bottom() - (y - low) / (high - low) * plot.height(),
                )
                for x, y in zip(curve.steps, curve.values, strict=True)
            ]
            painter.setPen(QPen(QColor(curve.color), 2.2 if curve.strong else 1.2))
            painter.drawPolyline(QPolygonF(points))

    def _paint_scale(
        self,
        painter: QPainter,
        plot: QRectF,
        values: list[float],
        steps: tuple[float, float],
    ) -> None:
        colors, line = theme.tokens(), painter.fontMetrics().height()
        for value in values:
            y = plot.bottom() - (value - values[0]) / (values[-1] - values[0]) * plot.height()
            painter.setPen(QColor(colors.grid))
            painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            painter.setPen(QColor(colors.muted))
            box = QRectF(plot.left() - theme.px(_GUTTER), y - line / 2, theme.px(_GUTTER) - 6, line)
            painter.drawText(box, _RIGHT, tr_decimal(f"{value:.6g}".replace("e-0", "e-")))
        below = QRectF(plot.left(), plot.bottom() + theme.XS, plot.width(), line)
        painter.drawText(below, _LEFT, f"{steps[0]:g}")
        painter.drawText(below, _RIGHT, f"{steps[1]:g}")
        painter.drawText(below, int(Qt.AlignmentFlag.AlignCenter), self._across)


def _range(numbers: Iterable[float]) -> tuple[float, float]:
    """Return the lowest and the highest number, apart from each other."""
    found = list(numbers)
    low, high = min(found), max(found)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
