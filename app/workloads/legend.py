"""Paint the colours and names of a Result's contenders."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter

from gpudeck.app.widgets import theme
from gpudeck.app.workloads.comparison import AUTO

_QUIET = 0.55
"""The share of their colours that contenders beside `auto` have."""


def contender_color(names: Sequence[str], name: str) -> QColor:
    """Return the colour of a contender, the same in all charts of a Result; `auto` stands out."""
    series, ground = theme.tokens().series, QColor(theme.tokens().surface)
    color = QColor(series[names.index(name) % len(series)])
    return theme.blend(color, ground, _QUIET) if AUTO in names and name != AUTO else color


def draw_legend(painter: QPainter, names: tuple[str, ...], width: float) -> float:
    """Paint names with their colours from the top left on; return the pixels of height used."""
    t, metrics = theme.tokens(), painter.fontMetrics()
    line, x, y = metrics.height() + theme.XS, 0.0, 0.0
    for name in names:
        wide = 14 + metrics.horizontalAdvance(name) + theme.M
        if x and x + wide > width:
            x, y = 0.0, y + line
        painter.fillRect(QRectF(x, y + line / 2 - 4, 8, 8), contender_color(names, name))
        painter.setPen(QColor(t.text))
        painter.drawText(QRectF(x + 14, y, wide, line), int(Qt.AlignmentFlag.AlignVCenter), name)
        x += wide
    return y + line
