"""Free a GPU and preempt jobs, through a daemon and its command line.

    python -m tests.benchmarks.suspension.jobs FOLDER [--huge-pages]

--huge-pages gives the job whose room a foreign program takes pages of 2 MiB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from gpudeck.scheduler.client import Client
from tests.benchmarks.suspension.bench import LONG_S, Bench, open_bench
from tests.benchmarks.suspension.card import Card, huge_pages_always, survive
from tests.benchmarks.suspension.programs import Ended, Program, is_exact

MORE = 19
"""How often the training of the queue is suspended after `gpudeck free` did it."""
PREEMPTED = (0.5, 2.0, 2.0, 4.0)
"""GiB of the jobs that are suspended for another one."""
FREED, FOREIGN, TRIED_S = 16.0, 0.9, 4.0
"""GiB of a job that is suspended, the share of the GPU that a foreign program takes meanwhile, and
for how long."""
EMPTY_MIB = 4
"""What nvidia-smi shows at most while no program uses the GPU: the driver itself takes 3.25 MiB."""


def measure_freeing(bench: Bench) -> tuple[float, Ended]:
    """Free the GPU of a small compiled training by the command, and suspend it MORE times; return
    its size and what it told."""
    gib = 1.5
    os.environ["COMPILE"] = "1"
    job = bench.submit("torch", gib)
    bench.wait_ready(job)
    _keep_freeing(bench, gib)
    bench.deck.cancel_booking(_number(bench.deck))
    bench.wait_on(job)
    for _ in range(MORE):
        bench.deck.suspend_job(job.id)
        bench.deck.resume_job(job.id)
        bench.wait_on(job)
    return gib, bench.end(job, gib)


def _keep_freeing(bench: Bench, gib: float) -> None:
    """Free the GPU by the command, and write how long that took."""
    empty, returned = _press_free(bench.card)
    note = f"the command returned after {returned:.2f} s"
    bench.keep("gpudeck free until nvidia-smi shows 0 MiB", gib, [empty], "", note)


def _press_free(card: Card) -> tuple[float, float]:
    """Run the command; return when nvidia-smi shows 0 MiB, and when the command returned."""
    began = time.monotonic()
    words = (sys.executable, "-m", "gpudeck", "free", str(card.index), "--for", "1h")
    pressed = subprocess.Popen(words)
    while card.used_mib > EMPTY_MIB:
        assert time.monotonic() - began < LONG_S
    empty = time.monotonic() - began
    pressed.wait()
    return empty, time.monotonic() - began


def _number(deck: Client) -> int:
    """Return the number of the only reservation."""
    (number,) = deck.snapshot().settings.reservations
    return int(number)


def measure_preemption(bench: Bench) -> None:
    """Submit urgent jobs while a preemptible one runs; tell how much later than its suspension
    they start."""
    deck, late, costs = bench.deck, list[float](), list[float]()
    equal = True
    for seed, gib in enumerate(PREEMPTED):
        victim = bench.submit("CUDA C++", gib, seed, preemptible=True)
        bench.wait_ready(victim)
        urgent = deck.submit(["true"], gpus=1, priority=1).job
        deck.wait(urgent.id, LONG_S)
        bench.wait_on(victim)
        (out,), (off,) = bench.times(victim, "suspending"), bench.times(victim, "suspended")
        (started,) = bench.times(urgent, "started")
        costs.append(off - out)
        late.append(started - urgent.submitted - costs[-1])
        ended = bench.end(victim, gib, seed)
        equal = equal and is_exact("CUDA C++", gib, seed, ended, bench.scratch)
        bench.keep("a preempting job starts after the suspension", max(PREEMPTED), late, equal,
                   "suspensions of jobs of "
                   + ", ".join(f"{size:g}" for size in PREEMPTED[: len(late)])
                   + " GiB took "
                   + ", ".join(f"{cost:.2f}" for cost in costs) + " s")  # fmt: skip


def measure_foreign(bench: Bench, gib: float) -> None:
    """Free the GPU of a job, let a foreign program take the room, and have the job come back once
    that has ended."""
    deck = bench.deck
    job = bench.submit("CUDA C++", gib)
    bench.wait_ready(job)
    _keep_freeing(bench, gib)
    foreign = Program("CUDA C++", FOREIGN * bench.card.total / 2**30, bench.scratch / "foreign")
    foreign.wait_ready()
    deck.cancel_booking(_number(deck))
    time.sleep(TRIED_S)
    stayed = not bench.is_on(job)
    foreign_end, ended_at = foreign.end(), time.monotonic()
    bench.wait_on(job)
    back = time.monotonic() - ended_at
    whole = is_exact("CUDA C++", gib, 1, bench.end(job, gib), bench.scratch)
    whole = whole and is_exact("CUDA C++", foreign.gib, 1, foreign_end, bench.scratch)
    bench.keep("a foreign program takes the room of a suspended job", gib, [back], stayed and whole,
               f"it held {foreign.gib:.0f} GiB for {TRIED_S:.0f} s, in which the job was to come "
               "back; the seconds are from its end to the job's return")  # fmt: skip


def measure(bench: Bench, huge_pages: bool) -> None:
    """Measure one thing after the other; what fails leaves the GPU to the next."""
    told = list[tuple[float, Ended]]()
    with huge_pages_always() if huge_pages else nullcontext(), survive("a foreign program"):
        measure_foreign(bench, FREED)
    bench.clean()
    with survive("freeing"):
        told.append(measure_freeing(bench))
    for size, end in told:
        with survive("the undisturbed training"):
            exact = is_exact("torch", size, 1, end, bench.scratch)
            bench.keep(f"a training of the queue, suspended {1 + MORE} times", size, [], exact, "")
    bench.clean()
    with survive("preemption"):
        measure_preemption(bench)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--huge-pages", action="store_true")
    arguments = parser.parse_args()
    with open_bench(arguments.folder) as bench:
        measure(bench, arguments.huge_pages)


if __name__ == "__main__":
    main()
