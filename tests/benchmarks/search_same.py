"""A kernel judged beside itself, many times: how often the judge claims a win.

    python -m tests.benchmarks.search_same --times 1000 --sets 20 --minutes 2

A contest has four processes: the candidate, the alternative, its twin, and mere copies. Each set of
processes runs many contests, each with values, orders and windows of its own. All are counted; a
line tells what came of each set.
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
from gpudeck.accel.search.arena import lay_out
from gpudeck.accel.search.contender import Desk
from gpudeck.accel.search.contest import CALLS, Contest, Effort
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.judge import nursery
from gpudeck.accel.search.measures import bound
from gpudeck.accel.search.tasks import Task, task_of
from gpudeck.accel.search.verdict import Source

TASKS = ("softmax", "gelu", "rms_norm", "swiglu")
EFFORT = Effort(seconds=2.0, rounds=40)
NAMES = ("candidate", "baseline", "twin", "copies")
_CALL_US = 100.0
"""About the time of a call: windows have as many calls as there are inputs."""


def contests(task: Task, crew: Crew, count: int, end: float) -> tuple[int, int, int]:
    """Return how many contests of one set of processes there were, won, and refused."""
    random = torch.Generator().manual_seed(secrets.randbits(48))
    done = wins = refused = 0
    with ExitStack() as stack:
        desk = Desk(crew.arena(lay_out(task, task.timed, CALLS)[1]), task, crew.device)
        desk.lay_out(task.timed, CALLS)
        desk.stock(random)
        copies = Source(
            "gpudeck.accel.search.baselines", "copies",
            {"place": task.source.place, "entry": task.source.entry},
        )  # fmt: skip
        runners = {}
        for name in NAMES:
            source = copies if name == "copies" else task.source
            runner = crew.start(source, desk, trusted=name != "candidate")
            stack.callback(crew.release, runner)
            desk.refill(random, CALLS)
            assert runner.bind(desk, name), runner.flags
            runner.child.pause()
            runners[name] = runner
        while done < count and time.monotonic() < end:
            allowed = bound(2e-7, task.dtype)
            contest = Contest(task, desk, allowed, random, EFFORT, _CALL_US)
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
    parser.add_argument("--first", type=int, default=0, help="the number of the first set")
    args = parser.parse_args()
    begun = time.monotonic()
    end = begun + 60 * args.minutes
    write = csv.writer(sys.stdout)
    if not args.first:
        write.writerow(("set", "task", "contests", "wins", "refused", "seconds"))
    done, number = 0, args.first
    with Crew(nursery(), find_device().torch_device) as crew, torch.no_grad():
        while done < args.times and time.monotonic() < end:
            name = TASKS[number % len(TASKS)]
            task = task_of(name, torch.float32, {"rows": 1024, "columns": 2048})
            found = contests(task, crew, -(-args.times // args.sets), end)
            write.writerow((number, name, *found, f"{time.monotonic() - begun:.1f}"))
            sys.stdout.flush()
            done, number = done + found[0], number + 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
