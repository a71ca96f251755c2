"""Draw the readings behind an answer as charts, with their range and their time."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from gpudeck.app.assistant.captions import curve_ends, curve_range, curve_time
from gpudeck.app.assistant.message_tree import Curve
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme

_SIDES = (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
_HIGH, _NARROWEST, _GAP = 72, 190, 16
"""Pixels of the height of a chart, of its least width, and between charts."""


class AnswerCharts(QWidget):
    """Show charts of readings, as many side by side as there is room for."""

    def __init__(self, high: int = _HIGH, narrowest: int = _NARROWEST) -> None:
        """Draw charts of `high` pixels, which are at least `narrowest` pixels wide."""
        super().__init__()
        self._high, self._narrowest = high, narrowest
        self.curves: tuple[Curve, ...] = ()
        self.hide()

    def show_curves(self, curves: tuple[Curve, ...]) -> None:
        """Show these curves, or hide the charts if there are none."""
        if curves != self.curves:
            self.curves = curves
            self.setAccessibleName(tr("Charts") if curves else "")
            self.setAccessibleDescription(
                "; ".join(f"{c.title}: {curve_range(c)}, {curve_time(c)}" for c in curves)
            )
            self.setToolTip(
                "\n".join(
                    tr("{title}: readings of {time}", title=c.title, time=curve_time(c))
                    for c in curves
                )
            )
            self.updateGeometry()
            self.update()
        self.setVisible(bool(curves))

    def sizeHint(self) -> QSize:
        return QSize(400, theme.px(self._high))

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        lines = -(-len(self.curves) // self._across(width))
        return lines * theme.px(self._high) + max(lines - 1, 0) * theme.S

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        across = self._across(self.width())
        wide, high = (self.width() - _GAP * (across - 1)) / across, theme.px(self._high)
        for i, curve in enumerate(self.curves):
            line, column = divmod(i, across)
            _draw(
                painter,
                curve,
                QRectF(column * (wide + _GAP), line * (high + theme.S), wide, high),
            )

    def _across(self, width: int) -> int:
        return max(1, min(len(self.curves), width // theme.px(self._narrowest)))


def _draw(painter: QPainter, curve: Curve, box: QRectF) -> None:
    t = theme.tokens()
    painter.setFont(theme.font(theme.SMALL))
    line = painter.fontMetrics().height()
    caption = QRectF(box.left(), box.top(), box.width(), line)
    said = curve_range(curve)
    room = box.width() - painter.fontMetrics().horizontalAdvance(said) - theme.S
    painter.setPen(QColor(t.muted))
    title = painter.fontMetrics().elidedText(curve.title, Qt.TextElideMode.ElideRight, int(room))
    painter.drawText(
        caption, int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter), title
    )
    painter.setPen(QColor(t.text))
    painter.drawText(
        caption, int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), said
    )
    below = QRectF(box.left(), box.bottom() - line, box.width(), line)
    painter.setPen(QColor(t.muted))
    for at, side in zip(curve_ends(curve), _SIDES, strict=True):
        painter.drawText(below, int(side), at)
    plot = box.adjusted(0, line + 4, 0, -line - 2)
    painter.fillRect(QRectF(plot.left(), plot.bottom(), plot.width(), 1), QColor(t.line))
    painter.setPen(QPen(QColor(t.accent), 1.2))
    for segment in _segments(curve, plot):
        if len(segment) == 1:
            painter.drawPoint(segment[0])
        else:
            painter.drawPolyline(QPolygonF(segment))


def _segments(curve: Curve, plot: QRectF) -> list[list[QPointF]]:
    """Return the lines between the gaps, scaled to the plot."""
    known = [v for v in curve.values if v is not None]
    low, high = min(known), max(known)
    begin, span = curve.times[0], (curve.times[-1] - curve.times[0]) or 1.0
    found: list[list[QPointF]] = [[]]
    for at, value in zip(curve.times, curve.values, strict=True):
        if value is None:
            found.append([])
            continue
        height = 0.5 if high == low else (value - low) / (high - low)
        found[-1].append(
            QPointF(
                plot.left() + (at - begin) / span * plot.width(),
                plot.bottom() - height * plot.height(),
            )
        )
    return [segment for segment in found if segment]
