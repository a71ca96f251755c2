"""Measure a repaint of the dashboard: 8 replayed H100s, ten minutes of history, 10 readings a
second.

The window is real, but offscreen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import msgspec

from gpudeck.app.link.link import Link
from gpudeck.app.shell.window import MainWindow
from gpudeck.app.widgets import theme
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.busy_causes import NoReading
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Snapshot
from tests.benchmarks.rows import spread

DEVICES, SECONDS, HZ, RECORDED_HZ = 8, 600, 10.0, 2.0


def measure(
    repaints: int = 480,
    size: tuple[int, int] = (1280, 800),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the milliseconds from a new snapshot to the painted window.

    Each repaint receives the next snapshot, lays out, and paints what has changed: tiles, charts,
    status line.

        Args:
            clock: Returns seconds; time.thread_time on a machine that others use.
    """
    app = theme.application()
    theme.apply(app, "light")
    window = MainWindow(Link())
    window.resize(*size)
    window.show_link(True, "connected")
    snapshots = _snapshots(int(SECONDS * HZ) + repaints + 10)
    for snapshot in snapshots[: int(SECONDS * HZ)]:
        window.state.update(snapshot)
    window.show()
    window.dashboard.show_last(SECONDS)
    app.processEvents()
    spent = []
    for snapshot in snapshots[int(SECONDS * HZ) :]:
        begin = clock()
        window.state.update(snapshot)
        window.refresh()
        app.processEvents()
        spent.append((clock() - begin) * 1e3)
    window.close()
    return spread(spent[10:])  # the first repaints fill caches


def _snapshots(count: int) -> list[Snapshot]:
    """Yield snapshots of eight GPUs that replay the shipped trace five times as fast, so that all
    values change.
    """
    start = time.time()
    source = ReplaySource(paths.assets() / "h100.trace.gz", DEVICES, start)
    devices = source.devices()
    made = []
    for i in range(count):
        now = start + i / HZ
        readings = (
            msgspec.structs.replace(reading, time=now)
            for reading in source.read(start + i / RECORDED_HZ)
        )
        states = tuple(
            DeviceState(d, r, Busy(NoReading())) for d, r in zip(devices, readings, strict=True)
        )
        made.append(
            Snapshot(i, now, states, (), Settings(telemetry_hz=HZ), "replay of h100.trace.gz")
        )
    return made


if __name__ == "__main__":
    print("elapsed", measure())
    print("CPU", measure(clock=time.thread_time))
