"""Show many devices as a map of coloured cells that can be sorted and filtered."""

from __future__ import annotations

import time
from collections import Counter

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import QSizePolicy, QWidget

from gpudeck.app.format.values import Meaning
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.strip.fleet_model import (
    FILTERS,
    ORDERS,
    QUANTITIES,
    MapCell,
    Selection,
    map_cell,
    selected_devices,
)
from gpudeck.app.strip.tile_model import Tile
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    choice_box,
    column,
    elided,
    filter_box,
    label,
    row,
    scroll_area,
    set_text,
    set_tooltip,
    show_if_any,
)
from gpudeck.app.widgets.mark_chart import ChartMark, MarkChart

_WIDTH, _NARROW, _HEIGHT, _LOW, _GAP = 74, 60, 32, 21, 3
"""The least width of a cell and of a low one, its height and that of a low one at the usual size
of text; the gap."""
_MOST_OF_ROOM = 0.4
"""Cells that would fill more of their room become low."""
_EDGE = 3
_JUDGED: tuple[Meaning, ...] = (tr_noop("failed"), tr_noop("hot"), tr_noop("throttled"))
"""The meanings of the edges of cells."""
_LEFT = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft)
_RIGHT = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight)
_REORDER_S = 5.0
"""Seconds between two sorts: nobody could follow cells that move with every reading."""


