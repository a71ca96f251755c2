"""The devices, always visible: a strip of tiles that wraps into equal columns."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QScrollArea, QWidget

from app import theme
from app.models.tiles import Tile
from app.views.tile import NARROWEST, WIDE, TileView
from app.views.widgets import label

_MOST_OF_WINDOW = 0.45


class Strip(QScrollArea):
    """As high as its lines need, up to less than half of the window; more than that scrolls."""

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
        self.setWidget(body)
        self._fit()

    def show_tiles(self, tiles: tuple[Tile, ...]) -> None:
        if tuple(self.tiles) != tuple(t.device for t in tiles):
            self._rebuild(tuple(t.device for t in tiles))
        for tile in tiles:
            self.tiles[tile.device].show_tile(tile)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.place()

    def place(self) -> None:
        """Equal columns: as many as fit, then as few as keep the number of lines. All tiles take the same form."""
        count = max(len(self.tiles), 1)
        fit = max(1, min(count, (self.width() + theme.S) // (NARROWEST + theme.S)))
        columns = -(-count // -(-count // fit))
        if columns != self._columns:
            for at in range(self._columns):
                self._grid.setColumnStretch(at, 0)
            for i, view in enumerate(self.tiles.values()):
                self._grid.addWidget(view, i // columns, i % columns)
            for at in range(columns):
                self._grid.setColumnStretch(at, 1)
            self._columns = columns
        wide = (self.width() + theme.S) // columns - theme.S >= WIDE
        for view in self.tiles.values():
            view.set_wide(wide)
        self._fit()

    def _rebuild(self, devices: tuple[str, ...]) -> None:
        for device in [d for d in self.tiles if d not in devices]:
            view = self.tiles.pop(device)
            self._grid.removeWidget(view)
            view.deleteLater()
        self.tiles = {device: self.tiles.get(device) or TileView() for device in devices}
        self.empty.setVisible(not devices)
        self._columns = 0
        self.place()

    def _fit(self) -> None:
        """Exactly as high as its lines, or as many whole lines as there is room for."""
        views = list(self.tiles.values())
        height = views[0].sizeHint().height() if views else theme.XL
        lines = -(-max(len(views), 1) // max(self._columns, 1))
        room = int(_MOST_OF_WINDOW * self.window().height()) if self.window() is not self else 0
        lines = min(lines, max((room + theme.S) // (height + theme.S), 2))
        self.setFixedHeight(lines * height + (lines - 1) * theme.S)
