"""How long a repaint of the dashboard takes: 8 devices, ten minutes of history at 2 Hz, the real window, offscreen."""

from __future__ import annotations

import os
import statistics
import time

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app import theme
from app.models.requests import Link
from app.views.window import MainWindow
from tests.gui import snapshots

DEVICES, SECONDS, HZ = 8, 600, 2.0


def measure(repaints: int = 120, size: tuple[int, int] = (1280, 800)) -> dict[str, float]:
    """Milliseconds from a new snapshot to the painted window: `median`, `p95`, `repaints`.

    Each repaint takes in the snapshot of the next half second, lays out, and paints what it changed: tiles, charts, status line.
    """
    app = QApplication.instance() or QApplication([])
    assert isinstance(app, QApplication)
    theme.apply(app, "light")
    window = MainWindow()
    window.resize(*size)
    start = snapshots.gpu_snapshot(DEVICES, replay=True)
    for device, columns in snapshots.history(start, SECONDS, HZ).items():
        window.load_history(device, columns)
    window.show_link(Link(connected=True, text="connected"))
    window.show()
    app.processEvents()
    spent = []
    for i in range(1, repaints + 11):
        snapshot = snapshots.gpu_snapshot(DEVICES, snapshots.NOW + i / HZ, replay=True)
        begin = time.perf_counter()
        window.state.update(snapshot)
        window.refresh()
        app.processEvents()
        spent.append((time.perf_counter() - begin) * 1e3)
    window.close()
    spent = spent[10:]  # the first ones fill caches
    return {"median": statistics.median(spent), "p95": statistics.quantiles(spent, n=20)[18], "repaints": float(len(spent))}


if __name__ == "__main__":
    print({name: round(value, 2) for name, value in measure().items()})
