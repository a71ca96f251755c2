"""Logs and artefacts of jobs that ended long ago."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from assistant.housekeeping.find import Find, Kept, Kind, encoded
from assistant.housekeeping.grounds import Grounds
from assistant.housekeeping.tree import measured
from assistant.housekeeping.watch import Watch
from scheduler.protocol.errors import NotFound
from scheduler.protocol.jobs import Job
from scheduler.protocol.progress import printable

_FOLDER = re.compile(r"(\d{1,18})(\.old-\d+)?")
"""Of a job, or of an earlier one of its number, from a store that was deleted (see `scheduler.executors.base`)."""
_LOG = re.compile(r"log(\.\d+)?")


def find(grounds: Grounds, watch: Watch, job: Callable[[int], Job]) -> Iterator[Find]:
    """`job` tells of a job by its number, or raises NotFound."""
    now = time.time()
    for folder, number, former in _folders(grounds, watch):
        if watch.over(folder):
            return
        found = list(_old(grounds, folder, now, watch))
        if found and (why := _ended(number, former, job)):
            for kind, path, size, used, seal in found:
                yield Find(kind, encoded(path), encoded(folder.parent), size, why, now - used, seal)


def _folders(grounds: Grounds, watch: Watch) -> list[tuple[Path, int, bool]]:
    if grounds.jobs is None:
        return []
    try:
        with os.scandir(grounds.jobs) as entries:
            named = [
                (grounds.jobs / e.name, _FOLDER.fullmatch(e.name))
                for e in entries
                if e.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
    except OSError as e:
        watch.cannot(grounds.jobs, e)
        return []
    return sorted(
        ((path, int(m[1]), bool(m[2])) for path, m in named if m), key=lambda found: found[1]
    )


def _old(
    grounds: Grounds, folder: Path, now: float, watch: Watch
) -> Iterator[tuple[Kind, Path, int, float, str]]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as e:
        watch.cannot(folder, e)
        return
    for path in inside:
        kind: Kind | None = (
            "log"
            if _LOG.fullmatch(path.name)
            else "artefacts"
            if path.name == "artefacts"
            else None
        )
        oldest = grounds.age_of(kind) if kind else None
        if kind is None or oldest is None:
            continue
        try:
            found = measured(path)
        except (Kept, OSError) as e:
            watch.cannot(path, e)
            continue
        if found.bytes and now - found.used >= oldest:
            yield kind, path, found.bytes, found.used, found.seal


def _ended(number: int, former: bool, job: Callable[[int], Job]) -> str:
    """Why what is in the job's folder may go; empty where it may not."""
    if former:
        return f"of a former job {number}; the queue has a newer one of that number"
    try:
        found = job(number)
    except NotFound:
        return f"of job {number}, which the queue does not know"
    return "" if found.active else f"of job {number} ({printable(found.spec.name)}), {found.status}"
