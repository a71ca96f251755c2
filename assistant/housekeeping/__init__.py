"""Find files that are no longer needed, move them to the trash, and restore them.

Nothing is moved without a person's approval. This package needs neither torch nor Qt. Every call
blocks:

    from gpudeck.assistant.housekeeping import ScanMonitor, move_to_trash, scan, undo
    from gpudeck.scheduler.client import Client

    with Client() as deck:
        findings = scan(deck, ScanMonitor(report=print))
        receipt = move_to_trash(deck, findings)  # after a person has approved these findings
        undo(receipt)

Only `empty` deletes, and it deletes only what `move_to_trash` took. Processes are only reported:
`deck.kill(finding.process)` ends one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gpudeck.assistant.housekeeping.duplicates import find_duplicates
from gpudeck.assistant.housekeeping.emptying import EmptyResult, empty
from gpudeck.assistant.housekeeping.findings import (
    KINDS,
    TITLES,
    Finding,
    Kind,
    ScanMonitor,
    StaysError,
    within,
)
from gpudeck.assistant.housekeeping.in_use import Needs
from gpudeck.assistant.housekeeping.journal import Receipt, Skipped, TrashItem, load, receipts
from gpudeck.assistant.housekeeping.leftovers import (
    find_core_dumps,
    find_processes,
    find_shared_memory,
)
from gpudeck.assistant.housekeeping.moving import move
from gpudeck.assistant.housekeeping.restoring import UndoResult, undo
from gpudeck.assistant.housekeeping.scope import Scope, scope_from
from gpudeck.assistant.housekeeping.stale import find_caches, find_job_files
from gpudeck.assistant.housekeeping.walk import Candidate, directly_in, walk_files
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.search import ACTIVE, NEWEST, Search

__all__ = [
    "KINDS",
    "TITLES",
    "EmptyResult",
    "Finding",
    "Kind",
    "Receipt",
    "ScanMonitor",
    "Skipped",
    "StaysError",
    "TrashItem",
    "UndoResult",
    "empty",
    "load",
    "move_to_trash",
    "receipts",
    "scan",
    "undo",
]

_RECENT = 1000
"""Core dumps are searched for in the working folders of this many of the newest jobs."""


def scan(deck: Client, monitor: ScanMonitor | None = None) -> tuple[Finding, ...]:
    """Return everything that can be removed, largest first; see `find_debris`.

    Raises:
        DaemonGone: The daemon does not answer.
    """
    monitor = monitor or ScanMonitor()
    try:
        details = deck.details()
    except UserError as e:
        details = ()
        monitor.unseen.append(phrase("processes on GPUs: {problem}", problem=e.message))
    return find_debris(_read_scope(deck), monitor, deck.job, details)


def move_to_trash(
    deck: Client, finds: Iterable[Finding], report: Callable[[int], None] = lambda done: None
) -> Receipt:
    """Move the findings that a person has approved to the trash.

    A file that has changed since the scan, is open, or is needed by a job stays where it is, and
    the receipt gives the reason.

    Args:
        deck: A client of the daemon: only the queue knows what jobs need.
        finds: The approved findings.
        report: Called now and then with the number of findings handled so far.

    Raises:
        UserError: Another clean-up is running.
        DaemonGone: The daemon does not answer.
    """
    return move(_read_scope(deck), finds, report)


def _read_scope(deck: Client) -> Scope:
    recent, active, before = deck.jobs(_RECENT), list[Job](), NEWEST
    while before:
        found, on = deck.find(Search(outcomes=ACTIVE), _RECENT, before)
        # A list of jobs holds only the beginning of a long command.
        active += [deck.job(job.id) if job.cut else job for job in found]
        before = on or 0
    ran = dict.fromkeys(job.spec.cwd for job in recent if not job.spec.where)
    return scope_from(settings.load(), tuple(ran), tuple(active))


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
