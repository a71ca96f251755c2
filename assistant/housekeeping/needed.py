"""What jobs that wait or run may need: their folders, what their commands name, what lies where they work; and the assistant's model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from assistant.housekeeping.find import Find
from assistant.housekeeping.grounds import Grounds
from scheduler.protocol import paths
from scheduler.protocol.jobs import Job

_WHERE_THEY_WORK = ("core", "duplicate")
"""Kinds that may be anything a job wants to read; a cache or an old log in its working folder is what it is."""


class Needs:
    """Made once for many finds: a path is looked up, not compared with all others."""

    def __init__(self, grounds: Grounds) -> None:
        self._named: dict[Path, str] = {}
        """What is needed, with all that lies in it."""
        self._above: dict[Path, str] = {}
        """The folders that something needed lies in."""
        self._work: dict[Path, str] = {}
        for job in grounds.active:
            cwd = _real(job.spec.cwd)
            self._work[cwd] = f"job {job.id} works in {cwd}"
            for path in _paths(job, cwd):
                self._add(path, f"job {job.id} needs it")
        if grounds.model:
            self._add(grounds.model, "it belongs to the assistant's model")

    def of(self, find: Find) -> str:
        """Who may need it; empty where nobody does."""
        path = find.path
        where = (path, *path.parents)
        if why := self._above.get(path) or _first(self._named, where):
            return why
        return _first(self._work, where) if find.kind in _WHERE_THEY_WORK else ""

    def _add(self, path: Path, why: str) -> None:
        self._named[path] = why
        self._above |= dict.fromkeys(path.parents, why)


def _paths(job: Job, cwd: Path) -> Iterator[Path]:
    """The job's folder, and what a word of its command names: itself, or behind its =."""
    yield _real(paths.job_folder(job.id))
    for word in job.spec.argv:
        for part in (word, word.partition("=")[2]):
            if "/" in part or Path(part).suffix:
                yield _real(cwd / part)


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def _first(found: dict[Path, str], where: Iterable[Path]) -> str:
    return next((found[path] for path in where if path in found), "")
