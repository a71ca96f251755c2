"""Show the last minutes of one value, with its present value above it."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame

from gpudeck.app.charts.scales import round_top, round_up, ticks
from gpudeck.app.charts.series import Floats
from gpudeck.app.charts.sparkline import draw_sparkline
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.widgets import theme

WIDTH, HEIGHT = 100, 84
"""The least pixels of a card."""
_ROOMY, _GUTTER, _STEPS = 70, 40, 4
"""Pixels of height from which on a curve has a scale, the width of its values, and its steps."""
_NARROW = 180
"""Pixels of a card below which the value is below the title, not beside it."""


class SparkCard(QFrame):
    """Paint title, value and sparkline in a card."""

    def __init__(self, title: str, span: str = "10 min") -> None:
        """Show `title`; `span` is the time that the values are of."""
        super().__init__()
        self.setProperty("card", "true")
        self.title, self.text = title, ""
        self.values = np.empty(0)
        self._top: float | None = None
        self._unit, self._span = 1.0, ""
        self._ends: tuple[str, str] | None = None
        """The times at both ends; None: `span` ago, and now."""
        self.setFixedHeight(theme.px(HEIGHT))
        self.setAccessibleName(title)
        self.show_span(span)

    def show_span(self, span: str) -> None:
        """Say of which time up to now the values are."""
        if span != self._span or self._ends is not None:
            self._span, self._ends = span, None
            self.setToolTip(tr("{title} in the last {span}", title=self.title, span=span))
            self.update()

    def show_ends(self, begin: str, end: str) -> None:
        """Say between which times the values are, where they do not end now."""
        if (begin, end) != self._ends:
            self._span, self._ends = "", (begin, end)
            text = tr("{title}, {begin} – {end}", title=self.title, begin=begin, end=end)
            self.setToolTip(text)
            self.update()

    def show_values(self, values: Floats, top: float | None, text: str, unit: float = 1.0) -> None:
        """Show other values.

        Args:
            values: The values at equal distances, [n]; NaN in gaps.
            top: The value at the upper edge; None: a little above the highest one.
            text: The present value.
            unit: What the values are divided by for the scale of a large curve.
        """
        same = np.array_equal(values, self.values, equal_nan=True)
        if same and (top, text) == (self._top, self.text):
            return
        self.values, self._top, self.text, self._unit = values, top, text, unit
        self.setAccessibleDescription(text)
        self.update()

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(WIDTH), theme.px(HEIGHT))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, t = QPainter(self), theme.tokens()
        inside = QRectF(self.rect()).adjusted(theme.M, theme.S, -theme.M, -theme.S)
        small, strong = theme.font(theme.SMALL), theme.font(strong=True)
        painter.setFont(small)
        line = QFontMetricsF(strong).height()  # the higher one
        upper = QRectF(inside.left(), inside.top(), inside.width(), line)
        stacked = self.width() < theme.px(_NARROW)
        painter.setPen(QColor(t.text))
        painter.drawText(upper, int(Qt.AlignmentFlag.AlignLeft), self.title)
        lower = upper.translated(0, line) if stacked else upper
        side = Qt.AlignmentFlag.AlignLeft if stacked else Qt.AlignmentFlag.AlignRight
        painter.setFont(strong)
        painter.setPen(QColor(t.text))
        painter.drawText(lower, int(side), self.text)
        if len(self.values) and not np.isnan(self.values).all():
            highest = float(np.nanmax(self.values))
            top = self._unit * round_top(highest / self._unit) if self._top is None else self._top
            top = self._unit * round_up(max(top, highest) / self._unit)
            plot = inside.adjusted(0, lower.bottom() - inside.top() + 4, 0, 0)
            if plot.height() >= theme.px(_ROOMY):
                plot = self._draw_scale(painter, plot, top)
            draw_sparkline(painter, plot, self.values, top)

    def _draw_scale(self, painter: QPainter, room: QRectF, top: float) -> QRectF:
        """Draw values and times beside a large curve; return the room that is left for it."""
        t, flag = theme.tokens(), Qt.AlignmentFlag
        painter.setFont(theme.font(theme.SMALL))
        line = painter.fontMetrics().height()
        plot = room.adjusted(theme.px(_GUTTER), theme.S, 0, -line - theme.XS)
        for value in ticks(top / self._unit, _STEPS):
            y = plot.bottom() - value * self._unit / top * plot.height()
            painter.setPen(QColor(t.grid))
            painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            painter.setPen(QColor(t.muted))
            box = QRectF(room.left(), y - line / 2, theme.px(_GUTTER) - theme.S, line)
            painter.drawText(
                box, int(flag.AlignRight | flag.AlignVCenter), tr_decimal(f"{value:g}")
            )
        below = QRectF(plot.left(), plot.bottom() + theme.XS, plot.width(), line)
        since, now = self._ends or (tr("{time} ago", time=self._span), tr("now"))
        metrics = painter.fontMetrics()
        painter.drawText(below, int(flag.AlignLeft), since)
        if metrics.horizontalAdvance(f"{since}  {now}") <= below.width():
            painter.drawText(below, int(flag.AlignRight), now)
        return plot
