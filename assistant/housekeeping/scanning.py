"""Run all finders one after another, quick ones first, because time is limited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gpudeck.assistant.housekeeping.duplicates import find_duplicates
from gpudeck.assistant.housekeeping.findings import Finding, ScanMonitor, within
from gpudeck.assistant.housekeeping.in_use import Needs
from gpudeck.assistant.housekeeping.leftovers import (
    find_core_dumps,
    find_processes,
    find_shared_memory,
)
from gpudeck.assistant.housekeeping.scope import Scope
from gpudeck.assistant.housekeeping.stale import find_caches, find_job_files
from gpudeck.assistant.housekeeping.walk import Candidate, directly_in, walk_files
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.jobs import Job


def find_debris(
    scope: Scope, monitor: ScanMonitor, job: Callable[[int], Job], details: Iterable[Detail] = ()
) -> tuple[Finding, ...]:
    """Return everything that may go, largest first, without what a waiting or running job may need.

    Nothing is changed. `monitor` collects what could not be read and whether time ran out.

    Args:
        scope: Where to search, and for what.
        monitor: Stops the scan.
        job: Returns a job by its number, or raises NotFound.
        details: The details of the devices, with their processes.
    """
    needs = Needs(scope)
    found = [
        find for find in _all(scope, monitor, job, details) if not (find.place and needs.of(find))
    ]
    inner = _nested(found)
    return tuple(
        sorted(
            (f for f in found if f.place not in inner or not f.place),
            key=lambda f: (-f.bytes, f.place),
        )
    )


def _all(
    scope: Scope, monitor: ScanMonitor, job: Callable[[int], Job], details: Iterable[Detail]
) -> Iterator[Finding]:
    yield from find_processes(scope, details, job)
    yield from find_shared_memory(scope, monitor)
    yield from find_job_files(scope, monitor, job)
    yield from find_caches(scope, monitor)
    files = list(_files(scope, monitor))
    yield from find_core_dumps(scope, files, monitor)
    yield from find_duplicates(scope, files, monitor)


def _files(scope: Scope, monitor: ScanMonitor) -> Iterator[Candidate]:
    for folder in scope.ran:
        if not any(folder == named or within(folder, named) for named in scope.folders):
            yield from directly_in(folder, monitor)
    for folder in scope.folders:
        yield from walk_files(folder, scope.state, monitor)
    library = scope.library
    if (
        scope.folders
        and library
        and library.is_dir()
        and not any(within(library, folder) for folder in scope.folders)
    ):
        yield from walk_files(library, None, monitor)


def _nested(finds: Iterable[Finding]) -> frozenset[str]:
    """Return the places that lie in others of these findings: they go with them."""
    paths = {find.path: find.place for find in finds if find.place}
    return frozenset(
        place for path, place in paths.items() if not paths.keys().isdisjoint(path.parents)
    )
