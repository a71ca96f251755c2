"""Processes on a GPU that a job of ours left behind. They are told of only: `Client.kill` ends one, after a person was asked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

from assistant.housekeeping.find import Find
from assistant.housekeeping.grounds import Grounds
from scheduler.protocol.devices import Detail, Process
from scheduler.protocol.errors import NotFound
from scheduler.protocol.jobs import Job


def find(grounds: Grounds, details: Iterable[Detail], job: Callable[[int], Job]) -> Iterator[Find]:
    """`job` tells of a job by its number, or raises NotFound."""
    now, user = time.time(), psutil.Process().username()
    if grounds.age_of("process") is None:
        return
    memory: dict[int, float] = {}
    found: dict[int, Process] = {}
    for process in (p for detail in details for p in detail.processes):
        if process.job is not None and process.ticks and process.user == user:
            memory[process.pid] = memory.get(process.pid, 0.0) + (process.memory or 0.0)
            found[process.pid] = process
    for pid, process in found.items():
        assert process.job is not None
        if _of(pid, grounds.jobs, process.job) and (status := _ended(process.job, job)):
            reason = f"{process.name} holds a GPU for job {process.job}, which has ended ({status})"
            yield Find(
                "process", "", "", int(memory[pid]), reason, now - process.start, process=process
            )


def _of(pid: int, jobs: Path | None, job: int) -> bool:
    """Whether it was started by this very queue: another state folder has jobs of the same numbers."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    named = next(
        (line.partition(b"=")[2] for line in environment if line.startswith(b"GPUDECK_ARTEFACTS=")),
        b"",
    )
    return jobs is not None and Path(os.path.realpath(os.fsdecode(named))).parent == jobs / str(job)


def _ended(number: int, job: Callable[[int], Job]) -> str:
    try:
        found = job(number)
    except NotFound:
        return "the queue does not know it"
    return "" if found.active else found.status
