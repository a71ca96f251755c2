"""Free a GPU, preempt jobs and exchange them, through a daemon and its command line.

    python -m tests.benchmarks.suspension.jobs FOLDER [--seconds 900] [--huge-pages]

Two jobs with 60 % of the GPU's memory each take turns on it for so many seconds, and then, up to 20
times in all, two with 60 % of what a third job leaves; --huge-pages gives all of them pages of
2 MiB.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.draining import drained
from gpudeck.scheduler.protocol.jobs import Job, suspension_of
from tests.benchmarks.suspension.card import (
    Card,
    Row,
    huge_pages_always,
    keep,
    read_huge_pages,
    survive,
)
from tests.benchmarks.suspension.programs import (
    Ended,
    Kind,
    Program,
    command,
    is_exact,
    parse_end,
)
from tests.integration.deck import ready
from tests.support import eventually, state_folder

EXCHANGES, MORE = 20, 19
PREEMPTED = (0.5, 2.0, 2.0, 4.0)
"""GiB of the jobs that are suspended for another one."""
LONG_S = 100.0
"""Seconds after which a step counts as stuck."""
SHARE = 0.6
LEFT, CONTEXT = 6.5, 0.6
"""GiB that a third job leaves to two small ones, and that a program takes beside its memory."""
FREED, FOREIGN, TRIED_S = 16.0, 0.9, 4.0
"""GiB of a job that is suspended, the share of the GPU that a foreign program takes meanwhile, and
for how long."""
EMPTY_MIB = 4
"""What nvidia-smi shows at most while no program uses the GPU: the driver itself takes 3.25 MiB."""


class Bench:
    """A daemon whose jobs run on one GPU."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch, self.card = folder, scratch, Card()
        self.deck = ready(Client(timeout=600.0))
        state = self.deck.snapshot()
        devices = [each.device for each in state.devices]
        others = [device for device in devices if device.id != self.card.uuid]
        if others:
            self.deck.configure(drained=drained(state.settings, others, True))

    def submit(self, kind: Kind, gib: float, seed: int = 1, **options: object) -> Job:
        stop = self._stop(gib, seed)
        stop.unlink(missing_ok=True)
        words = command(kind, gib, stop, 0, seed)
        return self.deck.submit(words, gpus=1, **options).job  # type: ignore[arg-type]

    def _stop(self, gib: float, seed: int) -> Path:
        return self.scratch / f"stop {gib} {seed}"

    def wait_ready(self, job: Job) -> None:
        """Wait until a job has filled its memory, and NVML shows it."""

        def is_ready() -> bool:
            log = self.deck.log(job.id)
            assert self.deck.job(job.id).active, log
            return b"ready" in log

        eventually(is_ready, LONG_S)
        eventually(lambda: self._is_listed(job), LONG_S)

    def _is_listed(self, job: Job) -> bool:
        listed = (process for detail in self.deck.details() for process in detail.processes)
        return any(process.job == job.id for process in listed)

    def is_on(self, job: Job) -> bool:
        return suspension_of(self.deck.job(job.id)) is None

    def wait_on(self, job: Job) -> None:
        eventually(lambda: self.is_on(job), LONG_S)

    def times(self, job: Job, what: str) -> list[float]:
        return [event.time for event in self.deck.timeline(job.id) if event.what == what]

    def end(self, job: Job, gib: float, seed: int = 1) -> Ended:
        """Let a job end, and return what it tells."""
        self._stop(gib, seed).touch()
        if not self.is_on(job):
            self.deck.resume_job(job.id)
        self.deck.wait(job.id)
        return parse_end(self.deck.log(job.id).decode().split("\n")[-2])

    def clean(self) -> None:
        """End what a part that failed has left on the GPU."""
        for number in self.deck.snapshot().settings.reservations:
            self.deck.cancel_booking(int(number))
        for job in self.deck.jobs(active=True):
            self.deck.cancel(job.id)
            self.deck.wait(job.id, LONG_S)

    def row(self, case: str, gib: float, values: list[float], exact: object, note: str) -> Row:
        return self.card.context | {
            "case": case,
            "held_gib": f"{gib:.1f}",
            "huge_pages": read_huge_pages(),
            "count": len(values),
            "median_s": f"{statistics.median(values):.4g}" if values else "",
            "max_s": f"{max(values):.4g}" if values else "",
            "exact": exact,
            "note": note,
        }

    def keep_freeing(self, gib: float, empty: float, returned: float) -> None:
        note = f"the command returned after {returned:.2f} s"
        self.keep("gpudeck free until nvidia-smi shows 0 MiB", gib, [empty], "", note)

    def keep(self, *args: object) -> None:
        keep("suspension_jobs", self.row(*args), self.folder)  # type: ignore[arg-type]


