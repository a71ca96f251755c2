"""Measure how long the daemon's loop works in one go while one client asks for as much as it can.

    python -m tests.benchmarks.daemon_loop

The daemon is real, with a GPU played at the hardware's edge, and it times each callback of its
loop: nobody else is answered meanwhile. A row holds the longest of a request's callbacks, by the
clock and in time of the processor, which other programs of a busy machine do not lengthen.
"""

from __future__ import annotations

import asyncio
import os
import platform
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import MAX_BATCH
from gpudeck.scheduler.protocol.jobs import Job, Spec
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.queue.admission import MAX_LANES
from tests.benchmarks.rows import context, write

ROOT = Path(__file__).parents[2]
FAKE_GPU = ROOT / "tests/integration/fake_gpu"
ENV = {"PATH": os.environ["PATH"], **{f"VARIABLE_{number}": "x" * 50 for number in range(64)}}
GROUPS, ACCEPTED = 5000, MAX_LANES // 2
"""Jobs that differ in what they need: too many, and half as many as are accepted."""
SHORTEST_S = 0.002
"""Shorter callbacks are not noted."""
PASSES = 3
"""Changes after which the daemon plans anew."""


class Callback(NamedTuple):
    """One callback of the loop: when it began (monotonic), and what it took."""

    began: float
    wall: float
    cpu: float
    name: str


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given:
        return _serve(Path(given[0]))
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        times = Path(home, "times")
        with _daemon(times), Client(timeout=600.0) as deck:
            phases = [
                (figure, began, time.monotonic()) for figure, began in _timed(_requests(deck))
            ]
        rows = _rows(phases, times)
    for row in rows:
        print(f"{row['figure']:58} {row['wall']:8} {row['cpu']:8}  {row['callback']}")
    print(write("daemon_loop", rows))
    return 0


def _serve(times: Path) -> int:
    """Be the daemon, and note what its callbacks take."""
    run = asyncio.events.Handle._run  # type: ignore[attr-defined]
    out = times.open("w", buffering=1)

    def timed(handle: Any) -> None:
        began, cpu = time.monotonic(), time.thread_time()
        run(handle)
        wall, cpu = time.monotonic() - began, time.thread_time() - cpu
        if max(wall, cpu) >= SHORTEST_S:
            task = getattr(handle._callback, "__self__", None)
            name = task.get_coro().__qualname__ if isinstance(task, asyncio.Task) else "callback"
            out.write(f"{began} {wall} {cpu} {name}\n")

    asyncio.events.Handle._run = timed  # type: ignore[attr-defined]
    sys.argv = sys.argv[:1]
    runpy.run_module("gpudeck.scheduler.daemon", run_name="__main__")
    return 0