class FleetMap(MarkChart):
    """Paint a cell with number and value for each device.

    Emits `opened` with a device on a click, and on Return for the current one.
    """

    opened = Signal(str)

    def __init__(self) -> None:
        super().__init__(tr("Devices"))
        self.cells: tuple[MapCell, ...] = ()
        self._low = False
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_cells(self, cells: tuple[MapCell, ...]) -> None:
        """Paint the cells that changed."""
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

    def heightForWidth(self, width: int) -> int:
        return self._lines(width) * self._pitch

    def fit(self, width: int, room: int) -> int:
        """Make the cells lower if they need more than `room`; return the height of whole lines."""
        before, self._low = self._low, False
        self._low = self._lines(width) * (theme.px(_HEIGHT) + _GAP) > _MOST_OF_ROOM * room
        if self._low != before:
            self.renew()
            self.updateGeometry()
        return min(self._lines(width), max(room // self._pitch, 1)) * self._pitch

    def _lines(self, width: int) -> int:
        return max(-(-len(self.cells) // self._columns(width)), 1)

    def _columns(self, width: int) -> int:
        least = theme.px(_NARROW if self._low else _WIDTH)
        return max((width + _GAP) // (least + _GAP), 1)

    @property
    def _pitch(self) -> int:
        """Return the pixels between the tops of two lines."""
        return theme.px(_LOW if self._low else _HEIGHT) + _GAP

    def hasHeightForWidth(self) -> bool:
        return True

    def sizeHint(self) -> QSize:
        return QSize(600, self.heightForWidth(self.width()))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(_WIDTH), theme.px(_HEIGHT) + _GAP)

    def marks(self) -> list[ChartMark]:
        return [ChartMark(self._box(at), cell.tooltip) for at, cell in enumerate(self.cells)]

    def draw(self, painter: QPainter) -> None:
        small = theme.font(theme.SMALL)
        strong = theme.font(theme.SMALL if self._low else theme.BASE, strong=True)
        region = painter.clipRegion() if painter.hasClipping() else None
        for at, cell in enumerate(self.cells):
            box = self._box(at)
            if region is None or region.intersects(box.toAlignedRect()):
                text = cell.text.split()[0] if self._low else cell.text
                _draw(painter, box, cell, text, small, strong)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        at = self.mark_at(event.position())
        if at is not None:
            self.opened.emit(self.cells[at].device)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)
        if event.key() in keys and self.current is not None:
            self.opened.emit(self.cells[self.current].device)
        else:
            super().keyPressEvent(event)

    def _box(self, at: int) -> QRectF:
        columns = self._columns(self.width())
        width = (self.width() + _GAP) / columns
        top, height = at // columns * self._pitch, self._pitch - _GAP
        return QRectF(at % columns * width, top, width - _GAP, height)


def _draw(
    painter: QPainter, box: QRectF, cell: MapCell, text: str, small: QFont, strong: QFont
) -> None:
    t = theme.tokens()
    ground = QColor(t.sunken) if cell.share is None else theme.shade(cell.share)
    painter.fillRect(box, ground)
    if cell.meaning:
        edge = QRectF(box)
        edge.setWidth(_EDGE)
        painter.fillRect(edge, QColor(theme.meaning_color(cell.meaning)))
    painter.setPen(QColor(t.muted) if cell.share is None else theme.readable_on(ground))
    painter.setFont(small)
    painter.drawText(box.adjusted(7, 0, -4, 0), _LEFT, cell.number)
    painter.setFont(strong)
    painter.drawText(box.adjusted(20, 0, -7, 0), _RIGHT, text)


class FleetView(QWidget):
    """Show the map below the boxes that sort and filter it.

    Emits `opened` with a device, and `charted` with the devices that the charts show.
    """

    opened = Signal(str)
    charted = Signal(tuple)

    def __init__(self) -> None:
        super().__init__()
        self.map = FleetMap()
        self.map.opened.connect(self.opened)
        self.quantity = choice_box(tr("Colour by"), QUANTITIES)
        self.order = choice_box(tr("Order"), ORDERS)
        self.kind = choice_box(tr("Show"), FILTERS)
        self.filter = filter_box(tr("Search names, jobs"))
        self.filter.setMinimumWidth(theme.px(120))
        self.filter.setMaximumWidth(theme.px(260))
        self.count = elided(size="small", meaning="muted")
        self.count.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._tiles: tuple[Tile, ...] = ()
        self._devices: tuple[str, ...] = ()
        self._sorted_at = 0.0
        for box in (self.quantity, self.order, self.kind):
            box.currentIndexChanged.connect(self._renew)
        self.filter.textChanged.connect(self._renew)
        self.area = scroll_area(self.map)
        boxes = (self.quantity, self.order, self.kind)
        self.keys = {meaning: label(size="small", meaning=meaning) for meaning in _JUDGED}
        """What the coloured edges of cells mean, and how many there are."""
        bar = row(*boxes, Stretch(self.filter, 2), *self.keys.values(), Stretch(self.count))
        self.setLayout(column(bar, Stretch(self.area)))

    def show_tiles(self, tiles: tuple[Tile, ...]) -> None:
        """Show the devices of these tiles."""
        changed = {tile.device for tile in self._tiles} != {tile.device for tile in tiles}
        self._tiles = tiles
        if changed or time.monotonic() - self._sorted_at > _REORDER_S:
            self._sort()
        self._show_cells()

    def fit(self, width: int, room: int) -> int:
        """Return the pixels of height that show everything, or whole lines of it in `room`."""
        boxes = max(box.sizeHint().height() for box in (self.quantity, self.filter))
        above = boxes + theme.S
        return above + self.map.fit(width, room - above)

    def _renew(self) -> None:
        self._sort()
        self._show_cells()

    def _sort(self) -> None:
        self._sorted_at = time.monotonic()
        selection = Selection(
            self.quantity.currentData(),
            self.order.currentData(),
            self.kind.currentData(),
            self.filter.text(),
        )
        devices = selected_devices(self._tiles, selection)
        if devices != self._devices:
            self._devices = devices
            self.charted.emit(devices)

    def _show_cells(self) -> None:
        tiles, quantity = {tile.device: tile for tile in self._tiles}, self.quantity.currentData()
        self.map.show_cells(
            tuple(map_cell(tiles[d], quantity) for d in self._devices if d in tiles)
        )
        meanings = Counter(cell.meaning for cell in self.map.cells)
        for meaning, key in self.keys.items():
            text = f"▌{meanings[meaning]} {tr(meaning)}" if meanings[meaning] else ""
            show_if_any(key, text)
        every = len(self._devices) == len(self._tiles)
        shown, count = len(self._devices), len(self._tiles)
        if every:
            set_text(self.count, tr("{n} devices", n=count))
        else:
            set_text(self.count, tr("{n} of {total} devices", n=shown, total=count))
        set_tooltip(self.count, "" if every else tr("The charts show these devices"))
