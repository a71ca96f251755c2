"""Measure how long one client keeps another one waiting.

    python -m tests.benchmarks.daemon_answers

The daemon is real. A process asks for one small reply after another, and each row holds the longest
time that it waited for one while another client did what the row says.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.job_options import MAX_BATCH
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.rows import context, write

ENV = {"PATH": os.environ["PATH"], **{f"VARIABLE_{number}": "x" * 50 for number in range(64)}}
REPEATS = 5
ASKS = """
import select, sys, time
from gpudeck.scheduler.client import Client
with Client(timeout=600) as deck:
    number, longest = int(sys.argv[1]), 0.0
    print("asks", flush=True)
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        start = time.monotonic()
        deck.job(number)
        longest = max(longest, time.monotonic() - start)
    print(longest)
"""


class Row(NamedTuple):
    """What one client did, and how long it and the other one waited."""

    figure: str
    longest: float
    took: float


def main(arguments: Sequence[str] | None = None) -> int:
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        settings.save(Settings(source="cpu"))
        with Client(timeout=600.0) as deck:
            rounds = [_measure(deck) for _ in range(REPEATS)]
            deck.stop_daemon()
    where = context(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        ["msgspec"],
    )
    rows = []
    for same in zip(*rounds, strict=True):
        for what, values in (
            ("others", [r.longest for r in same]),
            ("itself", [r.took for r in same]),
        ):
            name = f"{same[0].figure}: " + (
                "longest answer to others" if what == "others" else "order to answer"
            )
            spread = {"value": statistics.median(values), "least": min(values), "most": max(values)}
            rows.append(
                {
                    "figure": name,
                    **{k: float(f"{v:.4g}") for k, v in spread.items()},
                    "unit": "s",
                    **where,
                }
            )
    for row in rows:
        print(f"{row['figure']:64} {row['value']:9.4g} s ({row['least']:.4g} to {row['most']:.4g})")
    print(write("daemon_answers", rows))
    return 0


def _measure(deck: Client) -> list[Row]:
    known = deck.submit(["true"], hold=True, env=ENV).id
    spec = Spec(("python", "train.py"), "waits", "/", ENV, hold=True)
    long = Spec(("true",), "noted", "/", ENV, hold=True, notes="x" * 9000)
    found = [
        _row("nothing", known, lambda: time.sleep(1.0)),
        _row("1,000 submitted", known, lambda: deck.submit_many([spec] * 1000)),
    ]
    first = deck.submit(["true"], hold=True, env=ENV).id + 1
    found += [
        _row(f"{MAX_BATCH:,} submitted", known, lambda: deck.submit_many([spec] * MAX_BATCH)),
        _row(
            f"{MAX_BATCH:,} cancelled", known,
            lambda: deck.cancel_many([range(first, first + MAX_BATCH)]),
        ),
    ]  # fmt: skip
    noted = deck.submit_many([long] * 1000)
    found.append(_row("1,000 with long notes listed", known, lambda: deck.jobs(1000)))
    found.append(
        _row(
            "1,000 with long notes cancelled",
            known,
            lambda: deck.cancel_many([j.id for j in noted]),
        )
    )
    deck.cancel(known)
    return found


def _row(figure: str, job: int, act: Callable[[], object]) -> Row:
    with subprocess.Popen(
        [sys.executable, "-c", ASKS, str(job)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        start = time.monotonic()
        act()
        took = time.monotonic() - start
        other.stdin.close()
        longest = float(other.stdout.read())
    return Row(figure, longest, took)


if __name__ == "__main__":
    sys.exit(main())
