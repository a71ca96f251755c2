"""Small charts below an answer: each a line of readings, with gaps where nothing was read, and from where to where it went."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from app.assistant.message import Curve
from app.assistant.writing import stretch_of, summary_of
from app.widgets import theme

_HIGH, _CAPTION, _NARROWEST, _GAP = 62, 16, 190, 16


class Sparklines(QWidget):
    """As many beside each other as there is room for."""

    def __init__(self) -> None:
        super().__init__()
        self.curves: tuple[Curve, ...] = ()
        self.hide()

    def show_curves(self, curves: tuple[Curve, ...]) -> None:
        if curves != self.curves:
            self.curves = curves
            self.setAccessibleName("Charts" if curves else "")
            self.setAccessibleDescription(
                "; ".join(f"{c.title}: {summary_of(c)}, {stretch_of(c)}" for c in curves)
            )
            self.setToolTip("\n".join(f"{c.title}: readings of {stretch_of(c)}" for c in curves))
            self.updateGeometry()
            self.update()
        self.setVisible(bool(curves))

    def sizeHint(self) -> QSize:
        return QSize(400, _HIGH)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        lines = -(-len(self.curves) // self._across(width))
        return lines * _HIGH + max(lines - 1, 0) * theme.S

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        across = self._across(self.width())
        wide = (self.width() - _GAP * (across - 1)) / across
        for i, curve in enumerate(self.curves):
            line, column = divmod(i, across)
            _draw(
                painter,
                curve,
                QRectF(column * (wide + _GAP), line * (_HIGH + theme.S), wide, _HIGH),
            )

    def _across(self, width: int) -> int:
        return max(1, min(len(self.curves), width // _NARROWEST))


def _draw(painter: QPainter, curve: Curve, box: QRectF) -> None:
    t = theme.tokens()
    painter.setFont(theme.font(theme.SMALL))
    caption = QRectF(box.left(), box.top(), box.width(), _CAPTION)
    said = summary_of(curve)
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
    plot = box.adjusted(0, _CAPTION + 4, 0, -2)
    painter.fillRect(QRectF(plot.left(), plot.bottom(), plot.width(), 1), QColor(t.line))
    painter.setPen(QPen(QColor(t.accent), 1.2))
    for stretch in _stretches(curve, plot):
        if len(stretch) == 1:
            painter.drawPoint(stretch[0])
        else:
            painter.drawPolyline(QPolygonF(stretch))


def _stretches(curve: Curve, plot: QRectF) -> list[list[QPointF]]:
    """The readings between the gaps; the lowest value at the bottom, the highest on top."""
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
    return [stretch for stretch in found if stretch]
