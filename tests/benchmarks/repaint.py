"""How long a repaint of the dashboard takes: 8 replayed H100s, ten minutes of history at 2 Hz, the real window, offscreen."""

from __future__ import annotations

import os
import time

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app import theme
from app.models.requests import Link
from app.views.window import MainWindow
from scheduler import paths
from scheduler.devices.replay import ReplaySource
from scheduler.settings import Settings
from scheduler.telemetry.snapshot import Busy, DeviceState, Snapshot
from tests.benchmarks.rows import spread

DEVICES, SECONDS, HZ = 8, 600, 2.0


def measure(repaints: int = 120, size: tuple[int, int] = (1280, 800)) -> dict[str, float]:
    """Milliseconds from a new snapshot to the painted window: each takes in the snapshot of the next half second, lays out, and
    paints what that changed: tiles, charts, status line."""
    app = QApplication.instance() or QApplication([])
    assert isinstance(app, QApplication)
    theme.apply(app, "light")
    window = MainWindow()
    window.resize(*size)
    window.show_link(Link(connected=True, text="connected"))
    snapshots = _snapshots(int(SECONDS * HZ) + repaints + 10)
    for snapshot in snapshots[: int(SECONDS * HZ)]:
        window.state.update(snapshot)
    window.show()
    window.dashboard.show_last(SECONDS)
    app.processEvents()
    spent = []
    for snapshot in snapshots[int(SECONDS * HZ) :]:
        begin = time.perf_counter()
        window.state.update(snapshot)
        window.refresh()
        app.processEvents()
        spent.append((time.perf_counter() - begin) * 1e3)
    window.close()
    return spread(spent[10:])  # the first ones fill caches


def _snapshots(count: int) -> list[Snapshot]:
    """What the daemon would push while it replays the shipped trace as eight GPUs."""
    start = time.time()
    source = ReplaySource(paths.assets() / "h100.trace.gz", DEVICES, start)
    devices = source.devices()
    made = []
    for i in range(count):
        now = start + i / HZ
        states = tuple(DeviceState(d, r, Busy("replayed")) for d, r in zip(devices, source.read(now), strict=True))
        made.append(Snapshot(i, now, states, (), Settings(), "replay of h100.trace.gz"))
    return made


if __name__ == "__main__":
    print(measure())
