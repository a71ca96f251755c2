"""Draw the GPU-hours of each week or month as bars, with a part for each person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.scales import round_ticks
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.widgets import theme

_HEIGHT, _GUTTER, _WIDEST, _DOT = 220, 44, 72, 8
"""Pixels: the height, the scale at the left, the widest bar, and a dot of the legend."""
_MOST = 6
"""The most persons with a colour of their own; the others share one."""


@dataclass(frozen=True)
class UsageBar:
    """Hold what each person used in one period; the oldest period is at the left."""

    period: str
    hours: tuple[tuple[str, float], ...]
    """GPU-hours by user."""


class UsageChart(QWidget):
    """Paint the bars, and above them which colour is whose."""

    def __init__(self) -> None:
        super().__init__()
        self.bars: tuple[UsageBar, ...] = ()
        self.people: tuple[str, ...] = ()
        """Those with a colour, the heaviest user first."""
        self.setFixedHeight(theme.px(_HEIGHT))
        self.setAccessibleName(tr("GPU-hours of each person"))

    def show_bars(self, bars: Sequence[UsageBar]) -> None:
        """Show these bars from left to right."""
        totals: dict[str, float] = {}
        for bar in bars:
            for user, hours in bar.hours:
                totals[user] = totals.get(user, 0.0) + hours
        self.bars = tuple(bars)
        self.people = tuple(sorted(totals, key=lambda user: -totals[user]))[:_MOST]
        told = (f"{user} {totals[user]:.1f}" for user in self.people)
        self.setAccessibleDescription(", ".join(told))
        self.update()

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(_WIDEST), theme.px(_HEIGHT))

    def color(self, user: str) -> QColor:
        """Return the colour of a person."""
        colors = theme.owner_colors()
        known = user in self.people
        return QColor(colors[self.people.index(user)] if known else theme.tokens().muted)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.bars:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font(theme.SMALL))
        line = painter.fontMetrics().height()
        self._paint_legend(painter)
        plot = QRectF(self.rect()).adjusted(theme.px(_GUTTER), 2 * line, 0, -line - theme.S)
        highest = max(sum(hours for _, hours in bar.hours) for bar in self.bars)
        values = round_ticks(0.0, max(highest, 0.1), 5)
        self._paint_scale(painter, plot, values)
        each = plot.width() / len(self.bars)
        width = min(0.6 * each, theme.px(_WIDEST))
        for at, bar in enumerate(self.bars):
            left, bottom = plot.left() + (at + 0.5) * each - width / 2, plot.bottom()
            for user, hours in sorted(bar.hours, key=lambda part: self._place(part[0])):
                height = hours / values[-1] * plot.height()
                part = QRectF(left, bottom - height, width, max(height - 1, 0))
                painter.fillRect(part, self.color(user))
                bottom -= height
            painter.setPen(QColor(theme.tokens().muted))
            below = QRectF(left + width / 2 - each / 2, plot.bottom() + theme.XS, each, line)
            painter.drawText(below, int(Qt.AlignmentFlag.AlignCenter), bar.period)

    def _place(self, user: str) -> int:
        return self.people.index(user) if user in self.people else len(self.people)

    def _paint_legend(self, painter: QPainter) -> None:
        """Paint the title, and the persons at its right."""
        t, metrics = theme.tokens(), painter.fontMetrics()
        at, middle = float(theme.px(_GUTTER)), metrics.height() / 2
        painter.setPen(QColor(t.muted))
        painter.drawText(QPointF(at, metrics.ascent()), tr("GPU-hours"))
        at += metrics.horizontalAdvance(tr("GPU-hours")) + 2 * theme.L
        for user in self.people:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.color(user))
            painter.drawEllipse(QRectF(at, middle - _DOT / 2, _DOT, _DOT))
            painter.setPen(QColor(t.text))
            painter.drawText(QPointF(at + _DOT + 6, metrics.ascent()), user)
            at += _DOT + 6 + metrics.horizontalAdvance(user) + theme.L

    def _paint_scale(self, painter: QPainter, plot: QRectF, values: Sequence[float]) -> None:
        t, line = theme.tokens(), painter.fontMetrics().height()
        side = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        for value in values:
            y = plot.bottom() - value / values[-1] * plot.height()
            painter.setPen(QColor(t.grid))
            painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            painter.setPen(QColor(t.muted))
            box = QRectF(0, y - line / 2, plot.left() - theme.S, line)
            painter.drawText(box, side, tr_decimal(f"{value:g}"))
