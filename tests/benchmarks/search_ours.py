"""Searches of our own kernels' tiles beside the tile that each kernel chooses itself.

    python -m tests.benchmarks.search_ours --minutes 1 > ours.csv

Each shape is searched for some seconds in bfloat16 (RWKV-7's recurrence in float32), and the winner
is judged beside plain torch and torch's own operator, if there is one. A row tells the microseconds
of the usual tile and of the best one, as the search timed them in one process, and the judge's.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import time

import torch

from gpudeck.accel.search.api import optimize_kernel
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.engine import Budget
from gpudeck.accel.search.journal import Entry

SHAPES = (
    ("attention_gradients", {"heads": 32, "tokens": 2048, "width": 128}),
    ("matmul", {"rows": 4096, "inner": 4096, "columns": 4096}),
    ("retention", {"tokens": 4096, "heads": 32, "width": 128}),
    ("rwkv7", {"tokens": 256, "heads": 32}),
    ("attention_gradients", {"heads": 64, "tokens": 1024, "width": 64}),
    ("matmul", {"rows": 16, "inner": 8192, "columns": 8192}),
    ("matmul", {"rows": 2048, "inner": 8192, "columns": 2048}),
    ("retention", {"tokens": 16384, "heads": 16, "width": 64}),
    ("attention", {"heads": 32, "tokens": 2048, "width": 128}),
    ("decoding", {"sequences": 64, "keys": 4096, "width": 128}),
)
BUDGET_S = 8.0
HEAD = (
    "task", "sizes", "tried", "seconds", "usual us", "usual", "best us", "best", "proposed by",
    "verdict", "baseline", "speedup", "us", "roofline share",
)  # fmt: skip


def row_of(task: str, sizes: dict[str, int]) -> tuple[object, ...]:
    """Search one shape; return its row."""
    entries: list[Entry] = []
    begun = time.monotonic()
    found = optimize_kernel(
        task, sizes=sizes, dtype=torch.float32 if task == "rwkv7" else torch.bfloat16,
        budget=Budget(BUDGET_S / 60), effort=Effort(1.0, 40, 3), compiled=(),
        report=entries.append,
    )  # fmt: skip
    timed = [e for e in entries if e.state == "timed"]
    best = min(timed, key=lambda e: e.microseconds)
    usual = next((e for e in entries if e.by == "usual"), None)
    verdict = found.verdict
    race, roof = (verdict.race, verdict.roofline) if verdict else (None, None)
    return (
        task, " ".join(f"{k}={v}" for k, v in sizes.items()), len(entries),
        f"{time.monotonic() - begun:.1f}",
        f"{usual.microseconds:.2f}" if usual else "", json.dumps(usual.config) if usual else "",
        f"{best.microseconds:.2f}", json.dumps(best.config), best.by,
        str(verdict.text) if verdict else "", race.baseline if race else "",
        f"{race.net:.3f}" if race else "", f"{race.microseconds:.2f}" if race else "",
        f"{roof.share(race.microseconds):.3f}" if roof and race else "",
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_ours")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first shape")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    write = csv.writer(sys.stdout)
    write.writerow(HEAD)
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        for task, sizes in SHAPES[args.first :]:
            if time.monotonic() > end:
                break
            try:
                row = row_of(task, sizes)
            except Exception as e:  # noqa: BLE001 - one shape that fails must not end the others
                row = (task, sizes, f"failed: {type(e).__name__}: {e}"[:300])
            write.writerow(row)
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
