"""Measure the speed of an empty and a full queue, beside the targets.

    python -m tests.benchmarks.queue_speed

A full queue holds 100,000 ended jobs and 10,000 that wait for a device which a running job holds.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.search import ENDED as ENDS
from gpudeck.scheduler.protocol.search import NEWEST, Search
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.store import Store
from tests.benchmarks import latency
from tests.benchmarks.rows import context, spread, write
from tests.unit.scheduler.own_queue import make_queue

ENDED, WAITING, BATCH = 100_000, 10_000, 2000
_SPECS = [Spec(("true",), "true", "/", {"PATH": "/usr/bin"}, gpus=1)] * BATCH
_WORDS = [
    "-m",
    "project.train",
    "--config",
    "configs/attention/small.yaml",
    "--seed",
    "4711",
    "--out",
    "/data/runs/attention-small",
]
TARGETS = {
    "submit acknowledged, p50": (3.0, "ms"),
    "submit acknowledged, p99": (10.0, "ms"),
    "submissions in one call of 2000": (2000.0, "1/s"),
    "submit to first instruction of the job, p50": (30.0, "ms"),
    "the same, right after the end of another job, p50": (30.0, "ms"),
    "daemon at rest, CPU": (1.0, "% of a core"),
    "daemon at rest, memory": (80.0, "MB"),
    "full: scheduling pass": (10.0, "ms"),
    "full: a page of 100 jobs": (20.0, "ms"),
    "full: a page of 100 jobs with a common word": (20.0, "ms"),
    "full: one answer of a search that finds nothing": (20.0, "ms"),
    "full: a search through all jobs that finds nothing": (200.0, "ms"),
    "full: submit acknowledged, p50": (3.0, "ms"),
    "full: submit acknowledged, p99": (10.0, "ms"),
    "full: daemon at rest, CPU": (1.0, "% of a core"),
    "full: daemon at rest, memory": (80.0, "MB"),
}
AT_LEAST = {"1/s"}
"""Units of which a higher value is better."""


def main() -> int:
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        settings.save(Settings(source="cpu"))
        with Client() as deck:
            _until(lambda: bool(deck.snapshot().devices))
            measured["daemon at rest, CPU"], measured["daemon at rest, memory"] = _at_rest()
            measured["submit to first instruction of the job, p50"] = latency.samples(60, pause=0.4)
            measured["the same, right after the end of another job, p50"] = latency.samples(60)
            deck.pause()
            measured["submit acknowledged, p50"] = measured["submit acknowledged, p99"] = (
                _submissions(deck, 300)
            )
            measured["submissions in one call of 2000"] = [
                BATCH / _ms(lambda: deck.submit_many(_SPECS)) * 1000 for _ in range(5)
            ]
            deck.stop_daemon()
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        settings.save(Settings(source="cpu"))
        fill()
        measured["full: scheduling pass"] = _passes()
        with Client() as deck:
            _until(lambda: bool(deck.snapshot().devices))
            measured["full: a page of 100 jobs"] = [_ms(lambda: deck.jobs(100)) for _ in range(200)]
            measured["full: a page of 100 jobs with a common word"] = [
                _ms(lambda: deck.find(Search("train", ENDS))) for _ in range(200)
            ]
            measured["full: one answer of a search that finds nothing"] = _answers(
                deck, Search("nowhere")
            )
            measured["full: a search through all jobs that finds nothing"] = [
                _ms(lambda: deck.find(Search("nowhere"))) for _ in range(20)
            ]
            measured["full: submit acknowledged, p50"] = measured[
                "full: submit acknowledged, p99"
            ] = _submissions(deck, 300)
            measured["full: daemon at rest, CPU"], measured["full: daemon at rest, memory"] = (
                _at_rest()
            )
            deck.cancel(holder(deck))
            deck.stop_daemon()
    rows = [_row(name, measured[name]) for name in TARGETS]
    for row in rows:
        met = "met" if row["met"] else "MISSED"
        beside = f"({row['min']:.4g} to {row['max']:.4g}; target {row['target']:g}: {met})"
        print(f"{row['figure']:52} {row['value']:9.4g} {row['unit']:12} {beside}")
    print(write("queue_speed", rows))
    return 0


def fill() -> None:
    """Fill the queue.

    The daemon makes one job that has ended, one that runs and one that waits; the first and the
    last are then copied many times.
    """
    with Client() as deck:
        _until(lambda: bool(deck.snapshot().devices))
        ended = deck.wait(deck.submit(["true", *_WORDS], name="pattern", gpus=1).id)
        runs = deck.submit(["sleep", "3600"], name="holder", gpus=1)
        _until(lambda: deck.job(runs.id).status == "running")
        waits = deck.submit(["true"], name="waits", gpus=1)
        deck.stop_daemon()
    with contextlib.closing(sqlite3.connect(paths.store_file())) as db, db:
        columns = ", ".join(
            row[1]
            for row in db.execute("PRAGMA table_xinfo(jobs)")
            if row[1] != "id" and not row[6]
        )
        many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        for job, count in ((ended.id, ENDED), (waits.id, WAITING)):
            db.execute(
                f"{many} INSERT INTO jobs ({columns}) SELECT {columns} FROM jobs, n WHERE id = ?",
                (count - 1, job),
            )
        db.execute("UPDATE jobs SET spec = json_set(spec, '$.notes', 'number-' || id)")
        words = "one.words || ' number-' || jobs.id"
        for job in (
            ended.id,
            waits.id,
        ):  # the last two rows are the patterns of the others
            db.execute(
                f"""INSERT OR REPLACE INTO search
                SELECT jobs.id, outcome, one.submitted, ended, "group", devices, {words}, user
                FROM jobs JOIN search AS one ON one.job = ? WHERE status = outcome
                ORDER BY jobs.id = ?""",
                (job, job),
            )


def _passes() -> list[float]:
    """Return the milliseconds of a pass over the full queue, in this process.

    Nothing can start, and every job gets a reason.
    """
    store = Store(paths.store_file())
    queue = make_queue(store)
    devices = [Device("cpu", 0, platform.processor() or "CPU", "cpu")]
    found = [_ms(lambda: queue.step(devices)) for _ in range(20)]
    store.close()
    return found


def _submissions(deck: Client, count: int) -> list[float]:
    return [
        _ms(lambda: deck.submit(["true"], gpus=1, env={"PATH": "/usr/bin"})) for _ in range(count)
    ]


def _at_rest(spans: int = 3, seconds: float = 4.0) -> tuple[list[float], list[float]]:
    """Return the percent of a core and the resident MB of a daemon that only reads the devices."""
    daemon = psutil.Process(int(paths.daemon_lock().read_text()))
    time.sleep(2.0)
    shares, sizes = [], []
    for _ in range(spans):
        before, start = sum(daemon.cpu_times()[:2]), time.monotonic()
        time.sleep(seconds)
        shares.append((sum(daemon.cpu_times()[:2]) - before) / (time.monotonic() - start) * 100)
        sizes.append(daemon.memory_info().rss / 1e6)
    return shares, sizes


def _answers(deck: Client, search: Search, rounds: int = 10) -> list[float]:
    """Return the milliseconds of each of the daemon's replies, newest job first."""
    found = []
    for _ in range(rounds):
        before: int | None = NEWEST
        while before is not None:
            start = time.perf_counter()
            _, before = deck.page(search, before)
            found.append((time.perf_counter() - start) * 1000)
    return found


