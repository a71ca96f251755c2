"""Paint the course of one value in a small box, without axes."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF

from gpudeck.app.charts.series import Floats
from gpudeck.app.widgets import theme

_FILL = 0.16


def draw_sparkline(
    painter: QPainter,
    box: QRectF,
    values: Floats,
    top: float,
    color: str = "",
    filled: bool = True,
) -> None:
    """Draw a line, over a light fill if it is `filled`; gaps stay empty.

    Args:
        values: The values at equal distances, [n]; NaN in gaps.
        top: The value at the upper edge of the box.
        color: The accent colour if it is empty.
    """
    if not len(values) or not top > 0:
        return
    shade = QColor(color or theme.tokens().accent)
    step = box.width() / max(len(values) - 1, 1)
    y = box.bottom() - np.clip(values / top, 0.0, 1.0) * box.height()
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    line, fill = QPen(shade, 1), QColor(shade)
    fill.setAlphaF(_FILL)
    for first, last in _runs(values):
        points = [QPointF(box.left() + at * step, float(y[at])) for at in range(first, last)]
        ends = (QPointF(points[-1].x(), box.bottom()), QPointF(points[0].x(), box.bottom()))
        if filled:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(fill)
            painter.drawPolygon(QPolygonF([*points, *ends]))
        painter.setPen(line)
        painter.drawPolyline(QPolygonF(points))
    painter.restore()


def _runs(values: Floats) -> list[tuple[int, int]]:
    """Return the first index of each run of values without a gap, and the one after its last."""
    known = np.concatenate(([False], ~np.isnan(values), [False]))
    changes = np.flatnonzero(known[1:] != known[:-1])
    return [(int(a), int(b)) for a, b in zip(changes[::2], changes[1::2], strict=True)]
