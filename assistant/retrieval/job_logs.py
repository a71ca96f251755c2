"""Read logs of jobs as lines that can be searched.

Logs are foreign text: a bounded part is read, and nothing in it is followed or run.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.retrieval.passage import Passage
from gpudeck.scheduler.protocol import log_file as logfile
from gpudeck.scheduler.protocol import paths

NEWEST = 20
"""The most jobs whose logs are searched if none is named."""
ONE_LOG, EACH_LOG = 2 * 2**20, 128 * 2**10
"""Bytes of the end of a log: of a named one, and of one among many."""
AROUND = 2
"""Lines that are quoted before and after a hit."""


class JobLog(NamedTuple):
    """Hold what was read of a job's log."""

    job: int
    lines: list[str]
    offset: int
    """The offset of the first line in bytes; 0 for the log's first line."""
    starts: list[int]
    """The offset of each line in bytes, from there."""


def newest() -> list[int]:
    """Return the jobs that have a folder, newest first."""
    try:
        with os.scandir(paths.home() / "jobs") as found:
            numbers = [int(entry.name) for entry in found if entry.name.isdigit()]
    except OSError:
        return []
    return sorted(numbers, reverse=True)[:NEWEST]


def read(job: int, limit: int) -> JobLog:
    """Return the end of a job's log; without lines if it cannot be read."""
    try:
        with paths.open_plain(paths.job_folder(job) / "log") as f:
            part = logfile.read(f, -limit, limit)
    except OSError:
        return JobLog(job, [], 0, [])
    data, offset = part.data, part.start
    if len(data) != part.end - part.start:
        # some of it was dropped: only what follows the gap is recent
        data = data.rpartition(logfile.DROPPED)[2]
        offset = part.end - len(data)
    if offset:  # The part begins within a line.
        cut = data.find(b"\n") + 1
        data, offset = data[cut:], offset + cut
    starts, at = [], 0
    for raw in data.split(b"\n"):
        starts.append(at)
        at += len(raw) + 1
    return JobLog(job, phrases.log_lines(data), offset, starts)


def passage(log: JobLog, line: int, score: float) -> Passage:
    """Return a line of a log with those around it."""
    first, last = max(line - AROUND, 0), min(line + AROUND, len(log.lines) - 1)
    text = "\n".join(log.lines[first : last + 1])
    file = str(paths.job_folder(log.job) / "log")
    if log.offset:
        return Passage(
            "logs", file, log.offset + log.starts[first], 0, text, f"Job {log.job}", score
        )
    return Passage("logs", file, first + 1, last + 1, text, f"Job {log.job}", score)
