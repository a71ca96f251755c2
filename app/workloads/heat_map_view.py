"""Paint a heat map: a coloured cell with its value for each head size, mask and sequence length."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter

from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import ChartMark, MarkChart
from gpudeck.app.workloads.heat_map import HeatCell, HeatMap

_GAP, _HEADING, _SCALE, _HIGHEST_CELL, _WIDEST_CELL = 2.0, 20.0, 24.0, 48.0, 160.0
_LOWEST_CELL = 22
_CENTER = int(Qt.AlignmentFlag.AlignCenter)
_LEFT = int(Qt.AlignmentFlag.AlignVCenter)
_RIGHT = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight)


class HeatMapView(MarkChart):
    """Show a heat map above the scale of its colours."""

    def __init__(self) -> None:
        super().__init__(tr("Heat map"))
        self.map = HeatMap((), (), (), "", None)

    def show_map(self, heat_map: HeatMap) -> None:
        """Show another map."""
        if heat_map != self.map:
            self.map = heat_map
            self.setMinimumHeight(self.minimumSizeHint().height())
            self.renew()
            self.updateGeometry()

    def minimumSizeHint(self) -> QSize:
        return QSize(240, int(_HEADING + _SCALE) + len(self.map.rows) * _LOWEST_CELL)

    def sizeHint(self) -> QSize:
        return QSize(600, int(_HEADING + _SCALE + len(self.map.rows) * _HIGHEST_CELL))

    def marks(self) -> list[ChartMark]:
        return [ChartMark(box, cell.tooltip) for box, cell in self._placed()]

    def draw(self, painter: QPainter) -> None:
        painter.setPen(QColor(theme.tokens().muted))
        left, width, height = self._measures()
        for i, text in enumerate(self.map.columns):
            painter.drawText(QRectF(left + i * width, 0, width, _HEADING), _CENTER, text)
        for i, text in enumerate(self.map.rows):
            box = QRectF(0, _HEADING + i * height, left - theme.S, height)
            painter.drawText(box, _RIGHT, text)
        for box, cell in self._placed():
            _draw_cell(painter, box, cell)
        if self.map.highest is not None:
            self._draw_scale(painter, left, _HEADING + len(self.map.rows) * height)

    def _draw_scale(self, painter: QPainter, left: float, top: float) -> None:
        bar = QRectF(left + theme.M, top + 8, 120, 8)
        gradient = QLinearGradient(bar.topLeft(), bar.topRight())
        gradient.setColorAt(0, theme.shade(0))
        gradient.setColorAt(1, theme.shade(1))
        painter.fillRect(bar, gradient)
        painter.setPen(QColor(theme.tokens().muted))
        painter.drawText(QRectF(left, top, theme.M - 2, _SCALE), _LEFT, "0")
        box = QRectF(bar.right() + 6, top, self.width() - bar.right() - 6, _SCALE)
        unit = f"{self.map.highest} {self.map.unit}"
        text = (
            tr("{unit}; columns: tokens a sequence", unit=unit)
            if self.map.of_tokens
            else tr("{unit}; columns: sizes", unit=unit)
        )
        painter.drawText(box, _LEFT, text)

    def _measures(self) -> tuple[float, float, float]:
        """Return the left edge of the cells, and the width and height of each."""
        metrics = self.fontMetrics()
        labels = (metrics.horizontalAdvance(text) for text in self.map.rows)
        left = max(labels, default=0) + theme.S
        width = (self.width() - left) / max(len(self.map.columns), 1)
        height = (self.height() - _HEADING - _SCALE) / max(len(self.map.rows), 1)
        return left, min(width, _WIDEST_CELL), min(height, _HIGHEST_CELL)

    def _placed(self) -> list[tuple[QRectF, HeatCell]]:
        left, width, height = self._measures()
        return [
            (QRectF(left + i * width, _HEADING + j * height, width - _GAP, height - _GAP), cell)
            for j, row in enumerate(self.map.cells)
            for i, cell in enumerate(row)
            if cell is not None
        ]


def _draw_cell(painter: QPainter, box: QRectF, cell: HeatCell) -> None:
    t = theme.tokens()
    ink = QColor(t.failed if cell.failed else t.muted)
    if cell.share is None or cell.failed:
        painter.setPen(QColor(t.failed if cell.failed else t.line))
        painter.drawRect(box.adjusted(0, 0, -1, -1))
    else:
        painter.fillRect(box, theme.shade(cell.share))
        ink = theme.readable_on(theme.shade(cell.share))
    painter.setPen(ink)
    two = cell.text and cell.small and box.height() >= 2 * painter.fontMetrics().height()
    half = box.height() / 2
    if cell.text:
        painter.setFont(theme.font(theme.BASE, strong=True))
        painter.drawText(box.adjusted(0, 2, 0, -half + 2) if two else box, _CENTER, cell.text)
        painter.setFont(theme.font(theme.SMALL))
    if two or not cell.text:
        elide = Qt.TextElideMode.ElideRight
        small = painter.fontMetrics().elidedText(cell.small, elide, int(box.width()) - 4)
        painter.drawText(box.adjusted(0, half - 2, 0, -2) if two else box, _CENTER, small)
