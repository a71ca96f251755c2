"""Paint the colours and names of a Result's contenders."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter

from gpudeck.app.widgets import theme


def contender_color(index: int) -> QColor:
    """Return the colour of the `index`-th contender, the same in all charts of a Result."""
    series = theme.tokens().series
    return QColor(series[index % len(series)])


def draw_legend(painter: QPainter, names: tuple[str, ...], width: float) -> float:
    """Paint names with their colours from the top left on; return the pixels of height used."""
    t, metrics = theme.tokens(), painter.fontMetrics()
    line, x, y = metrics.height() + theme.XS, 0.0, 0.0
    for i, name in enumerate(names):
        wide = 14 + metrics.horizontalAdvance(name) + theme.M
        if x and x + wide > width:
            x, y = 0.0, y + line
        painter.fillRect(QRectF(x, y + line / 2 - 4, 8, 8), contender_color(i))
        painter.setPen(QColor(t.text))
        painter.drawText(QRectF(x + 14, y, wide, line), int(Qt.AlignmentFlag.AlignVCenter), name)
        x += wide
    return y + line
