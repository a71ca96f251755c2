"""Housekeeping: finds what may go, moves it to the trash once a person approved, and back. Free of torch and Qt; every call blocks.

    from assistant.housekeeping import ScanMonitor, move_to_trash, scan, undo
    from scheduler.client import Client

    with Client() as deck:
        finds = scan(deck, ScanMonitor(report=print))
        receipt = move_to_trash(deck, finds)  # after a person approved these very finds
    undo(receipt)

Nothing is deleted but by `empty`, and that only what `move_to_trash` took. Processes are only told of: `deck.kill(find.process)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from assistant.housekeeping.emptying import EmptyResult, empty
from assistant.housekeeping.findings import KINDS, TITLES, Finding, Kind, ScanMonitor, StaysError
from assistant.housekeeping.journal import Item, Receipt, Skipped, load, receipts
from assistant.housekeeping.moving import move
from assistant.housekeeping.restoring import UndoResult, undo
from assistant.housekeeping.scanning import find_debris
from assistant.housekeeping.scope import Scope, scope_from
from scheduler.client import Client
from scheduler.protocol import settings
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job
from scheduler.protocol.search import ACTIVE, NEWEST, Search

__all__ = [
    "KINDS", "TITLES", "EmptyResult", "Finding", "Item", "Kind", "Receipt", "ScanMonitor", "Skipped",
    "StaysError", "UndoResult",
    "empty", "load", "move_to_trash", "receipts", "scan", "undo",
]  # fmt: skip

_RECENT = 1000
"""Of so many of the newest jobs the working folders are looked into for core dumps."""


def scan(deck: Client, monitor: ScanMonitor | None = None) -> tuple[Finding, ...]:
    """What may go, the largest first; see `survey.survey`. Raises DaemonGone."""
    monitor = monitor or ScanMonitor()
    try:
        details = deck.details()
    except UserError as e:
        details = ()
        monitor.unseen.append(f"processes on GPUs: {e}")
    return find_debris(_grounds(deck), monitor, deck.job, details)


def move_to_trash(
    deck: Client, finds: Iterable[Finding], report: Callable[[int], None] = lambda done: None
) -> Receipt:
    """Move what a person approved; what has changed since, is open, or is needed by a job stays, and the receipt says why.

    `report` is called with how many have been dealt with, now and then.

    Raises UserError where another clean-up is under way, and DaemonGone: without the queue nobody knows what jobs need.
    """
    return move(_grounds(deck), finds, report)


def _grounds(deck: Client) -> Scope:
    recent, active, before = deck.jobs(_RECENT), list[Job](), NEWEST
    while before:
        found, on = deck.find(Search(outcomes=ACTIVE), _RECENT, before)
        active += [
            deck.job(job.id) if job.cut else job for job in found
        ]  # a list has the beginning of a long command only
        before = on or 0
    ran = dict.fromkeys(job.spec.cwd for job in recent if not job.spec.where)
    return scope_from(settings.load(), tuple(ran), tuple(active))
