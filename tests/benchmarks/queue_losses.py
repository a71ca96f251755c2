"""Count the acknowledged jobs that queues lose or run twice when their daemon is killed.

    PATH=/folder/with/gbatch:$PATH make peers

Each tool gets the same jobs by its command line. Its daemon is killed with SIGKILL as soon as the
last one is acknowledged, and started again. A job appends a synced line to a ledger at its first
instruction, so that its runs are counted without the tool. A job that has not begun when no job has
begun for a long time is lost.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.benchmarks.queue_tools import TOOLS, QueueTool, why_missing
from tests.benchmarks.rows import RESULTS, context, merge
from tests.integration.torture.outside.campaign import VICTIM, read_ledger

QUIET_S = 25.0
"""Seconds without a new line in the ledger after which no job begins any more."""


def main() -> int:
    """Measure all tools that are installed, and print one row each."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.queue_losses")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20, help="in each round")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    where = context(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        ["msgspec"],
    )
    rows = []
    with tempfile.TemporaryDirectory() as base:
        for kind in TOOLS:
            if why := why_missing(kind):
                print(f"LEFT OUT: {kind.name}: {why}", flush=True)
                continue
            tool = kind(Path(base) / kind.name.replace(" ", "-"))
            counts = sum(
                (measure(tool, number, args.jobs) for number in range(args.rounds)), Counter[str]()
            )
            row = {
                "tool": tool.name,
                "version": tool.version,
                "kills": args.rounds,
                **{name: counts[name] for name in ("acknowledged", "lost", "doubled", "refused")},
                **where,
            }
            print(", ".join(f"{key} {value}" for key, value in list(row.items())[:7]), flush=True)
            rows.append(row)
    print(merge("queue_losses", rows, ("tool",), args.out))
    return 0


def measure(tool: QueueTool, number: int, jobs: int) -> Counter[str]:
    """Submit jobs, kill the daemon, start it again, and return what became of the jobs."""
    ledger = tool.folder / f"ledger{number}"
    tool.start()
    acknowledged = set()
    for job in range(jobs):
        token = f"{number}-{job}"
        script = tool.folder / f"{token}.sh"
        script.write_text(
            f"#!/bin/sh\nexec {sys.executable} -S -E {VICTIM} slow {ledger} {token}\n"
        )
        script.chmod(0o700)
        if tool.submit(script):
            acknowledged.add(f"{token}.")
    tool.kill()
    time.sleep(1.0)
    tool.start()
    ran, end = Counter[str](), time.monotonic() + QUIET_S
    while time.monotonic() < end and not acknowledged <= ran.keys():
        found = Counter(line.token for line in read_ledger(ledger) if line.code is None)
        if found != ran:
            ran, end = found, time.monotonic() + QUIET_S
        time.sleep(0.2)
    time.sleep(2.0)  # one that runs again does so now
    ran = Counter(line.token for line in read_ledger(ledger) if line.code is None)
    tool.stop()
    return Counter(
        acknowledged=len(acknowledged),
        refused=jobs - len(acknowledged),
        lost=len(acknowledged - ran.keys()),
        doubled=sum(times > 1 for times in ran.values()),
    )


if __name__ == "__main__":
    sys.exit(main())
