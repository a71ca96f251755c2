"""Show the devices of one machine as tiles, and the last minutes of the busiest one."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from app.charts.chart_model import LIMITS, scale, title
from app.charts.history import History
from app.charts.series import Floats
from app.charts.spark_card import HEIGHT, SparkCard
from app.format.values import device_label, format_field
from app.strip.strip import TileGrid
from app.strip.tile_model import tiles
from app.widgets import theme
from app.widgets.controls import Stretch, column, label, row, set_text
from scheduler.protocol.fields import HEADLINE
from scheduler.protocol.snapshot import DeviceState, HostState, Snapshot

_LOAD, _RECENT = (60.0, 40), (600.0, 200)
"""Seconds of the sparklines in the tiles and below them, and their points."""
_HIGHEST, _OTHERS = 460, 90
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
        self.sparks = {field: SparkCard(title(field)) for field in HEADLINE}
        curves = row(*(Stretch(spark) for spark in self.sparks.values()))
        self.setLayout(column(self.title, self.grid, self.busiest, curves, Stretch()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the curves the height that the tiles leave, up to a limit."""
        super().resizeEvent(event)
        left = self.height() - self.grid.height() - theme.px(_OTHERS)
        for spark in self.sparks.values():
            spark.setFixedHeight(min(max(left, theme.px(HEIGHT)), theme.px(_HIGHEST)))

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
        drawn = False
        for field, spark in self.sparks.items():
            reading = state.reading if state is not None else None
            values = np.empty(0)
            if state is not None:
                values = self._history.recent(state.device.id, field, *_RECENT)
            spark.setVisible(reading is not None and not bool(np.isnan(values).all()))
            if reading is not None:
                limit = reading.values.get(LIMITS.get(field, ""))
                top = 100.0 if field == "util" else limit
                text = str(format_field(field, reading.get(field)))
                spark.show_values(values, top, text, scale(field))
            drawn = drawn or spark.isVisibleTo(self)
        self.busiest.setVisible(drawn)
        if state is not None:
            set_text(self.busiest, f"{device_label(state.device)}, last 10 minutes")


def _utilisation(state: DeviceState) -> float:
    return state.reading.values.get("util", 0.0) if state.reading is not None else 0.0
