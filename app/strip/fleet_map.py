"""Many devices at a glance: a coloured cell each, with its number and value."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import QSizePolicy

from app.strip.fleet_model import Cell
from app.widgets import theme
from app.widgets.mark_chart import ChartMark, MarkChart
from app.workloads.heat_map_view import readable, shade

_WIDTH, _HEIGHT, _GAP = 70, 34, 3
_EDGE = 3
_CENTER = int(Qt.AlignmentFlag.AlignCenter)


class FleetMap(MarkChart):
    """Point at a cell for its figures; a click, or Return on the current one, emits `opened` with the device."""

    opened = Signal(str)

    def __init__(self) -> None:
        super().__init__("Devices")
        self.cells: tuple[Cell, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_cells(self, cells: tuple[Cell, ...]) -> None:
        """Paint what changed of them."""
        if cells == self.cells:
            return
        before, self.cells = self.cells, cells
        if [c.device for c in before] != [c.device for c in cells]:
            self.renew()
            self.updateGeometry()
            return
        for at, (old, new) in enumerate(zip(before, cells, strict=True)):
            if old != new:
                self.update(self._box(at).toAlignedRect())

    def columns(self) -> int:
        return max((self.width() + _GAP) // (_WIDTH + _GAP), 1)

    def heightForWidth(self, width: int) -> int:
        lines = -(-len(self.cells) // max((width + _GAP) // (_WIDTH + _GAP), 1))
        return max(lines, 1) * (_HEIGHT + _GAP)

    def hasHeightForWidth(self) -> bool:
        return True

    def sizeHint(self) -> QSize:
        return QSize(600, self.heightForWidth(self.width()))

    def minimumSizeHint(self) -> QSize:
        return QSize(_WIDTH, _HEIGHT + _GAP)

    def marks(self) -> list[ChartMark]:
        return [ChartMark(self._box(at), cell.tooltip) for at, cell in enumerate(self.cells)]

    def draw(self, painter: QPainter) -> None:
        small, strong = theme.font(theme.SMALL), theme.font(theme.BASE, strong=True)
        region = painter.clipRegion() if painter.hasClipping() else None
        for at, cell in enumerate(self.cells):
            box = self._box(at)
            if region is None or region.intersects(box.toAlignedRect()):
                _draw(painter, box, cell, small, strong)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        if (at := self._mark_at(event.position())) is not None:
            self.opened.emit(self.cells[at].device)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if (
            event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)
            and self.current is not None
        ):
            self.opened.emit(self.cells[self.current].device)
        else:
            super().keyPressEvent(event)

    def _box(self, at: int) -> QRectF:
        columns = self.columns()
        width = (self.width() + _GAP) / columns
        return QRectF(at % columns * width, at // columns * (_HEIGHT + _GAP), width - _GAP, _HEIGHT)


def _draw(painter: QPainter, box: QRectF, cell: Cell, small: QFont, strong: QFont) -> None:
    t = theme.tokens()
    if cell.share is None:
        painter.fillRect(box, QColor(t.sunken))
        ink = QColor(t.muted)
    else:
        painter.fillRect(box, shade(cell.share))
        ink = readable(shade(cell.share))
    if cell.meaning:
        edge = QRectF(box)
        edge.setWidth(_EDGE)
        painter.fillRect(edge, QColor(getattr(t, cell.meaning)))
    painter.setPen(ink)
    painter.setFont(small)
    painter.drawText(
        box.adjusted(7, 0, -4, 0),
        int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft),
        cell.number,
    )
    painter.setFont(strong)
    painter.drawText(box.adjusted(20, 0, -4, 0), _CENTER, cell.text)
