"""The heat map of a grid: a coloured cell with its figure for each head size, mask and sequence length."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter

from app.widgets import theme
from app.widgets.mark_chart import ChartMark, MarkChart
from app.workloads.heat_map import HeatMap, Tile

_GAP, _HEADING, _SCALE, _HIGHEST_CELL, _WIDEST_CELL = 2.0, 20.0, 24.0, 48.0, 160.0
_LOWEST_CELL = 22
_CENTER = int(Qt.AlignmentFlag.AlignCenter)


class HeatMapView(MarkChart):
    def __init__(self) -> None:
        super().__init__("Heat map")
        self.heat = HeatMap((), (), (), "", "")

    def show_heat(self, heat: HeatMap) -> None:
        if heat != self.heat:
            self.heat = heat
            self.setMinimumHeight(self.minimumSizeHint().height())
            self.renew()
            self.updateGeometry()

    def minimumSizeHint(self) -> QSize:
        return QSize(240, int(_HEADING + _SCALE) + len(self.heat.rows) * _LOWEST_CELL)

    def sizeHint(self) -> QSize:
        return QSize(600, int(_HEADING + _SCALE + len(self.heat.rows) * 48))

    def marks(self) -> list[ChartMark]:
        return [ChartMark(box, tile.tooltip) for box, tile in self._placed()]

    def draw(self, painter: QPainter) -> None:
        t = theme.tokens()
        painter.setPen(QColor(t.muted))
        left, width, height = self._measures()
        for i, text in enumerate(self.heat.columns):
            painter.drawText(QRectF(left + i * width, 0, width, _HEADING), _CENTER, text)
        for i, text in enumerate(self.heat.rows):
            box = QRectF(0, _HEADING + i * height, left - theme.S, height)
            painter.drawText(
                box, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight), text
            )
        for box, tile in self._placed():
            _draw_tile(painter, box, tile)
        self._draw_scale(painter, _HEADING + len(self.heat.rows) * height)

    def _draw_scale(self, painter: QPainter, top: float) -> None:
        """What the colours mean."""
        if not self.heat.highest:
            return
        left, _, _ = self._measures()
        bar = QRectF(left + theme.M, top + 8, 120, 8)
        gradient = QLinearGradient(bar.topLeft(), bar.topRight())
        gradient.setColorAt(0, theme.shade(0))
        gradient.setColorAt(1, theme.shade(1))
        painter.fillRect(bar, gradient)
        painter.setPen(QColor(theme.tokens().muted))
        painter.drawText(
            QRectF(left, top, theme.M - 2, _SCALE), int(Qt.AlignmentFlag.AlignVCenter), "0"
        )
        text = QRectF(bar.right() + 6, top, self.width() - bar.right() - 6, _SCALE)
        painter.drawText(
            text,
            int(Qt.AlignmentFlag.AlignVCenter),
            f"{self.heat.highest} {self.heat.unit}; tokens a sequence to the right",
        )

    def _measures(self) -> tuple[float, float, float]:
        """Where the cells begin, how wide and how high each is."""
        metrics = self.fontMetrics()
        left = (
            max((metrics.horizontalAdvance(text) for text in self.heat.rows), default=0) + theme.S
        )
        width = min((self.width() - left) / max(len(self.heat.columns), 1), _WIDEST_CELL)
        height = min(
            (self.height() - _HEADING - _SCALE) / max(len(self.heat.rows), 1), _HIGHEST_CELL
        )
        return left, width, height

    def _placed(self) -> list[tuple[QRectF, Tile]]:
        left, width, height = self._measures()
        return [
            (QRectF(left + i * width, _HEADING + j * height, width - _GAP, height - _GAP), tile)
            for j, row in enumerate(self.heat.tiles)
            for i, tile in enumerate(row)
            if tile is not None
        ]


def _draw_tile(painter: QPainter, box: QRectF, tile: Tile) -> None:
    t = theme.tokens()
    ink = QColor(t.failed if tile.failed else t.muted)
    if tile.share is None or tile.failed:
        painter.setPen(QColor(t.failed if tile.failed else t.line))
        painter.drawRect(box.adjusted(0, 0, -1, -1))
    else:
        painter.fillRect(box, theme.shade(tile.share))
        ink = theme.readable_on(theme.shade(tile.share))
    painter.setPen(ink)
    two = tile.text and tile.small and box.height() >= 2 * painter.fontMetrics().height()
    half = box.height() / 2
    if tile.text:
        painter.setFont(theme.font(theme.BASE, strong=True))
        painter.drawText(box.adjusted(0, 2, 0, -half + 2) if two else box, _CENTER, tile.text)
        painter.setFont(theme.font(theme.SMALL))
    if two or not tile.text:
        small = painter.fontMetrics().elidedText(
            tile.small, Qt.TextElideMode.ElideRight, int(box.width()) - 4
        )
        painter.drawText(box.adjusted(0, half - 2, 0, -2) if two else box, _CENTER, small)
