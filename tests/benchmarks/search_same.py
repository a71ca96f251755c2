"""A kernel judged beside itself, many times: how often the judge claims a win.

    python -m tests.benchmarks.search_same --times 1000 --sets 10 --minutes 2

A contest has four processes: the candidate, the alternative, its twin, and mere copies. Starting
them takes most of a judgement, so that each set of processes runs many contests, each with values,
orders and windows of its own. All are counted; a line tells the state after each set.
"""

from __future__ import annotations

import argparse
import csv
import secrets
import sys
import time
from contextlib import ExitStack

import torch

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.arena import Arena, lay_out
from gpudeck.accel.search.contender import Contender, Desk
from gpudeck.accel.search.contest import CALLS, Contest, Effort
from gpudeck.accel.search.judge import nursery
from gpudeck.accel.search.measures import bound
from gpudeck.accel.search.tasks import Task, task_of
from gpudeck.accel.search.verdict import Source

TASKS = ("softmax", "gelu", "rms_norm", "swiglu")
NAMES = ("candidate", "baseline", "twin", "copies")


def contests(task: Task, count: int, end: float) -> tuple[int, int, int]:
    """Return how many contests of one set of processes there were, won, and refused."""
    device = find_device().torch_device
    random = torch.Generator().manual_seed(secrets.randbits(48))
    done = wins = refused = 0
    with ExitStack() as stack:
        arena = Arena.create(lay_out(task, task.timed, CALLS)[1], device)
        stack.callback(arena.close)
        desk = Desk(arena, task, device)
        desk.lay_out(task.timed, CALLS)
        desk.stock(random)
        copies = Source(
            "gpudeck.accel.search.baselines", "copies",
            {"place": task.source.place, "entry": task.source.entry},
        )  # fmt: skip
        runners = {}
        for name in NAMES:
            source = copies if name == "copies" else task.source
            runner = Contender.start(
                nursery(), source, desk, device, trusted=name != "candidate",
                threads=torch.get_num_threads(),
            )  # fmt: skip
            stack.callback(runner.end)
            desk.refill(random, CALLS)
            assert runner.bind(desk, name), runner.flags
            runner.child.pause()
            runners[name] = runner
        while done < count and time.monotonic() < end:
            contest = Contest(task, desk, bound(2e-7, task.dtype), random, Effort(2.0, 80))
            race = contest.run(runners, "eager", ())
            done += 1
            refused += bool(contest.refusals)
            wins += race is not None and race.is_won
    return done, wins, refused


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_same")
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=2.0)
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    write = csv.writer(sys.stdout)
    write.writerow(("sets of processes", "task", "contests", "wins", "refused", "seconds"))
    done = wins = refused = number = 0
    with torch.no_grad():
        while done < args.times and time.monotonic() < end:
            name = TASKS[number % len(TASKS)]
            task = task_of(name, torch.float32, {"rows": 1024, "columns": 2048})
            found = contests(task, -(-args.times // args.sets), end)
            number += 1
            done, wins, refused = (a + b for a, b in zip((done, wins, refused), found, strict=True))
            took = 60 * args.minutes - (end - time.monotonic())
            write.writerow((number, name, done, wins, refused, f"{took:.1f}"))
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
