"""Measure the history of 8 GPUs after thirty days: its size, the time to zoom in, and memory.

    python -m tests.benchmarks.history [--hours 24]

The size on disk and the time to zoom in are measured with the real daemon, and the memory of daemon
and window after a day by tests/benchmarks/memory.py. The readings repeat those of the shipped
trace, and every varying value has 1 % of noise, so that they do not compress better than real ones:
one every 10 s for thirty days, and two a second for the last two hours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.store.archive import Archive
from gpudeck.scheduler.telemetry.history_table import DAY, HOUR, TIERS, HistoryTable
from tests.benchmarks.rows import context, spread, write

DEVICES, FIELDS, POINTS, ROWS = 8, 40, 600, 600
GROWTH, NOISE = 100_000, 2.0
"""The number of readings over which memory must not grow, and the tolerance in megabytes."""
ZOOM_MS = 100.0
SPANS = {
    "10 min": 600.0,
    "1 h": HOUR,
    "6 h": 6 * HOUR,
    "1 d": DAY,
    "7 d": 7 * DAY,
    "30 d": 30 * DAY,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.history")
    parser.add_argument("--hours", type=float, default=24.0, help="of memory")
    hours = parser.parse_args().hours
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GPUDECK_HOME"] = folder
        now = time.time()
        spent = fill(paths.history_file(), now)
        size = sum(f.stat().st_size for f in Path(folder).glob("history.sqlite*")) / 1e6
        figures = [
            {
                "figure": f"size after 30 days, {DEVICES} GPUs, {FIELDS} fields",
                "unit": "MB",
                **spread([size]),
            },
            {
                "figure": f"five minutes of a GPU into its tiers, {FIELDS} fields",
                "unit": "ms",
                **spread(spent),
            },
        ]
        with Client() as deck:
            for name, seconds in SPANS.items():
                for what, fields in (("headline fields", HEADLINE), ("one field", HEADLINE[:1])):
                    taken = spread([zoom(deck, now, seconds, fields) for _ in range(20)])
                    figures.append(
                        {
                            "figure": f"zoom to {name}, {DEVICES} GPUs, {what}, {POINTS} points",
                            "unit": "ms",
                            "target": ZOOM_MS,
                            **taken,
                        }
                    )
            deck.stop_daemon()
    figures += memory(hours)
    where = context(f"{os.cpu_count()} cores", ["numpy", "msgspec"])
    for figure in figures:
        target = figure.setdefault("target", "")
        figure["met"] = "" if target == "" else figure["p95"] <= target
        verdict = (
            "" if target == "" else f"; target {target:g}: {'met' if figure['met'] else 'MISSED'}"
        )
        print(
            f"{figure['figure']:60} {figure['median']:8.4g} {figure['unit']} "
            f"(p95 {figure['p95']:.4g}{verdict})"
        )
    print(write("history", [{**figure, **where} for figure in figures]))
    return 0


def fill(file: Path, now: float) -> list[float]:
    """Write thirty days of history up to `now` as the daemon would, and return the milliseconds of
    each append.
    """
    names, values = _trace()
    draw = np.random.default_rng(1)
    moves = values.std(axis=1, keepdims=True) > 0
    archive, spent = Archive(file), []
    at = now - 30 * DAY
    while at < now:
        step = 10.0 if at < now - 2 * HOUR else 0.5
        times = at + step * np.arange(ROWS)
        for device in range(DEVICES):
            rows = values[:, draw.integers(values.shape[1] - ROWS) :][:, :ROWS]
            rows = rows * np.where(moves, draw.normal(1, 0.01, rows.shape), 1.0)
            table = HistoryTable(
                times,
                np.ones(ROWS),
                {name: row[None] for name, row in zip(names, rows, strict=True)},
            )
            begin = time.perf_counter()
            archive.append(f"GPU-{device}", table)
            spent.append((time.perf_counter() - begin) * 1e3)
        at = float(times[-1]) + step
        archive.prune(at, [32 * DEVICES] * len(TIERS))
    archive.close()
    return spent


def _trace() -> tuple[list[str], np.ndarray]:
    source = ReplaySource(paths.assets() / "h100.trace.gz", 1, 0.0)
    readings = [source.read(i / 2)[0].values for i in range(4000)]
    names = sorted(set().union(*readings), key=lambda f: (f not in HEADLINE, f))[:FIELDS]
    return names, np.array([[r.get(f, np.nan) for r in readings] for f in names])


def memory(hours: float) -> list[dict[str, object]]:
    """Return the resident memory of a daemon and a window after this many hours with 8 GPUs, and
    its growth over the last 100,000 readings.
    """
    found: list[dict[str, object]] = []
    for what, target in (("daemon", 80.0), ("window", 250.0)):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.memory", what, str(hours)],
            capture_output=True,
            text=True,
            check=True,
            timeout=7200,
        )
        marks = [json.loads(line) for line in ran.stdout.splitlines()]
        last = marks[-1]
        before = min(marks, key=lambda mark: abs(last["moments"] - GROWTH - mark["moments"]))
        moments = last["moments"] - before["moments"]
        found.append(
            {
                "figure": f"memory of the {what} after {hours:g} h",
                "unit": "MB",
                "target": target,
                **spread([last["mb"]]),
            }
        )
        grown = spread([last["mb"] - before["mb"]])
        found.append(
            {
                "figure": f"growth of the {what} over the last {moments} moments",
                "unit": "MB",
                "target": NOISE,
                **grown,
            }
        )
    return found


def zoom(deck: Client, now: float, seconds: float, fields: tuple[str, ...]) -> float:
    """Return the milliseconds of one page: all GPUs, one after another over one connection."""
    begin = time.perf_counter()
    for device in range(DEVICES):
        found = deck.history(f"GPU-{device}", fields, now - seconds, now, POINTS)
        assert POINTS / 2 < len(found.times) <= POINTS, len(found.times)
    return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    sys.exit(main())
