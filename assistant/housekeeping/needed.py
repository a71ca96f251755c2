"""What jobs that wait or run may need: their folders, what their commands name, and what lies where they work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from assistant.housekeeping.find import Find, within
from scheduler import paths
from scheduler.jobs import Job

_WHERE_THEY_WORK = ("core", "duplicate")
"""Kinds that may be anything a job wants to read; a cache or an old log in its working folder is what it is."""


def needed(find: Find, jobs: Iterable[Job]) -> str:
    """Which of these jobs may need it; empty where none does."""
    path = find.path
    for job in jobs:
        cwd = Path(os.path.realpath(job.spec.cwd))
        named = (Path(os.path.realpath(cwd / part)) for word in job.spec.argv for part in _parts(word))
        if _touch(path, Path(os.path.realpath(paths.job_folder(job.id)))) or any(_touch(path, name) for name in named):
            return f"job {job.id} needs it"
        if find.kind in _WHERE_THEY_WORK and within(path, cwd):
            return f"job {job.id} works in {cwd}"
    return ""


def _parts(word: str) -> tuple[str, ...]:
    """The paths that a word of a command may name: itself, or what stands behind its =."""
    return tuple(part for part in (word, word.partition("=")[2]) if "/" in part or Path(part).suffix)


def _touch(path: Path, other: Path) -> bool:
    """Whether one is the other, or lies in it."""
    return path == other or within(path, other) or within(other, path)
