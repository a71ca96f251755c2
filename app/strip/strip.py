"""The devices, always visible: a strip of tiles that wraps into equal columns, or a map where there are many."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QScrollArea, QStackedWidget, QWidget

from app.charts.refresh_rate import Turns
from app.strip.fleet_model import MANY
from app.strip.tile_model import Tile
from app.strip.tile_view import NARROWEST, Form, TileView
from app.widgets import theme
from app.widgets.controls import label

if TYPE_CHECKING:
    from app.strip.fleet_view import Fleet

_MOST_OF_WINDOW = 0.45
_MUCH_OF_ROOM = 0.6
"""Tiles that would fill more of that are low ones."""


class Strip(QStackedWidget):
    """Tiles, or a map of many devices. Emits `opened` with a device to show all about, `charted` with those whose curves to show."""

    opened = Signal(str)
    charted = Signal(tuple)

    def __init__(self) -> None:
        super().__init__()
        self.lines = Tiles()
        self.lines.opened.connect(self.opened)
        self.lines.placed.connect(self._fit)
        self.addWidget(self.lines)
        self._fit()

    @cached_property
    def fleet(self) -> Fleet:
        """The map, made when there are many devices for the first time: the window starts without."""
        from app.strip.fleet_view import Fleet

        made = Fleet()
        made.opened.connect(self.opened)
        made.charted.connect(self.charted)
        self.addWidget(made)
        return made

    @property
    def tiles(self) -> dict[str, TileView]:
        """Those that are shown, by device."""
        return self.lines.tiles

    @property
    def many(self) -> bool:
        return self.currentWidget() is not self.lines

    def show_tiles(self, tiles: tuple[Tile, ...], hz: float) -> None:
        """`hz`: readings a second."""
        if len(tiles) > MANY:
            self.setCurrentWidget(self.fleet)
            self.fleet.show_tiles(tiles)
        else:
            self.setCurrentWidget(self.lines)
            self.lines.show_tiles(tiles, hz)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """As high as it needs, up to less than half of the window; more than that scrolls."""
        room = (
            int(_MOST_OF_WINDOW * self.window().height()) if self.window() is not self else theme.XL
        )
        height = (
            min(self.fleet.height_for(self.width()), room) if self.many else self.lines.fit(room)
        )
        if height != self.height():
            self.setFixedHeight(height)


class Tiles(QScrollArea):
    """All tiles of one form, in equal columns. Emits `opened` with a device, and `placed` when it may need another height."""

    opened = Signal(str)
    placed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.tiles: dict[str, TileView] = {}
        self.empty = label("Waits for the first reading of the devices", meaning="muted")
        body = QWidget()
        body.setProperty("clear", "true")
        self._grid = QGridLayout(body)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(theme.S)
        self._grid.addWidget(self.empty, 0, 0)
        self._columns = 0
        self._turns = Turns()
        self._slim = False
        self.setWidget(body)

    def show_tiles(self, tiles: tuple[Tile, ...], hz: float) -> None:
        """Each in its turn where readings come faster than digits can be read."""
        if tuple(self.tiles) != tuple(t.device for t in tiles):
            self._rebuild(tuple(t.device for t in tiles))
        self._turns.begin(hz)
        for at, tile in enumerate(tiles):
            view = self.tiles[tile.device]
            if view.tile is None or self._turns.due(at):
                view.show_tile(tile)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.place()

    def place(self) -> None:
        """All tiles in the same form, and then their places."""
        self._arrange()
        self.placed.emit()

    def _lines(self, form: Form) -> tuple[int, int]:
        """Lines and columns of equal width: as many columns as fit, then as few as keep the number of lines."""
        count = max(len(self.tiles), 1)
        fit = max(1, min(count, (self.width() + theme.S) // (NARROWEST[form] + theme.S)))
        lines = -(-count // fit)
        return lines, -(-count // lines)

    def _arrange(self) -> None:
        form: Form = "slim" if self._slim else "compact"
        _, columns = self._lines(form)
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
        self.tiles = {device: self.tiles.get(device) or self._made(device) for device in devices}
        self.empty.setVisible(not devices)
        self._columns = 0
        self.place()

    def _made(self, device: str) -> TileView:
        view = TileView()
        view.opened.connect(lambda: self.opened.emit(device))
        return view

    def fit(self, room: int) -> int:
        """Exactly as high as its lines, or as many whole lines as there is room for; at least two. Low ones, where they would take much."""
        views = list(self.tiles.values())
        if views and self._slim != (
            slim := self._lines("compact")[0] * (views[0].height_as("compact") + theme.S)
            > _MUCH_OF_ROOM * room
        ):
            self._slim = slim
            self._arrange()
        height = views[0].sizeHint().height() if views else theme.XL
        lines = -(-max(len(views), 1) // max(self._columns, 1))
        lines = min(lines, max((room + theme.S) // (height + theme.S), 2))
        return lines * height + (lines - 1) * theme.S