def holder(deck: Client) -> int:
    """Return the job that runs and holds the device."""
    return next(job.id for job in deck.snapshot().jobs if job.status == "running")


def _ms(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1000


def _until(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout:.0f} s")
        time.sleep(0.05)


def _row(name: str, samples: Sequence[float]) -> dict[str, object]:
    target, unit = TARGETS[name]
    ordered = sorted(samples)
    found = spread(samples)
    value = ordered[round(0.99 * (len(ordered) - 1))] if name.endswith("p99") else found["median"]
    met = value >= target if unit in AT_LEAST else value <= target
    where = context(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        ["msgspec"],
    )
    sqlite = {"sqlite": sqlite3.sqlite_version, "disk": _disk(Path(tempfile.gettempdir()))}
    return {
        "figure": name,
        "target": target,
        "unit": unit,
        "value": float(f"{value:.4g}"),
        "met": met,
        **found,
        **where,
        **sqlite,
    }


def _disk(folder: Path) -> str:
    """Return the file system of a folder, because it determines the cost of an fsync."""
    mounts = [p for p in psutil.disk_partitions(all=True) if folder.is_relative_to(p.mountpoint)]
    return max(mounts, key=lambda p: len(p.mountpoint)).fstype if mounts else "unknown"


if __name__ == "__main__":
    sys.exit(main())
