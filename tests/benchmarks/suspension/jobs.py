"""Free a GPU, preempt jobs and exchange them, through a daemon and its command line.

    python -m tests.benchmarks.suspension.jobs FOLDER [--large 900] [--small 60] [--huge-pages]

Two jobs take turns on the GPU: --large tells how many seconds they have with 60 % of the GPU's
memory each, and --small with 4 GiB each; --huge-pages gives them pages of 2 MiB.
"""

from __future__ import annotations

import argparse
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

EXCHANGES = 20
PREEMPTED = (0.5, 2.0, 2.0, 4.0)
"""GiB of the jobs that are suspended for another one."""
LONG_S = 100.0
"""Seconds after which a step counts as stuck."""
SHARE = 0.6
FREED, FOREIGN = 16.0, 0.9
"""GiB of the job whose GPU is freed, and the share of the GPU that a foreign program takes then."""


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
        eventually(lambda: b"ready" in self.deck.log(job.id), LONG_S)
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
            self.deck.cancel_reservation(int(number))
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


def measure_freeing(bench: Bench) -> None:
    """Free the GPU of a small job by the command."""
    gib = 1.5
    job = bench.submit("torch", gib)
    bench.wait_ready(job)
    bench.keep_freeing(gib, *_press_free(bench.card))
    bench.deck.cancel_reservation(_number(bench.deck))
    bench.wait_on(job)
    bench.end(job, gib)


def measure_foreign(bench: Bench) -> None:
    """Free the GPU; while it is free, a foreign program takes most of it, and the job is to come
    back."""
    deck, card = bench.deck, bench.card
    job = bench.submit("torch", FREED)
    bench.wait_ready(job)
    bench.keep_freeing(FREED, *_press_free(card))
    foreign = Program("CUDA C++", FOREIGN * card.total / 2**30, bench.scratch / "stop foreign")
    foreign.wait_ready()
    deck.cancel_reservation(_number(deck))
    time.sleep(10.0)
    stayed = not bench.is_on(job)
    foreign_end = foreign.end()
    ended_at = time.monotonic()
    bench.wait_on(job)
    back = time.monotonic() - ended_at
    exact = is_exact("torch", 0.1, 1, bench.end(job, FREED), bench.scratch)
    exact_too = is_exact("CUDA C++", foreign.gib, 1, foreign_end, bench.scratch)
    bench.keep("a foreign program takes the room of a suspended job", FREED, [back],
               stayed and exact and exact_too,
               f"it held {foreign.gib:.0f} GiB; the seconds are from its end to the job's return, "
               f"which was tried {len(bench.times(job, 'resuming'))} times")  # fmt: skip


def _press_free(card: Card) -> tuple[float, float]:
    """Run the command; return when nvidia-smi shows 0 MiB, and when the command returned."""
    began = time.monotonic()
    words = (sys.executable, "-m", "gpudeck", "free", str(card.index), "--for", "1h")
    pressed = subprocess.Popen(words)
    while card.used_mib:
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


def measure_exchanges(bench: Bench, gib: float, most: int, until: float) -> int:
    """Have two jobs take turns until a time (monotonic); return how often they did."""
    deck, took = bench.deck, list[float]()
    on, off = (bench.submit("torch", gib, seed) for seed in (1, 2))
    seeds = {on.id: 1, off.id: 2}
    bench.wait_ready(on)
    deck.suspend_job(on.id)
    bench.wait_ready(off)
    on, off = off, on

    def write(exact: object) -> None:
        bench.keep("two jobs exchanged", gib, took, exact, "one out and the other back, each time")

    while len(took) < most and time.monotonic() + max(took, default=0.0) < until:
        began = time.monotonic()
        deck.suspend_job(on.id)
        deck.resume_job(off.id)
        bench.wait_on(off)
        took.append(time.monotonic() - began)
        on, off = off, on
        write("")
    ended = {job.id: bench.end(job, gib, seeds[job.id]) for job in (on, off)}
    write(all(is_exact("torch", 0.1, seeds[job], end, bench.scratch) for job, end in ended.items()))
    return len(took)


def exchange_all(bench: Bench, large_s: float, small_s: float) -> None:
    """Have jobs of 60 % of the memory take turns as often as the time allows, and smaller ones for
    the rest of EXCHANGES."""
    large = SHARE * bench.card.total / 2**30
    done = measure_exchanges(bench, large, EXCHANGES, time.monotonic() + large_s)
    if done < EXCHANGES:
        measure_exchanges(bench, 4.0, EXCHANGES - done, time.monotonic() + small_s)


def print_log() -> None:
    """Print the end of the daemon's log."""
    print(paths.daemon_log().read_text()[-3000:], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--large", type=float, default=900.0)
    parser.add_argument("--small", type=float, default=60.0)
    parser.add_argument("--huge-pages", action="store_true")
    arguments = parser.parse_args()
    parts = (measure_freeing, measure_preemption, measure_foreign)
    with tempfile.TemporaryDirectory() as name, state_folder(Path(name) / "home"):
        bench = Bench(arguments.folder, Path(name))
        for part in parts:
            with survive(part.__name__):
                part(bench)
            bench.clean()
            print(time.strftime("%H:%M:%S"), part.__name__, "has ended", flush=True)
        pages = huge_pages_always() if arguments.huge_pages else nullcontext()
        with survive("exchanges"), pages:
            exchange_all(bench, arguments.large, arguments.small)
        print_log()
        bench.deck.close()


if __name__ == "__main__":
    main()