def measure_freeing(bench: Bench) -> tuple[float, Ended]:
    """Free the GPU of a small compiled training by the command, and suspend it MORE times; return
    its size and what it told."""
    gib = 1.5
    os.environ["COMPILE"] = "1"
    job = bench.submit("torch", gib)
    bench.wait_ready(job)
    bench.keep_freeing(gib, *_press_free(bench.card))
    bench.deck.cancel_booking(_number(bench.deck))
    bench.wait_on(job)
    for _ in range(MORE):
        bench.deck.suspend_job(job.id)
        bench.deck.resume_job(job.id)
        bench.wait_on(job)
    return gib, bench.end(job, gib)


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
    bench.keep_freeing(gib, *_press_free(bench.card))
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


def measure_exchanges(bench: Bench, gib: float, most: int, until: float, **options: object) -> int:
    """Have two jobs take turns until a time (monotonic); return how often they did."""
    deck, took = bench.deck, list[float]()
    room = bench.card.free / 2**30
    off, on = (bench.submit("CUDA C++", gib, seed, **options) for seed in (1, 2))
    seeds = {off.id: 1, on.id: 2}
    bench.wait_ready(off)
    deck.suspend_job(off.id)
    bench.wait_ready(on)

    def write(exact: object) -> None:
        note = f"{room:.1f} GiB were free for both; one out and the other back, each time"
        bench.keep("two jobs exchanged", gib, took, exact, note)

    while len(took) < most and time.monotonic() + max(took, default=0.0) < until:
        began = time.monotonic()
        deck.suspend_job(on.id)
        deck.resume_job(off.id)
        bench.wait_on(off)
        took.append(time.monotonic() - began)
        on, off = off, on
        write("")
    ended = {job.id: bench.end(job, gib, seeds[job.id]) for job in (on, off)}
    write(
        all(is_exact("CUDA C++", gib, seeds[job], end, bench.scratch) for job, end in ended.items())
    )
    return len(took)


def measure_small_exchanges(bench: Bench, most: int) -> None:
    """Have two jobs take turns in what a third one leaves, 60 % of which each of them needs."""
    whole = bench.card.free / 2**30 - LEFT
    third = bench.submit("CUDA C++", whole - CONTEXT, 3, memory=f"{whole:.2f}GiB")
    bench.wait_ready(third)
    each = SHARE * (LEFT - CONTEXT)
    measure_exchanges(bench, each - CONTEXT, most, math.inf, memory=f"{each:.2f}GiB")
    bench.end(third, whole - CONTEXT, 3)


def print_log() -> None:
    """Print the end of the daemon's log."""
    print(paths.daemon_log().read_text()[-3000:], flush=True)


def measure(bench: Bench, arguments: argparse.Namespace) -> None:
    """Measure one thing after the other; what fails leaves the GPU to the next."""
    large, told, done = SHARE * bench.card.total / 2**30, list[tuple[float, Ended]](), 0
    with huge_pages_always() if arguments.huge_pages else nullcontext():
        with survive("exchanges"):
            done = measure_exchanges(bench, large, EXCHANGES, time.monotonic() + arguments.seconds)
        bench.clean()
        with survive("small exchanges"):
            measure_small_exchanges(bench, EXCHANGES - done)
        bench.clean()
        with survive("a foreign program"):
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
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--huge-pages", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, state_folder(Path(name) / "home"):
        bench = Bench(arguments.folder, Path(name))
        try:
            measure(bench, arguments)
        finally:
            print_log()
            bench.deck.close()


if __name__ == "__main__":
    main()
