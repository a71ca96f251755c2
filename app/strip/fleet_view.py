"""The strip of many devices: by which quantity, in which order, which of them; and the map."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QScrollArea, QVBoxLayout, QWidget

from app.strip.fleet_map import FleetMap
from app.strip.fleet_model import CHARTED, KINDS, ORDERS, QUANTITIES, cells, chosen
from app.strip.tile_model import Tile
from app.widgets import theme
from app.widgets.controls import filter_box, label, row, set_text

_REORDER_S = 5.0
"""An order by value is made anew so often: cells that change places with every reading could not be followed."""


class Fleet(QWidget):
    """Emits `opened` with a device, and `charted` with those whose curves are to be shown."""

    opened = Signal(str)
    charted = Signal(tuple)

    def __init__(self) -> None:
        super().__init__()
        self.map = FleetMap()
        self.map.opened.connect(self.opened)
        self.quantity = _box("Colour by", [q.name for q in QUANTITIES])
        self.order = _box("Order", list(ORDERS))
        self.kind = _box("Which devices", list(KINDS))
        self.filter = filter_box("Search names, jobs")
        self.filter.setMinimumWidth(200)
        self.count = label(size="small", meaning="muted")
        self._tiles: tuple[Tile, ...] = ()
        self._shown: tuple[str, ...] = ()
        self._ordered = 0.0
        for box in (self.quantity, self.order, self.kind):
            box.currentIndexChanged.connect(self._renew)
        self.filter.textChanged.connect(self._renew)
        bar = row(self.quantity, self.order, self.kind, self.filter, self.count)
        bar.insertStretch(4, 1)
        self.area = QScrollArea()
        self.area.setWidgetResizable(True)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setWidget(self.map)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(bar)
        layout.addWidget(self.area, 1)

    def show_tiles(self, tiles: tuple[Tile, ...]) -> None:
        here = {tile.device for tile in tiles}
        stale = {tile.device for tile in self._tiles} != here
        self._tiles = tiles
        if stale or time.monotonic() - self._ordered > _REORDER_S:
            self._arrange()
        self._paint()

    def height_for(self, width: int) -> int:
        """What all of it needs."""
        return self.quantity.sizeHint().height() + theme.S + self.map.heightForWidth(width)

    def _renew(self) -> None:
        self._arrange()
        self._paint()

    def _arrange(self) -> None:
        self._ordered = time.monotonic()
        quantity = QUANTITIES[self.quantity.currentIndex()]
        shown = chosen(
            self._tiles,
            quantity,
            self.order.currentText(),
            self.kind.currentText(),
            self.filter.text(),
        )
        if shown != self._shown:
            self._shown = shown
            self.charted.emit(shown[:CHARTED])

    def _paint(self) -> None:
        known = {tile.device: tile for tile in self._tiles}
        self.map.show_cells(
            cells(
                tuple(known[d] for d in self._shown if d in known),
                QUANTITIES[self.quantity.currentIndex()],
            )
        )
        many = f"{len(self._shown)} of {len(self._tiles)} devices"
        set_text(
            self.count,
            many + (f"; charts: the first {CHARTED}" if len(self._shown) > CHARTED else ""),
        )


def _box(name: str, choices: list[str]) -> QComboBox:
    made = QComboBox()
    made.addItems(choices)
    made.setAccessibleName(name)
    made.setToolTip(name)
    return made
