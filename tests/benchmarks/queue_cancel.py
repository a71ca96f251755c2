"""Measure the cancelling of many jobs at once, and of a job that many others wait for.

    python -m tests.benchmarks.queue_cancel [--running N]

The daemon and the processes are real. Each row also holds the longest time that another client
waited for a reply meanwhile.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.job_options import MAX_BATCH
from gpudeck.scheduler.protocol.jobs import Job, Spec
from gpudeck.scheduler.protocol.search import ACTIVE, Search
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.rows import context, write

ENV = {"PATH": os.environ["PATH"], **{f"VARIABLE_{number}": "x" * 50 for number in range(64)}}
RUNNER = 8 * 2**20
"""Upper bound of the bytes that a running job and its runner take; fewer jobs run if memory is
short.
"""
_PATIENCE_S = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--running",
        type=int,
        default=3000,
        help="jobs of an array that run at once (default: 3000)",
    )
    running = min(parser.parse_args(arguments).running, psutil.virtual_memory().available // RUNNER)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        settings.save(Settings(source="cpu"))
        with Client(timeout=_PATIENCE_S) as deck:
            _until(lambda: bool(deck.snapshot().devices))
            found |= _queued(deck)
            found |= _parent(deck)
            found |= _running(deck, running)
            deck.stop_daemon()
    where = context(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
        ["msgspec"],
    )
    rows = [
        {"figure": name, "value": float(f"{value:.4g}"), "unit": "s", **where}
        for name, value in found.items()
    ]
    for row in rows:
        print(f"{row['figure']:64} {row['value']:9.4g} s")
    print(write("queue_cancel", rows))
    return 0


def _queued(deck: Client) -> dict[str, float]:
    """Submit a full batch of jobs that wait."""
    jobs = deck.submit_many([Spec(("true",), "waits", "/", ENV, hold=True)] * MAX_BATCH)
    what = f"{MAX_BATCH} that wait: order to answer"
    with _others() as longest:
        took = _seconds(lambda: deck.cancel_many([range(jobs[0].id, jobs[-1].id + 1)]))
    return {what: took, f"{MAX_BATCH} that wait: longest answer to others": longest()}


def _parent(deck: Client) -> dict[str, float]:
    """Submit a job that a full batch depends on."""
    first = deck.submit(["true"], hold=True, env=ENV).id
    deck.submit_many([Spec(("true",), "waits", "/", ENV, after=(first,))] * MAX_BATCH)
    what = f"one that {MAX_BATCH} wait for"
    with _others() as longest:
        answered = _seconds(lambda: deck.cancel(first))
        whole = answered + _seconds(lambda: _none_left(deck))
    return {
        f"{what}: order to answer": answered,
        f"{what}: order to their end": whole,
        f"{what}: longest answer to others": longest(),
    }


def _running(deck: Client, count: int) -> dict[str, float]:
    """Submit an array whose jobs run at once and share the memory of one device."""

    def start() -> tuple[Job, ...]:
        jobs = deck.submit_array(["sleep", "3600"], range(count), memory=2**20, env=ENV)
        _until(lambda: not deck.find(Search(outcomes=("queued", "starting")), 1)[0])
        return jobs

    began = time.monotonic()
    jobs = start()
    started = time.monotonic() - began
    what = f"{count} that run"
    with _others() as longest:
        answered = _seconds(lambda: deck.cancel_many(array=jobs[0].id))
        whole = answered + _seconds(lambda: _none_left(deck))
    return {
        f"{what}: submission to the start of the last": started,
        f"{what}: order to answer": answered,
        f"{what}: order to the end of the last": whole,
        f"{what}: longest answer to others": longest(),
    }


def _none_left(deck: Client) -> None:
    _until(lambda: not deck.find(Search(outcomes=ACTIVE), 1)[0])


@contextmanager
def _others() -> Iterator[Callable[[], float]]:
    """Send requests continuously as another client, and return the longest wait for a reply in
    seconds.
    """
    over, longest = threading.Event(), [0.0]

    def ask() -> None:
        with Client(timeout=_PATIENCE_S) as deck:
            while not over.is_set():
                longest.append(_seconds(lambda: deck.jobs(1)))
                time.sleep(0.005)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield lambda: max(longest)
    finally:
        over.set()
        thread.join()


def _seconds(act: Callable[[], object]) -> float:
    start = time.monotonic()
    act()
    return time.monotonic() - start


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {_PATIENCE_S:.0f} s")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
