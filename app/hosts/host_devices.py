"""Show the devices of one machine as tiles, and the last minutes of the busiest one."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from app.charts.history import History
from app.charts.series import Floats
from app.charts.spark_row import SparkRow
from app.format.values import device_label
from app.strip.strip import TileGrid
from app.strip.tile_model import tiles
from app.widgets import theme
from app.widgets.controls import Stretch, column, label, set_text
from scheduler.protocol.snapshot import DeviceState, HostState, Snapshot

_LOAD = (60.0, 40)
"""Seconds of the sparklines in the tiles, and their points."""
_HIGHEST, _OTHERS = 320, 90
"""Pixels of height of a curve at most, and of all that is neither a tile nor a curve."""


class HostDevices(QWidget):
    """Show what a machine has and does; hidden while nothing is known of it."""

    opened = Signal(str)
    """Carries the device that was clicked."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self.title = label(strong=True)
        self.grid = TileGrid()
        self.grid.opened.connect(self.opened)
        self.busiest = label(size="small", meaning="muted")
        self.sparks = SparkRow(_HIGHEST)
        self.setLayout(column(self.title, self.grid, self.busiest, self.sparks, Stretch()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the curves the height that the tiles leave, up to a limit."""
        super().resizeEvent(event)
        self.sparks.fit(self.height() - self.grid.height() - theme.px(_OTHERS))

    def show_host(self, snapshot: Snapshot, host: HostState | None, name: str) -> None:
        """Show the devices of a machine, under its name."""
        devices = {s.device.id for s in host.devices} if host is not None else set()
        shown = tuple(tile for tile in tiles(snapshot) if tile.device in devices)
        self.setVisible(bool(shown))
        if not shown or host is None:
            return
        set_text(self.title, name)
        self.grid.show_tiles(shown, snapshot.settings.telemetry_hz, self._load)
        self.grid.setFixedHeight(self.grid.fit(max(self.height(), 1)))
        known = [state for state in host.devices if state.reading is not None]
        self._show_busiest(max(known, key=_utilisation, default=None))

    def _load(self, device: str) -> Floats:
        return self._history.recent(device, "util", *_LOAD)

    def _show_busiest(self, state: DeviceState | None) -> None:
        self.sparks.setVisible(state is not None)
        if state is not None:
            self.sparks.show_device(state, self._history)
            set_text(self.busiest, f"{device_label(state.device)}, last 10 minutes")
        self.busiest.setVisible(state is not None and not self.sparks.empty)


def _utilisation(state: DeviceState) -> float:
    return state.reading.values.get("util", 0.0) if state.reading is not None else 0.0
