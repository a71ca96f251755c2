"""Show the devices at the top of every page: as tiles, a map of many, or a line of chips."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget

from gpudeck.app.charts.refresh_rate import StaggeredRefresh
from gpudeck.app.charts.series import Floats
from gpudeck.app.language.texts import tr
from gpudeck.app.strip.chips import ChipLine
from gpudeck.app.strip.fleet_model import MANY
from gpudeck.app.strip.tile_model import Tile
from gpudeck.app.strip.tile_view import Form, TileView, narrowest
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import label, set_up_scroll

if TYPE_CHECKING:
    from gpudeck.app.strip.fleet_view import FleetView

MOST_OF_WINDOW = 0.45
"""A share of the window's height."""
_MOST_OF_ROOM = 0.4
"""Tiles that would fill more of their room become slim."""


class Strip(QStackedWidget):
    """Show tiles, a map of many devices, or while it is collapsed a line of chips.

    Emits `opened` with the device that the user wants to see, and `charted` with the devices
    that the charts show; `overviewed` with a machine whose devices the user wants to see.
    """

    opened = Signal(str)
    overviewed = Signal(str)
    charted = Signal(tuple)
    job_wanted = Signal(str)
    """Carries a free device on which the user wants to start a job."""

    def __init__(self) -> None:
        super().__init__()
        self.collapsed = False
        self.grid, self.chips = TileGrid(), ChipLine()
        self.grid.opened.connect(self.opened)
        self.grid.job_wanted.connect(self.job_wanted)
        self.grid.placed.connect(self._fit)
        self.chips.opened.connect(self.opened)
        self.chips.overviewed.connect(self.overviewed)
        self.addWidget(self.grid)
        self.addWidget(self.chips)
        self._tiles: tuple[Tile, ...] = ()
        self._fit()

    @cached_property
    def fleet(self) -> FleetView:
        """Return the map; it is made when there are many devices for the first time."""
        from gpudeck.app.strip.fleet_view import FleetView

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
        """Report if there are so many devices that a map is shown."""
        return len(self._tiles) > MANY

    def show_machine(self, host: str) -> None:
        """Show only the devices of a machine in the map; all of them if it is empty."""
        if self.many:
            self.fleet.filter.setText(host)

    def mark_shown(self, device: str) -> None:
        """Mark the device whose page is shown; none if it is empty."""
        self.chips.mark_shown(device)

    def collapse(self, collapsed: bool) -> None:
        """Show a line of chips, or everything again."""
        if collapsed != self.collapsed:
            self.collapsed = collapsed
            self._show(hz=1.0)

    def show_tiles(
        self, tiles: tuple[Tile, ...], hz: float, loads: Callable[[str], Floats] | None = None
    ) -> None:
        """Show the devices.

        Args:
            hz: The number of readings a second.
            loads: Returns the utilisation of a device in the last minute, for its sparkline.
        """
        self._tiles = tiles
        self._show(hz, loads)

    def _show(self, hz: float, loads: Callable[[str], Floats] | None = None) -> None:
        tiles = self._tiles
        if self.many:
            self.fleet.show_tiles(tiles)
        if self.collapsed and tiles:
            self.setCurrentWidget(self.chips)
            self.chips.show_tiles(tiles)
        elif self.many:
            self.setCurrentWidget(self.fleet)
        else:
            self.setCurrentWidget(self.grid)
            self.grid.show_tiles(tiles, hz, loads)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Be as high as the content needs, but less than half of the window; the rest scrolls."""
        whole = self.window().height() if self.window() is not self else 0
        room = int(MOST_OF_WINDOW * whole) or theme.XL
        if self.currentWidget() is self.chips:
            height = self.chips.fit(self.width())
        elif self.many:
            height = self.fleet.fit(self.width(), room)
        else:
            height = self.grid.fit(room)
        if height != self.height():
            self.setFixedHeight(height)


class TileGrid(QScrollArea):
    """Show tiles of the same form in columns of the same width.

    It places them itself: a layout would place those that are hidden behind the map only when
    they are shown again. Emits `opened` and `job_wanted` with a device, and `placed` when it may
    need another height.
    """

    opened = Signal(str)
    job_wanted = Signal(str)
    placed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.tiles: dict[str, TileView] = {}
        self._panel = QWidget()
        self._panel.setProperty("clear", "true")
        self.empty = label(tr("Waiting for the first reading of the devices…"), meaning="muted")
        self.empty.setParent(self._panel)
        self._refresh = StaggeredRefresh()
        self._form: Form = "compact"
        """How high the tiles may be; compact ones become wide where they have room."""
        self._columns = 1
        set_up_scroll(self, self._panel)

    def show_tiles(
        self, tiles: tuple[Tile, ...], hz: float, loads: Callable[[str], Floats] | None
    ) -> None:
        """Show the tiles; not all at once if readings come faster than digits can be read."""
        devices = tuple(tile.device for tile in tiles)
        if tuple(self.tiles) != devices:
            self._rebuild(devices)
        self._refresh.begin(hz)
        if len(tiles) > 1 and len({tile.name for tile in tiles}) == 1:  # the header says it once
            tiles = tuple(msgspec.structs.replace(tile, name="") for tile in tiles)
        for at, tile in enumerate(tiles):
            view = self.tiles[tile.device]
            if view.tile is None or self._refresh.includes(at):
                view.show_tile(tile)
                if loads is not None:
                    view.show_load(loads(tile.device))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()
        self.placed.emit()

    def _lines_and_columns(self, form: Form) -> tuple[int, int]:
        """Return as few lines as the form allows, and as few columns as these lines need."""
        count = max(len(self.tiles), 1)
        room = self.width() + theme.S
        fit = max(1, min(count, room // (narrowest(form) + theme.S)))
        lines = -(-count // fit)
        return lines, -(-count // lines)

    def _arrange(self) -> None:
        """Give every tile its form and place."""
        self.empty.adjustSize()
        if not self.tiles:
            return
        form = self._form
        lines, self._columns = self._lines_and_columns(form)
        whole = self.viewport().width()
        width = (whole + theme.S) / self._columns
        if form == "compact" and width - theme.S >= narrowest("wide"):
            form = "wide"
        height = next(iter(self.tiles.values())).height_as(form)
        for at, view in enumerate(self.tiles.values()):
            view.set_form(form)
            line, place = divmod(at, self._columns)
            left, right = round(place * width), round((place + 1) * width) - theme.S
            view.setGeometry(left, line * (height + theme.S), right - left, height)
        self._panel.setMinimumHeight(lines * (height + theme.S) - theme.S)

    def _rebuild(self, devices: tuple[str, ...]) -> None:
        for device in [d for d in self.tiles if d not in devices]:
            view = self.tiles.pop(device)
            view.hide()  # now, since it is deleted later
            view.deleteLater()
        self.tiles = {
            device: self.tiles.get(device) or self._new_tile(device) for device in devices
        }
        self.empty.setVisible(not devices)
        self._arrange()
        self.placed.emit()

    def _height_as(self, form: Form) -> int:
        """Return the pixels of height that all tiles take in a form."""
        lines, _ = self._lines_and_columns(form)
        return lines * (next(iter(self.tiles.values())).height_as(form) + theme.S)

    def _new_tile(self, device: str) -> TileView:
        view = TileView(self._panel)
        view.opened.connect(lambda: self.opened.emit(device))
        view.job_wanted.connect(lambda: self.job_wanted.emit(device))
        view.show()
        return view

    def fit(self, room: int) -> int:
        """Choose slim tiles if others would take much of `room`; return the height in pixels.

        The height is that of all lines, or of as many whole lines as fit, but of two at least.
        """
        views = list(self.tiles.values())
        if not views:
            self._panel.setMinimumHeight(0)
            return theme.px(theme.XL)
        forms: tuple[Form, ...] = ("compact", "slim", "tiny")
        self._form = next((f for f in forms if self._height_as(f) <= _MOST_OF_ROOM * room), "tiny")
        self._arrange()
        height = views[0].sizeHint().height()
        lines = -(-len(views) // self._columns)
        lines = min(lines, max((room + theme.S) // (height + theme.S), 2))
        return lines * height + (lines - 1) * theme.S
