"""Measure the CPU time of a window that is open while nothing runs.

    python -m tests.benchmarks.idle_window PLACE SECONDS     one window, in this process, as JSON

The window is real, but offscreen; the daemon reads this machine's CPU twice a second, as with an
open window on a desktop. The event loop is Qt's own, as in `gpudeck`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from PySide6.QtCore import QTimer

from gpudeck.app.charts.history import SECONDS
from gpudeck.app.shell.main import begin
from tests.benchmarks.rows import spread

SPANS = 5
PLACES = ("dashboard", "ten minutes", "jobs", "hidden")
"""Where the window stays: the dashboard just after the first start, when its time axis is shortest;
the dashboard with the ten minutes that it shows later; the jobs; a window that is minimised."""
_SETTLE_S = 6.0
"""Seconds after the first snapshot until the measurement: the day's figures are loaded by then."""


def measure(place: str, seconds: float = 12.0) -> dict[str, float]:
    """Return the percent of one core that the window's process uses, over several spans."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.idle_window", place, str(seconds)],
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        check=True,
        text=True,
    )
    return spread(json.loads(run.stdout))


def main() -> None:
    """Open the window in a place, and print the shares of each span."""
    place, seconds = sys.argv[1], float(sys.argv[2])
    begin()
    from gpudeck.app.tour.session import Session
    from gpudeck.app.widgets import theme

    shares: list[float] = []
    with Session() as session:
        window = session.window
        session.until(lambda: window.state.snapshot is not None, 30)
        if place == "hidden":
            window.showMinimized()
        elif place == "ten minutes":
            window.dashboard.show_last(SECONDS)
        else:
            window.show_page(place)
        session.spin(_SETTLE_S)
        app, last = theme.application(), [time.process_time(), time.monotonic()]

        def take() -> None:
            now = [time.process_time(), time.monotonic()]
            shares.append((now[0] - last[0]) / (now[1] - last[1]) * 100)
            last[:] = now
            if len(shares) == SPANS:
                app.quit()

        timer = QTimer()
        timer.timeout.connect(take)
        timer.start(round(seconds / SPANS * 1000))
        app.exec()
        timer.stop()
    print(json.dumps(shares))


if __name__ == "__main__":
    main()
