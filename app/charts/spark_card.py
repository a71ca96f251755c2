"""Show the last minutes of one value, with its present value above it."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame

from app.charts.scales import round_top
from app.charts.series import Floats
from app.charts.sparkline import draw_sparkline
from app.widgets import theme

HEIGHT = 84
"""The least pixels of height of a card."""
_NARROW = 180
"""Pixels of a card below which the value is below the title, not beside it."""


class SparkCard(QFrame):
    """Paint title, value and sparkline in a card."""

    def __init__(self, title: str, span: str = "ten minutes") -> None:
        """Show `title`; `span` is the time that the values are of."""
        super().__init__()
        self.setProperty("card", "true")
        self.title, self.text = title, ""
        self.values = np.empty(0)
        self._top: float | None = None
        self.setFixedHeight(theme.px(HEIGHT))
        self.setAccessibleName(title)
        self.setToolTip(f"{title} in the last {span}")

    def show_values(self, values: Floats, top: float | None, text: str) -> None:
        """Show other values.

        Args:
            values: The values at equal distances, [n]; NaN in gaps.
            top: The value at the upper edge; None: a little above the highest one.
            text: The present value.
        """
        same = np.array_equal(values, self.values, equal_nan=True)
        if same and (top, text) == (self._top, self.text):
            return
        self.values, self._top, self.text = values, top, text
        self.setAccessibleDescription(text)
        self.update()

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(100), theme.px(HEIGHT))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, t = QPainter(self), theme.tokens()
        inside = QRectF(self.rect()).adjusted(theme.M, theme.S, -theme.M, -theme.S)
        small, strong = theme.font(theme.SMALL), theme.font(strong=True)
        painter.setFont(small)
        line = QFontMetricsF(strong).height()  # the higher one
        upper = QRectF(inside.left(), inside.top(), inside.width(), line)
        stacked = self.width() < theme.px(_NARROW)
        painter.setPen(QColor(t.muted))
        painter.drawText(upper, int(Qt.AlignmentFlag.AlignLeft), self.title)
        lower = upper.translated(0, line) if stacked else upper
        side = Qt.AlignmentFlag.AlignLeft if stacked else Qt.AlignmentFlag.AlignRight
        painter.setFont(strong)
        painter.setPen(QColor(t.text))
        painter.drawText(lower, int(side), self.text)
        if len(self.values) and not np.isnan(self.values).all():
            highest = float(np.nanmax(self.values))
            top = round_top(highest) if self._top is None else max(self._top, highest)
            draw_sparkline(
                painter,
                inside.adjusted(0, lower.bottom() - inside.top() + 4, 0, 0),
                self.values,
                top,
            )
