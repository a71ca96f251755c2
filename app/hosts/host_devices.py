"""Show the devices of one machine as tiles, and the last minutes of the busiest of them."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.history import History
from gpudeck.app.charts.series import Floats
from gpudeck.app.charts.spark_row import SparkRow
from gpudeck.app.format.values import device_label
from gpudeck.app.language.texts import tr
from gpudeck.app.strip.strip import TileGrid
from gpudeck.app.strip.tile_model import tiles
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, column, label, set_text
from gpudeck.scheduler.protocol.snapshot import DeviceState, HostState, Snapshot

_LOAD = (60.0, 40)
"""Seconds of the sparklines in the tiles, and their points."""
_ROOMY, _ACROSS, _MOST_ACROSS = 1500, 3, 5
"""Pixels of width from which on the most curves are side by side, and how many else and then."""
_HIGHEST, _LOWEST, _OTHERS = 180, 150, 90
"""Pixels of height of a curve at most and where there are several lines of them, and of all that
is neither a tile nor a curve."""
_MOST_TILES, _FEW_TILES, _MOST_CURVES = 8, 4, 4
"""The devices with tiles at most, in a low window, and with curves: the busiest ones."""
_STEP = 10.0
"""The difference of utilisation, in %, that makes a device busier than another one."""
_PRESENT = 5.0
"""Seconds whose highest load counts as the present one, so that short pauses reorder nothing."""
_LOW = 640
"""Pixels of height below which a window has room for few tiles."""


class HostDevices(QWidget):
    """Show what a machine has and does; hidden while nothing is known of it."""

    opened = Signal(str)
    """Carries the device that was clicked."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self.title = label(strong=True, wrap=True)
        self.grid = TileGrid()
        self.grid.opened.connect(self.opened)
        self.curves = [DeviceCurves() for _ in range(_MOST_CURVES)]
        self.setLayout(column(self.title, self.grid, *self.curves, Stretch()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    @property
    def _room(self) -> int:
        """Return the pixels of height that the tiles leave to curves."""
        return self.height() - self.grid.height() - theme.px(_OTHERS)

    def _fit(self) -> None:
        """Give the curves the height that the tiles leave, up to a limit."""
        shown = [curves for curves in self.curves if not curves.isHidden()]
        for curves in shown:
            curves.sparks.fit(self._room // len(shown) - theme.px(theme.XL))

    def show_host(self, snapshot: Snapshot, host: HostState | None, name: str) -> None:
        """Show the devices of a machine, under its name."""
        devices = sorted(host.devices, key=self._idleness) if host is not None else []
        low = self.window().height() < theme.px(_LOW)
        most = _FEW_TILES if low else _MOST_TILES
        busiest = {state.device.id for state in devices[:most]}
        shown = tuple(tile for tile in tiles(snapshot) if tile.device in busiest)
        self.setVisible(bool(shown))
        if not shown:
            return
        if len(devices) > most:
            total = len(devices)
            name = tr("{name}: {number} of {total} are shown", name=name, number=most, total=total)
        set_text(self.title, name)
        self.grid.show_tiles(shown, snapshot.settings.telemetry_hz, self._load)
        self.grid.setFixedHeight(self.grid.fit(1 if low else max(self.height(), 1)))
        several = max(self._room // theme.px(_LOWEST + theme.XL), 1)
        known = [state for state in devices if state.reading is not None][:several]
        known.sort(key=lambda state: state.device.index)
        for at, curves in enumerate(self.curves):
            curves.show_device(known[at] if at < len(known) else None, self._history)
        self._fit()

    def _load(self, device: str) -> Floats:
        return self._history.recent(device, "util", *_LOAD)

    def _idleness(self, state: DeviceState) -> tuple[int, int]:
        """Return a rank that is lower for devices which are busier now, and were before."""
        util = state.reading.values.get("util", 0.0) if state.reading is not None else 0.0
        lately = np.append(self._history.recent(state.device.id, "util", _PRESENT, 1), util)
        before = np.append(self._load(state.device.id), util)
        return -round(float(np.nanmax(lately)) / _STEP), -round(float(np.nanmean(before)) / _STEP)


class DeviceCurves(QWidget):
    """Show the curves of one device below its name; hidden where it has no history."""

    def __init__(self) -> None:
        super().__init__()
        self.title = label(strong=True, wrap=True)
        self.sparks = SparkRow(_HIGHEST)
        self.setLayout(column(self.title, self.sparks))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put few curves side by side where they would be higher than wide."""
        super().resizeEvent(event)
        self.sparks.limit(_ACROSS if self.width() < theme.px(_ROOMY) else _MOST_ACROSS)

    def show_device(self, state: DeviceState | None, history: History) -> None:
        """Show another device, or its newest values; nothing for None."""
        if state is not None:
            self.sparks.show_device(state, history)
            set_text(self.title, tr("{device}, last 10 minutes", device=device_label(state.device)))
        self.setVisible(state is not None and not self.sparks.empty)
