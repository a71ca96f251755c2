"""Find compiled kernels unused for a long time, and files of jobs that ended long ago."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpudeck.assistant.housekeeping.findings import (
    Finding,
    Kind,
    ScanMonitor,
    StaysError,
    encoded,
    is_in_trash,
)
from gpudeck.assistant.housekeeping.scope import Cache, Scope
from gpudeck.assistant.housekeeping.walk import measured
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.progress import printable


def find_caches(scope: Scope, monitor: ScanMonitor) -> Iterator[Finding]:
    """Yield one finding for each piece of a cache, such as one of Triton's kernels."""
    oldest, now = scope.age_of("cache"), time.time()
    if oldest is None:
        return
    for cache in scope.caches:
        for path in _pieces(cache, monitor):
            if monitor.must_stop(path):
                return
            try:
                found = measured(path)
            except FileNotFoundError:
                continue
            except (StaysError, OSError) as e:
                monitor.note_unreadable(path, e)
                continue
            if now - found.used >= oldest:
                reason = phrase(
                    "compiled for {program}; recompiled when needed", program=cache.program
                )
                yield Finding(
                    "cache",
                    encoded(path),
                    encoded(cache.root),
                    found.bytes,
                    reason,
                    now - found.used,
                    found.seal,
                )


def _pieces(cache: Cache, monitor: ScanMonitor) -> list[Path]:
    found = [cache.folder]
    for _ in range(cache.depth):
        found = [path for folder in found for path in _inside(folder, monitor)]
    return found


def _inside(folder: Path, monitor: ScanMonitor) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                folder / entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not is_in_trash(Path(entry.name))
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        monitor.note_unreadable(folder, e)
        return []


_FOLDER = re.compile(r"(\d{1,18})(\.old-\d+)?")
"""The folder of a job, or of an earlier job with its number, from a deleted store (see
`gpudeck.scheduler.attempts`).
"""
_LOG = re.compile(r"log(\.\d+)?")


def find_job_files(
    scope: Scope, monitor: ScanMonitor, job: Callable[[int], Job]
) -> Iterator[Finding]:
    """Yield old logs and artefacts. `job` returns a job by its number, or raises NotFound."""
    now = time.time()
    for folder, number, former in _folders(scope, monitor):
        if monitor.must_stop(folder):
            return
        found = list(_old(scope, folder, now, monitor))
        if found and (why := _why_removable(number, former, job)):
            for kind, path, size, used, seal in found:
                yield Finding(
                    kind, encoded(path), encoded(folder.parent), size, why, now - used, seal
                )


def _folders(scope: Scope, monitor: ScanMonitor) -> list[tuple[Path, int, bool]]:
    if scope.jobs is None:
        return []
    try:
        with os.scandir(scope.jobs) as entries:
            named = [
                (scope.jobs / e.name, _FOLDER.fullmatch(e.name))
                for e in entries
                if e.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
    except OSError as e:
        monitor.note_unreadable(scope.jobs, e)
        return []
    return sorted(
        ((path, int(m[1]), bool(m[2])) for path, m in named if m), key=lambda found: found[1]
    )


def _old(
    scope: Scope, folder: Path, now: float, monitor: ScanMonitor
) -> Iterator[tuple[Kind, Path, int, float, str]]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as e:
        monitor.note_unreadable(folder, e)
        return
    for path in inside:
        kind: Kind | None = (
            "log"
            if _LOG.fullmatch(path.name)
            else "artefacts"
            if path.name == "artefacts"
            else None
        )
        oldest = scope.age_of(kind) if kind else None
        if kind is None or oldest is None:
            continue
        try:
            found = measured(path)
        except (StaysError, OSError) as e:
            monitor.note_unreadable(path, e)
            continue
        if found.bytes and now - found.used >= oldest:
            yield kind, path, found.bytes, found.used, found.seal


def _why_removable(number: int, former: bool, job: Callable[[int], Job]) -> Text | None:
    """Return why the files of a job may go; None if they may not."""
    if former:
        return phrase("of a former job {job}; the queue has a newer one of that number", job=number)
    try:
        found = job(number)
    except NotFound:
        return phrase("of job {job}, which the queue does not know", job=number)
    if found.active:
        return None
    name, status = printable(found.spec.name), Text(found.status)
    return phrase("of job {job} ({name}), {status}", job=number, name=name, status=status)