@contextmanager
def _daemon(times: Path) -> Iterator[None]:
    gpu = times.with_name("gpu")
    gpu.mkdir()
    settings.save(Settings(source="nvml"))
    environment = {
        **os.environ,
        "FAKE_GPU": str(gpu),
        "PYTHONPATH": os.pathsep.join([str(FAKE_GPU), str(ROOT)]),
    }
    command = [sys.executable, "-m", "tests.benchmarks.daemon_loop", str(times)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        with Client(start=False) as deck:
            while not deck.snapshot().devices:
                time.sleep(0.1)
        try:
            yield
        finally:
            daemon.terminate()


def _timed(requests: Iterator[tuple[str, Callable[[], object]]]) -> Iterator[tuple[str, float]]:
    """Carry out the requests; yield what each was, and when it began."""
    for figure, act in requests:
        began, end = time.monotonic(), ""
        try:
            act()
        except UserError as e:
            end = " (refused)"
            print(f"{figure}{end}: {e}", file=sys.stderr)
        time.sleep(0.5)  # for what follows the reply, as planning
        yield figure + end, began


def _requests(deck: Client) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what a hostile client asks for, one thing after another."""
    jobs: list[Job] = []
    alike = Spec(("true",), "alike", "/", ENV, gpus=1)
    grouped = [
        Spec(("true",), "own group", "/", ENV, gpus=1, group=f"group {n}") for n in range(GROUPS)
    ]
    differing = [
        Spec(("true",), "own size", "/", ENV, gpus=1, memory=2**30 + n) for n in range(ACCEPTED - 5)
    ]

    def submit(specs: Sequence[Spec]) -> Callable[[], object]:
        return lambda: jobs.extend(deck.submit_many(specs))

    def edit_some() -> None:
        for job in jobs[-PASSES:]:
            deck.edit(job.id, priority=-1)

    def watch() -> None:
        with Client(timeout=600.0) as other:
            snapshots = other.subscribe()
            for _ in range(PASSES):
                next(snapshots)

    def ask() -> Iterator[tuple[str, Callable[[], object]]]:
        yield "jobs edited", edit_some
        yield "1,000 listed", lambda: deck.jobs(1000)
        yield "found by a text that none has", lambda: deck.find(Search(text="no such text"))
        yield "schedule", deck.schedule
        yield "100 more foreseen", lambda: deck.foresee_spec(alike, 100)
        yield "groups listed", deck.groups
        yield "moved to the front", lambda: deck.move(jobs[-1].id, before=jobs[0].id)
        yield "followed", watch

    yield "one job runs", lambda: deck.submit(["sleep", "600"], gpus=1)
    yield f"{MAX_BATCH:,} alike submitted", submit([alike] * MAX_BATCH)
    for what, act in ask():
        yield f"{MAX_BATCH:,} alike: {what}", act
    yield f"{GROUPS:,} in groups of their own submitted", submit(grouped)
    yield f"{ACCEPTED:,} in groups of their own submitted", submit(grouped[:ACCEPTED])
    for what, act in ask():
        yield f"{ACCEPTED:,} groups: {what}", act
    limited = lambda: [deck.set_group(f"group {n}", limit=1) for n in range(100)]  # noqa: E731
    yield "100 of the groups limited", limited
    yield f"{ACCEPTED:,} of different sizes submitted", submit(differing)
    for what, act in ask():
        yield f"{ACCEPTED:,} sizes as well: {what}", act
    after = Spec(("true",), "after all", "/", ENV, after=tuple(job.id for job in jobs[:1000]))
    yield "100 after 1,000 others each submitted", lambda: deck.submit_many([after] * 100)
    for what, act in ask():
        yield f"100 after 1,000 others each: {what}", act
    first, last = jobs[0].id, jobs[-1].id + 100
    cancelled = lambda: deck.cancel_many([range(first, last)])  # noqa: E731
    yield "all cancelled", cancelled
    yield f"{MAX_BATCH:,} restored", lambda: deck.restore([j.id for j in jobs[:MAX_BATCH]])
    yield "all cancelled again", cancelled
    noted = jobs[0].id
    yield "2,000 notes", lambda: [deck.note(noted, "x" * 1000) for _ in range(2000)]
    yield "timeline of 2,000 notes", lambda: deck.timeline(noted)
    long = Spec(("x" * 100_000,), "long", "/", ENV, hold=True, notes="x" * 9000)
    yield "400 with long commands submitted", submit([long] * 400)
    yield "400 with long commands listed", lambda: deck.jobs(400)


def _rows(phases: Sequence[tuple[str, float, float]], times: Path) -> list[dict[str, object]]:
    lines = [line.split(" ", 3) for line in times.read_text().splitlines()]
    callbacks = [Callback(*map(float, line[:3]), line[3]) for line in lines]  # type: ignore[arg-type]
    where = context(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        ["msgspec"],
    )
    rows: list[dict[str, object]] = []
    for figure, began, ended in phases:
        within = [one for one in callbacks if began <= one.began < ended]
        longest = max(within, key=lambda one: one.cpu, default=Callback(0, 0, 0, ""))
        wall = max((one.wall for one in within), default=0.0)
        rows.append(
            {
                "figure": figure,
                "wall": float(f"{wall:.3g}"),
                "cpu": float(f"{longest.cpu:.3g}"),
                "unit": "s",
                "callback": longest.name,
                **where,
            }
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
