"""Have two jobs exchange the GPU by orders, and three take turns by the setting.

    python -m tests.benchmarks.suspension.exchanges FOLDER exchanges [--most 20] [--leave 79]
    python -m tests.benchmarks.suspension.exchanges FOLDER turns [--seconds 40]

The two jobs hold 60 % of the GPU's memory each, or of what a third job leaves. Every
exchange gets a row of its own, with how long the one was on its way out and the other on its way
back, by the timelines of the jobs. The daemon of the turns is told that a turn may be shorter than
ten minutes (see `hasty_daemon`). As root, all programs get pages of 2 MiB.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

from gpudeck.scheduler.protocol.jobs import Job
from tests.benchmarks import rows
from tests.benchmarks.suspension import hasty_daemon
from tests.benchmarks.suspension.bench import Bench, open_bench
from tests.benchmarks.suspension.card import huge_pages_always
from tests.benchmarks.suspension.programs import is_exact

SHARE = 0.6
TURN_S, TURN_GIB = 6.0, 4.0
"""How long a turn lasts, and what each of the jobs holds that take turns."""
PAIR, THIRD = (1, 2), 3
"""The seeds of the two jobs, and of the one that stays."""
CONTEXT_GIB = 0.6
"""What a program takes beside its memory."""


def measure_exchanges(bench: Bench, most: int, until: float, leave: float) -> None:
    """Exchange two jobs on the GPU so often, or until a time (monotonic).

    Args:
        leave: GiB that a third job leaves to them; 0 without such a job.
    """
    share = SHARE * (leave or bench.card.total / 2**30)
    gib = share - CONTEXT_GIB
    options = {"memory": f"{share:.2f}GiB"} if leave else {}
    rest = bench.card.free / 2**30 - leave
    if leave:
        third = bench.submit("CUDA C++", rest - CONTEXT_GIB, THIRD, memory=f"{rest:.2f}GiB")
        bench.wait_ready(third)
    off, on = (bench.submit("CUDA C++", gib, seed, **options) for seed in PAIR)
    seeds, took = {off.id: 1, on.id: 2}, list[float]()
    bench.wait_ready(off)
    bench.deck.suspend_job(off.id)
    bench.wait_ready(on)
    while len(took) < most and time.monotonic() + max(took, default=0.0) < until:
        took.append(_exchange(bench, on, off, gib, len(took) + 1))
        on, off = off, on
    exact = True
    for job in (on, off):
        ended = bench.end(job, gib, seeds[job.id])
        exact = exact and is_exact("CUDA C++", gib, seeds[job.id], ended, bench.scratch)
    if leave:
        ended = bench.end(third, rest - CONTEXT_GIB, THIRD)
        exact = exact and is_exact("CUDA C++", rest - CONTEXT_GIB, THIRD, ended, bench.scratch)
    left = f"a third job left them {leave:g} GiB; " if leave else ""
    note = f"{left}one out and the other back, each time"
    bench.keep("two jobs exchanged", gib, took, exact, note)


def _exchange(bench: Bench, on: Job, off: Job, gib: float, number: int) -> float:
    """Suspend a job and bring another one back; write how long that took."""
    began = time.monotonic()
    bench.deck.suspend_job(on.id)
    bench.deck.resume_job(off.id)
    bench.wait_on(off)
    seconds = time.monotonic() - began
    out = _span(bench, on, "suspending", "suspended")
    back = _span(bench, off, "resuming", "resumed")
    row = bench.card.context | {
        "pid": os.getpid(),
        "held_gib": f"{gib:.1f}",
        "exchange": number,
        "seconds": f"{seconds:.4g}",
        "out_s": f"{out:.4g}",
        "back_s": f"{back:.4g}",
        "tries": len(bench.times(off, "resuming")) - len(bench.times(off, "resumed")) + 1,
    }
    print(time.strftime("%H:%M:%S"), row, flush=True)
    rows.merge("suspension_exchanges", [row], ("pid", "exchange"), bench.folder)
    return seconds


def _span(bench: Bench, job: Job, first: str, last: str) -> float:
    """Return the seconds between the latest two events of these kinds."""
    return bench.times(job, last)[-1] - bench.times(job, first)[-1]


def measure_turns(bench: Bench, until: float) -> None:
    """Have three jobs take turns until a time (monotonic), and see that all end right."""
    bench.deck.configure(turns=TURN_S / 60)
    seeds = (1, 2, 3)
    jobs = [bench.submit("CUDA C++", TURN_GIB, seed, preemptible=True) for seed in seeds]
    while time.monotonic() < until:
        time.sleep(1.0)
    changes = sorted(_turns(bench, jobs))
    order = " ".join(str(number) for _, number in changes)
    gaps = [later - sooner for (sooner, _), (later, _) in pairwise(changes)]
    for seed in seeds:
        bench.ask_to_end(TURN_GIB, seed)
    ends = [bench.end(job, TURN_GIB, seed) for job, seed in zip(jobs, seeds, strict=True)]
    exact = all(
        is_exact("CUDA C++", TURN_GIB, seed, end, bench.scratch)
        for end, seed in zip(ends, seeds, strict=True)
    )
    note = f"turns of {TURN_S:g} s; on the GPU, one after the other: {order}"
    bench.keep("three jobs take turns", TURN_GIB, gaps, exact, note)


def _turns(bench: Bench, jobs: list[Job]) -> list[tuple[float, int]]:
    """Return when each job began a turn, and its number among the jobs."""
    return [
        (at, number)
        for number, job in enumerate(jobs, 1)
        for what in ("started", "resumed")
        for at in bench.times(job, what)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("exchanges", "turns"))
    parser.add_argument("--most", type=int, default=20)
    parser.add_argument("--leave", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=900.0)
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    with huge_pages_always() if os.getuid() == 0 else nullcontext():
        if arguments.what == "exchanges":
            with open_bench(arguments.folder) as bench:
                measure_exchanges(bench, arguments.most, until, arguments.leave)
        else:
            with open_bench(arguments.folder, hasty_daemon.__name__) as bench:
                measure_turns(bench, until)


if __name__ == "__main__":
    main()
