"""The history of 8 GPUs after thirty days: its size on disk, and how long zooming in it takes, through the real daemon.

    python -m tests.benchmarks.history

The readings are those of the shipped trace over and over, every figure that moves with 1 % of noise, so that they do not compress better
than real ones; every 10 s for thirty days, twice a second for the last two hours.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from scheduler import paths
from scheduler.client import Client
from scheduler.devices.fields import HEADLINE
from scheduler.devices.model import Reading
from scheduler.devices.replay import ReplaySource
from scheduler.store.archive import Archive
from scheduler.store.keeper import Keeper
from scheduler.telemetry.table import Table
from scheduler.telemetry.tiers import DAY, HOUR, TIERS
from tests.benchmarks.rows import context, spread, write

DEVICES, FIELDS, POINTS, ROWS = 8, 40, 600, 600
SPANS = {"10 min": 600.0, "1 h": HOUR, "6 h": 6 * HOUR, "1 d": DAY, "7 d": 7 * DAY, "30 d": 30 * DAY}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GPUDECK_HOME"] = folder
        now = time.time()
        spent = fill(paths.history_file(), now)
        size = sum(f.stat().st_size for f in Path(folder).glob("history.sqlite*")) / 1e6
        figures = [
            {"figure": f"size after 30 days, {DEVICES} GPUs, {FIELDS} fields", "unit": "MB", **spread([size])},
            {"figure": f"five minutes of a GPU into its tiers, {FIELDS} fields", "unit": "ms", **spread(spent)},
        ]
        with Client() as deck:
            for name, seconds in SPANS.items():
                for what, fields in (("headline fields", HEADLINE), ("one field", HEADLINE[:1])):
                    taken = spread([zoom(deck, now, seconds, fields) for _ in range(20)])
                    figures.append({"figure": f"zoom to {name}, {DEVICES} GPUs, {what}, {POINTS} points", "unit": "ms", **taken})
            deck.stop_daemon()
    figures += memory()
    where = context(f"{os.cpu_count()} cores", ["numpy", "msgspec"])
    for figure in figures:
        print(f"{figure['figure']:60} {figure['median']:8.4g} {figure['unit']} (p95 {figure['p95']:.4g})")
    print(write("history", [{**figure, **where} for figure in figures]))
    return 0


def fill(file: Path, now: float) -> list[float]:
    """Thirty days up to `now`, as the daemon would have written them. Gives the milliseconds that each append took."""
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
            table = Table(times, np.ones(ROWS), {name: row[None] for name, row in zip(names, rows, strict=True)})
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


def memory(hours: float = 24.0) -> list[dict[str, object]]:
    """Resident memory of a process that keeps the history of 8 GPUs at two readings a second, early and after `hours`, at speed."""
    names, values = _trace()
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(Path(folder) / "home" / "history.sqlite", print)
        start, moments = time.time() - hours * HOUR, int(hours * HOUR * 2)
        for i in range(moments):
            row = dict(zip(names, values[:, i % values.shape[1]].tolist(), strict=True))
            keeper.take((Reading(f"GPU-{device}", start + i / 2, row), 0.5) for device in range(DEVICES))
            if i % 10 == 0:
                keeper.journal()
                for device in keeper.due():
                    keeper.merge(device)
                    keeper.prune(start + i / 2)
            if i in (moments // 10, moments - 1):
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                size = spread([pages * os.sysconf("SC_PAGESIZE") / 1e6])
                found.append({"figure": f"memory after {DEVICES * (i + 1)} readings, benchmark included", "unit": "MB", **size})
        keeper.close()
    return found


def zoom(deck: Client, now: float, seconds: float, fields: tuple[str, ...]) -> float:
    """Milliseconds for one page: all GPUs, one after the other over one connection."""
    begin = time.perf_counter()
    for device in range(DEVICES):
        found = deck.history(f"GPU-{device}", fields, now - seconds, now, POINTS)
        assert POINTS / 2 < len(found.times) <= POINTS, len(found.times)
    return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    sys.exit(main())
