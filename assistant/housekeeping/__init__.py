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

from collections.abc import Callable, Iterable

from gpudeck.assistant.housekeeping.emptying import EmptyResult, empty
from gpudeck.assistant.housekeeping.findings import (
    KINDS,
    TITLES,
    Finding,
    Kind,
    ScanMonitor,
    StaysError,
)
from gpudeck.assistant.housekeeping.journal import Receipt, Skipped, TrashItem, load, receipts
from gpudeck.assistant.housekeeping.moving import move
from gpudeck.assistant.housekeeping.restoring import UndoResult, undo
from gpudeck.assistant.housekeeping.scanning import find_debris
from gpudeck.assistant.housekeeping.scope import Scope, scope_from
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
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
    """Return everything that can be removed, largest first; see `scanning.find_debris`.

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
