"""Run thousands of jobs through one daemon for twenty minutes, and report what grows.

    make soak [MINUTES=20]

A subscriber (`gpudeck watch --json`) gets every change meanwhile. The first quarter of the time is
compared with the last one, for the daemon and its probe (memory, open files, threads) and for the
files of the state folder. What a job costs for ever is the growth divided by the jobs between.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.rows import context, write
from tests.integration.deck import daemon_pid, probe_pid
from tests.support import eventually, state_folder

SAMPLE_S, SHOWN = 5.0, 12
"""Seconds between two samples, and how many of them pass between two lines of progress."""
ACTIVE = 8
"""Jobs that wait or run at once."""
PAUSE_S = 0.1
"""Seconds between two submissions: the daemon is to be watched for long, not to be saturated."""
JOBS = (
    *(["true"],) * 6,
    ["false"],
    ["sh", "-c", "seq 2000"],
    ["sleep", "0.2"],
)
UNITS = {"memory": "KiB", "open files": "count", "threads": "count"}
Sample = dict[str, float]


def main() -> int:
    """Run the soak, print a table, and write its rows."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as base, state_folder(Path(base) / "home"):
        settings.save(Settings(source="cpu"))
        samples = soak(args.minutes * 60)
    rows = compare(samples, args.minutes)
    for row in rows:
        print(
            f"{row['figure']:28} {row['first quarter']:12} {row['last quarter']:12} {row['unit']:6}"
            f" {row['growth per 1000 jobs']:10} per 1,000 jobs"
        )
    print(write("soak", rows))
    return 0


def soak(seconds: float) -> list[Sample]:
    """Submit jobs for so long, and return samples of what they cost."""
    samples: list[Sample] = []
    counts = {"jobs": 0, "pushes": 0}
    with Client() as deck:
        eventually(lambda: deck.snapshot().devices)
        watch = [sys.executable, "-m", "gpudeck", "watch", "--json"]
        with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as subscriber:
            reader = threading.Thread(target=_count_lines, args=(subscriber, counts), daemon=True)
            reader.start()
            end, next_sample = time.monotonic() + seconds, 0.0
            for command in itertools.cycle(JOBS):
                while len(deck.jobs(ACTIVE, active=True)) == ACTIVE:
                    time.sleep(PAUSE_S)
                deck.submit(command, env={})
                counts["jobs"] += 1
                if time.monotonic() >= next_sample:
                    next_sample = time.monotonic() + SAMPLE_S
                    samples.append({**counts, **sample()})
                    if len(samples) % SHOWN == 0:
                        print(f"{end - time.monotonic():6.0f} s left: {samples[-1]}", flush=True)
                if time.monotonic() > end:
                    break
                time.sleep(PAUSE_S)
            subscriber.terminate()
            reader.join()
    return samples


def sample() -> Sample:
    """Return what the daemon, its probe and the files of the state folder take now."""
    home, found = paths.home(), {}
    for name, pid in (("daemon", daemon_pid()), ("probe", eventually(lambda: probe_pid(home)))):
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        found[f"{name}, memory"] = float(fields["VmRSS"].split()[0])
        found[f"{name}, threads"] = float(fields["Threads"])
        found[f"{name}, open files"] = float(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))
    for file in ("gpudeck.sqlite", "history.sqlite"):
        for name in (file, f"{file}-wal"):
            found[name] = (home / name).stat().st_size / 1024 if (home / name).exists() else 0.0
    return found


def compare(samples: list[Sample], minutes: float) -> list[dict[str, object]]:
    """Return a row for each figure: its means in the first and last quarter, and its growth."""
    quarter = len(samples) // 4
    first, last = samples[:quarter], samples[-quarter:]
    jobs = statistics.mean(s["jobs"] for s in last) - statistics.mean(s["jobs"] for s in first)
    where = context(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        ["msgspec"],
    )
    rows: list[dict[str, object]] = []
    for figure in samples[0].keys() - {"jobs", "pushes"}:
        before, after = (statistics.mean(s[figure] for s in part) for part in (first, last))
        rows.append(
            {
                "figure": figure,
                "unit": UNITS.get(figure.rpartition(", ")[2], "KiB"),
                "first quarter": round(before, 1),
                "last quarter": round(after, 1),
                "growth per 1000 jobs": round((after - before) / jobs * 1000, 2),
                "jobs": int(samples[-1]["jobs"]),
                "pushes": int(samples[-1]["pushes"]),
                "minutes": minutes,
                **where,
            }
        )
    return sorted(rows, key=lambda row: str(row["figure"]))


def _count_lines(subscriber: subprocess.Popen[str], counts: dict[str, int]) -> None:
    assert subscriber.stdout is not None
    for _ in subscriber.stdout:
        counts["pushes"] += 1


if __name__ == "__main__":
    sys.exit(main())
