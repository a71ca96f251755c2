"""The kernel search measured: false wins of the judge, and templates beside the exhaustive best.

    python -m tests.benchmarks.search same [--times 1000] [--minutes 8]
    python -m tests.benchmarks.search templates [--minutes 8]
    python -m tests.benchmarks.search cheats

`same` judges a function beside itself. `templates` searches with 60 s, then measures every
configuration that is left, and compares. `cheats` judges all planted cheats and twins on this
device. Results are printed as CSV.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

import torch

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.api import optimize_kernel
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.engine import Budget
from gpudeck.accel.search.judge import judge
from gpudeck.accel.search.tasks import task_of
from gpudeck.accel.search.templates import REDUCING, ROWWISE
from gpudeck.accel.search.verdict import Source

SHAPES = ((16384, 1024), (4096, 4096), (1024, 16384))


def write(*row: object) -> None:
    csv.writer(sys.stdout).writerow(row)
    sys.stdout.flush()


def same(times: int, minutes: float) -> None:
    """Count the wins of a function over itself."""
    task = task_of("softmax", torch.float32, {"rows": 1024, "columns": 2048})
    task = dataclasses.replace(task, own=False, alternatives={})
    candidate = Source("gpudeck.accel.search.tasks", "softmax")
    wins = refused = done = 0
    end = time.monotonic() + 60 * minutes
    while done < times and time.monotonic() < end:
        found = judge(candidate, task, compiled=(), effort=Effort(4.0, 80, 2))
        done += 1
        wins += found.is_faster
        refused += not found.accepted
    write("same", str(find_device()), "judgements", done, "wins", wins, "refused", refused)


def templates(minutes: float) -> None:
    """Compare what 60 s of search find with the best of all configurations."""
    end = time.monotonic() + 60 * minutes
    for task in (*ROWWISE, *REDUCING):
        for rows, columns in SHAPES:
            if time.monotonic() > end:
                return
            sizes = {"rows": rows, "columns": columns}
            first = optimize_kernel(
                task, sizes=sizes, budget=Budget(1.0), effort=Effort(4.0), compiled=("default",)
            )
            every = optimize_kernel(task, sizes=sizes, effort=Effort(rounds=0), compiled=())
            verdict = first.verdict
            race = verdict and verdict.race
            write(
                "templates", str(find_device()), task, rows, columns, first.config,
                f"{first.microseconds:.2f}", every.config, f"{every.microseconds:.2f}",
                str(verdict.text) if verdict else "", f"{race.net:.3f}" if race else "",
                f"{verdict.roofline.share(race.microseconds):.3f}"
                if verdict and race and verdict.roofline else "",
            )  # fmt: skip


def cheats() -> None:
    """Judge the planted cheats and their twins on this device."""
    from tests.unit.accel.search.cheats import CASES
    from tests.unit.accel.search.test_judge import small

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "candidate.py"
        for case in CASES:
            for kind, text in (("cheat", case.cheat), ("twin", case.twin)):
                file.write_text(text)
                task = small(case.task, case.own)
                found = judge(Source(str(file)), task, compiled=(), effort=Effort(2.0, 60, 12))
                right = found.accepted == (kind == "twin")
                why = "; ".join(str(refusal.text) for refusal in found.refusals)
                write("cheats", kind, case.name, "right" if right else "WRONG", why)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search")
    parser.add_argument("what", choices=("same", "templates", "cheats"))
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=8.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        if args.what == "same":
            same(args.times, args.minutes)
        elif args.what == "templates":
            templates(args.minutes)
        else:
            cheats()
    return 0


if __name__ == "__main__":
    sys.exit(main())
