"""Paint the shapes that programs used as rows: the shape, its calls, and its speed."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter

from gpudeck.app.language.texts import tr, tr_whole
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import ChartMark, MarkChart
from gpudeck.app.workloads.used_shapes import UsedShape

_ROW = 24
_COLUMNS = (110, 84, 150)
"""Pixels of the calls, the backend and the speed, which stand on the right."""
_MOST = 8
_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)


class UsedShapesView(MarkChart):
    """Show the most frequent shapes."""

    def __init__(self) -> None:
        super().__init__(tr("Shapes that your programs used"))
        self.rows: tuple[UsedShape, ...] = ()

    def show_rows(self, rows: tuple[UsedShape, ...]) -> None:
        """Show other rows, the most frequent first."""
        if rows != self.rows:
            self.rows = rows
            self.setMinimumHeight(min(len(rows), _MOST) * theme.px(_ROW))
            self.updateGeometry()
            self.renew()

    def sizeHint(self) -> QSize:
        return QSize(400, min(len(self.rows), _MOST) * theme.px(_ROW))

    def marks(self) -> list[ChartMark]:
        high, most = theme.px(_ROW), min(_MOST, self.height() // theme.px(_ROW))
        return [
            ChartMark(QRectF(0, at * high, self.width(), high), row.tooltip)
            for at, row in enumerate(self.rows[:most])
        ]

    def draw(self, painter: QPainter) -> None:
        for mark, row in zip(self.marks(), self.rows, strict=False):
            self._draw_row(painter, mark.box, row)

    def _draw_row(self, painter: QPainter, box: QRectF, row: UsedShape) -> None:
        t = theme.tokens()
        right = box.right()
        texts = (f"{tr_whole(row.calls)} {tr(row.direction)}", row.backend, row.speed)
        for text, width in zip(reversed(texts), map(theme.px, reversed(_COLUMNS)), strict=True):
            painter.setPen(QColor(t.text if row.backend and text == row.speed else t.muted))
            align = _LEFT if text == row.backend else _RIGHT
            left = right - width + (theme.M if text == row.backend else 0)
            painter.drawText(QRectF(left, box.top(), right - left, box.height()), align, text)
            right -= width
        room = QRectF(box.left(), box.top(), right - theme.S - box.left(), box.height())
        painter.setPen(QColor(t.text))
        cut = painter.fontMetrics().elidedText(
            row.short, Qt.TextElideMode.ElideRight, int(room.width())
        )
        painter.drawText(room, _LEFT, cut)
