"""Measure how much disk space the environments of many jobs take in the store.

    python -m tests.benchmarks.environments

It measures a batch with one environment of 4 KiB, the end of all its jobs, and the migration of a
store of schema 5, in which each job has its own copy.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from gpudeck.scheduler.protocol.jobs import Cancelled, Event, Job, Queued, Spec
from gpudeck.scheduler.store import Store
from tests.benchmarks.rows import context, write

BATCH, ENDED, WAITING = 2000, 90_000, 10_000
_ENV = {f"VARIABLE_{number}": "x" * 50 for number in range(64)}
_SPEC = Spec(("python", "train.py", "--seed", "1"), "train", "/data/project", _ENV, gpus=1)


def main() -> int:
    found: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (BATCH, WAITING):
            file = Path(folder) / f"{count}" / "gpudeck.sqlite"
            with closing(Store(file)) as store:
                began = time.process_time()
                jobs = store.insert_all([_SPEC] * count, 1.0, Queued())
                inserted = time.process_time()
                _cancel(store, jobs)
                found[f"insertion of {count} jobs, CPU"] = inserted - began, "s"
                found[f"cancellation of {count} jobs, CPU"] = time.process_time() - inserted, "s"
            with closing(Store(file.with_name("full.sqlite"))) as store:
                store.insert_all([_SPEC] * count, 1.0, Queued())
            found[f"store with {count} jobs that wait"] = (
                file.with_name("full.sqlite").stat().st_size / 1e6,
                "MB",
            )
        old = Path(folder) / "old" / "gpudeck.sqlite"
        _make_old(old)
        found["store of schema 5"] = old.stat().st_size / 1e6, "MB"
        began = time.monotonic()
        Store(old).close()
        found["taking it over, its copy included"] = time.monotonic() - began, "s"
        again = time.monotonic()
        Store(old).close()
        found["opening it then"] = time.monotonic() - again, "s"
    jobs_there = f"{ENDED} ended, {WAITING} waiting"
    where = context(f"{os.cpu_count()} cores, {platform.machine()}", ["msgspec"])
    rows = [
        {"figure": name, "value": value, "unit": unit, "old store": jobs_there, **where}
        for name, (value, unit) in found.items()
    ]
    for row in rows:
        print(f"{row['figure']:44} {row['value']:9.4g} {row['unit']}")
    print(write("environments", rows))
    return 0


def _make_old(file: Path) -> None:
    with closing(Store(file)) as store:
        jobs = store.insert_all([_SPEC] * (ENDED + WAITING), 1.0, Queued())
        _cancel(store, jobs[:ENDED])
        store.connection.executescript(
            """BEGIN;
            UPDATE jobs SET env = coalesce(
                (SELECT environments.env FROM environments WHERE digest = jobs.env), '{}');
            DROP INDEX jobs_by_env; DROP TABLE environments; PRAGMA user_version = 5; COMMIT;"""
        )


def _cancel(store: Store, jobs: Sequence[Job]) -> None:
    store.update_all(
        [
            (msgspec.structs.replace(job, state=Cancelled(2.0)), (Event(2.0, "cancelled"),))
            for job in jobs
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
