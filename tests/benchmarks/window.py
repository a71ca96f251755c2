"""Measure the window on a quiet machine, in less than four minutes, and store one CSV.

    python -m tests.benchmarks.window

It measures the start of the window with and without a running daemon, a repaint with eight GPUs,
the CPU share of a window in which nothing happens, the Jobs page with 110,000 jobs, and the CPU
share of the daemon for ten machines over ssh. The window is real, but offscreen. Each figure is
printed beside its target and stored in results/window.csv with the machine and the date.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping

os.environ["QT_QPA_PLATFORM"] = "offscreen"

from gpudeck.scheduler.devices.cpu import cpu_name
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.benchmarks import hosts, idle_window, jobs_window, window_start
from tests.benchmarks.rows import context, write

REPAINT = "repaint of the dashboard, eight GPUs at 10 Hz"
PLACES = ("dashboard", "ten minutes", "hidden")
_HOLD_S = 2.5
"""Seconds for which a key is held down on the Jobs page: a quarter of its own benchmark."""
_SPANS, _SETTLE_S = 2, 8.0
"""Spans of eight seconds for the machines over ssh, and seconds before each of them."""


def row(
    figure: str,
    found: Mapping[str, float],
    target: float,
    unit: str,
    judged: str = "median",
    scale: float = 1.0,
) -> dict[str, object]:
    """Return the row of a figure, whose statistic `judged` is compared with the target."""
    spread = {key: value if key == "count" else value * scale for key, value in found.items()}
    value = spread[judged]
    name = figure if judged == "median" else f"{figure}, {judged}"
    return {
        "figure": name, "target": target, "unit": unit, "value": value, "met": value <= target,
        **spread,
    }  # fmt: skip


def windows() -> Iterable[dict[str, object]]:
    """Yield the rows about the start of the window and the window in which nothing happens."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        starts = window_start.measure(5)
        yield row("window start to first live chart, daemon running", starts["warm"], 1.0, "s")
        yield row("window start to first live chart, in German", starts["german"], 1.0, "s")
        yield row("window start to first live chart, no daemon", starts["cold"], 1.0, "s")
        for place in PLACES:
            found = idle_window.measure(place, 8.0)
            yield row(f"CPU of an idle window: {place}", found, 1.0, "% of a core")
        window_start.stop_daemon()


def machines() -> Iterable[dict[str, object]]:
    """Yield the row about ten machines, less what the daemon uses without them."""
    alone, with_them = hosts.ten_machines(True, _SPANS, _SETTLE_S)
    base = alone["percent_median"]
    found = {
        key.removeprefix("percent_"): value if key.endswith("count") else value - base  # type: ignore[operator]
        for key, value in with_them.items()
        if key.startswith("percent_")
    }
    yield row("CPU of ten machines over ssh", found, 3.0, "% of a core")  # type: ignore[arg-type]


def repaints() -> Iterable[dict[str, object]]:
    """Yield the rows about a repaint, in a process of its own: 100,000 jobs would slow it down."""
    code = "import json; from tests.benchmarks.repaint import measure; print(json.dumps(measure()))"
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        words = [sys.executable, "-c", code]
        run = subprocess.run(words, capture_output=True, check=True, text=True)
        window_start.stop_daemon()  # pages send requests, which start one
    found = json.loads(run.stdout)
    yield row(REPAINT, found, 5.0, "ms")
    yield row(REPAINT, found, 12.0, "ms", "p99")


def jobs() -> Iterable[dict[str, object]]:
    """Yield the rows about the Jobs page."""
    for made in jobs_window.full_queue(_HOLD_S):
        yield made | {"figure": f"Jobs page: {made['figure']}"}


def main() -> int:
    """Measure everything, print it, and write the file."""
    began, rows = time.monotonic(), []
    for part in (windows, machines, jobs, repaints):
        for made in part():
            rows.append(made)
            if part is not jobs:  # it prints its own
                verdict = "met" if made["met"] else f"MISSED ({made['target']})"
                print(
                    f"{made['figure']:60} {made['value']:9.4g} {made['unit']} {verdict}", flush=True
                )
    cores = f"{cpu_name()}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}"
    where = context(cores, ["PySide6-Essentials", "pyqtgraph", "msgspec"])
    load = f"{os.getloadavg()[2]:.2f}"
    print(write("window", [made | {"load_15_min": load} | where for made in rows]))
    print(
        f"{time.monotonic() - began:.0f} s; {sum(r['met'] is False for r in rows)} targets missed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
