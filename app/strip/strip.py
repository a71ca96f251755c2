"""Show the devices at the top of every page: as tiles, or as a map where there are many."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QScrollArea, QStackedWidget

from app.charts.refresh_rate import StaggeredRefresh
from app.strip.fleet_model import MANY
from app.strip.tile_model import Tile
from app.strip.tile_view import NARROWEST, Form, TileView
from app.widgets import theme
from app.widgets.controls import clear_panel, label, set_up_scroll

if TYPE_CHECKING:
    from app.strip.fleet_view import FleetView

MOST_OF_WINDOW = 0.45
_MOST_OF_ROOM = 0.6
"""Tiles that would fill more of their room become slim."""


class Strip(QStackedWidget):
    """Show tiles, or a map of many devices.

    Emits `opened` with the device that the user wants to see, and `charted` with the devices
    that the charts show.
    """

    opened = Signal(str)
    charted = Signal(tuple)

    def __init__(self) -> None:
        super().__init__()
        self.grid = TileGrid()
        self.grid.opened.connect(self.opened)
        self.grid.placed.connect(self._fit)
        self.addWidget(self.grid)
        self._fit()

    @cached_property
    def fleet(self) -> FleetView:
        """Return the map; it is made when there are many devices for the first time."""
        from app.strip.fleet_view import FleetView

        made = FleetView()
        made.opened.connect(self.opened)
        made.charted.connect(self.charted)
        self.addWidget(made)
        return made

    @property
    def tiles(self) -> dict[str, TileView]:
        """Return the tiles that are shown, by device."""
        return self.grid.tiles

    @property
    def many(self) -> bool:
        """Report if the map is shown."""
        return self.currentWidget() is not self.grid

    def show_tiles(self, tiles: tuple[Tile, ...], hz: float) -> None:
        """Show the devices; `hz` is the number of readings a second."""
        if len(tiles) > MANY:
            self.setCurrentWidget(self.fleet)
            self.fleet.show_tiles(tiles)
        else:
            self.setCurrentWidget(self.grid)
            self.grid.show_tiles(tiles, hz)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Be as high as the content needs, but less than half of the window; the rest scrolls."""
        room = theme.XL
        if self.window() is not self:
            room = int(MOST_OF_WINDOW * self.window().height())
        if self.many:
            height = min(self.fleet.height_for(self.width()), room)
        else:
            height = self.grid.fit(room)
        if height != self.height():
            self.setFixedHeight(height)


class TileGrid(QScrollArea):
    """Show tiles of the same form in columns of the same width.

    Emits `opened` with a device, and `placed` when it may need another height.
    """

    opened = Signal(str)
    placed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.tiles: dict[str, TileView] = {}
        self.empty = label("Waiting for the first reading of the devices…", meaning="muted")
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(theme.S)
        self._grid.addWidget(self.empty, 0, 0)
        self._columns = 0
        self._refresh = StaggeredRefresh()
        self._slim = False
        set_up_scroll(self, clear_panel(self._grid))

    def show_tiles(self, tiles: tuple[Tile, ...], hz: float) -> None:
        """Show the tiles; not all at once if readings come faster than digits can be read."""
        devices = tuple(tile.device for tile in tiles)
        if tuple(self.tiles) != devices:
            self._rebuild(devices)
        self._refresh.begin(hz)
        for at, tile in enumerate(tiles):
            view = self.tiles[tile.device]
            if view.tile is None or self._refresh.includes(at):
                view.show_tile(tile)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        self._arrange()
        self.placed.emit()

    def _lines_and_columns(self, form: Form) -> tuple[int, int]:
        """Return as few lines as the form allows, and as few columns as these lines need."""
        count = max(len(self.tiles), 1)
        fit = max(1, min(count, (self.width() + theme.S) // (NARROWEST[form] + theme.S)))
        lines = -(-count // fit)
        return lines, -(-count // lines)

    def _arrange(self) -> None:
        form: Form = "slim" if self._slim else "compact"
        _, columns = self._lines_and_columns(form)
        if columns != self._columns:
            for at in range(self._columns):
                self._grid.setColumnStretch(at, 0)
            for i, view in enumerate(self.tiles.values()):
                self._grid.addWidget(view, i // columns, i % columns)
            for at in range(columns):
                self._grid.setColumnStretch(at, 1)
            self._columns = columns
        if not self._slim and (self.width() + theme.S) // columns - theme.S >= NARROWEST["wide"]:
            form = "wide"
        for view in self.tiles.values():
            view.set_form(form)

    def _rebuild(self, devices: tuple[str, ...]) -> None:
        for device in [d for d in self.tiles if d not in devices]:
            view = self.tiles.pop(device)
            self._grid.removeWidget(view)
            view.deleteLater()
        self.tiles = {
            device: self.tiles.get(device) or self._new_tile(device) for device in devices
        }
        self.empty.setVisible(not devices)
        self._columns = 0
        self._place()

    def _new_tile(self, device: str) -> TileView:
        view = TileView()
        view.opened.connect(lambda: self.opened.emit(device))
        return view

    def fit(self, room: int) -> int:
        """Choose slim tiles if others would take much of `room`; return the height in pixels.

        The height is that of all lines, or of as many whole lines as fit, but of two at least.
        """
        views = list(self.tiles.values())
        if not views:
            return theme.XL
        lines, _ = self._lines_and_columns("compact")
        slim = lines * (views[0].height_as("compact") + theme.S) > _MOST_OF_ROOM * room
        if slim != self._slim:
            self._slim = slim
            self._arrange()
        height = views[0].sizeHint().height()
        lines = -(-len(views) // max(self._columns, 1))
        lines = min(lines, max((room + theme.S) // (height + theme.S), 2))
        return lines * height + (lines - 1) * theme.S
