"""clean: what may go, to the trash after asking, and back."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from app.cleanup.summary import age, counted, groups, stays, told
from app.cli.output import say, say_json, status_line, table
from app.cli.usage import UsageError
from app.format.values import memory
from assistant.housekeeping import (
    TITLES,
    Finding,
    ScanMonitor,
    Skipped,
    empty,
    move_to_trash,
    receipts,
    scan,
    undo,
)
from scheduler.client import Client
from scheduler.protocol.errors import NotFound
from scheduler.protocol.progress import printable

LAST = "last"
_SHOWN = 40
"""Rows of the table; the rest is summed up."""


def clean(args: Namespace) -> int:
    """Look for debris and move it to the trash, or undo that, or empty the trash."""
    if args.undo:
        return _undo(args)
    if args.empty:
        return _empty(args)
    watch = ScanMonitor(lambda path: status_line(f"looking at {path}"), seconds=args.seconds)
    with Client() as deck:
        finds = [find for find in scan(deck, watch) if not args.kind or find.kind in args.kind]
        status_line("")
        movable = [find for find in finds if find.kind != "process"]
        if args.json and not args.yes:
            say_json(
                {
                    "finds": [_told(find) for find in finds],
                    "unseen": watch.unseen,
                    "stopped": watch.stopped,
                }
            )
            return 0
        if not args.json:
            _show(finds, watch)
        if not movable or not _agreed(
            args, f"Move {counted(movable)}, to the trash?", "nothing was moved"
        ):
            return 0
        receipt = move_to_trash(
            deck, movable, lambda done: status_line(f"moving: {done} of {len(movable)}")
        )
        status_line("")
    if args.json:
        moved = [_told(item.find) for item in receipt.items]
        say_json(
            {
                "id": receipt.id,
                "moved": moved,
                "bytes": receipt.bytes,
                "left": _reasons(receipt.left),
            }
        )
        return 0
    _explain("stays", receipt.left)
    say(f"{told(len(receipt.items), receipt.bytes)}, in the trash now")
    if receipt.items:
        say("back again: gpudeck clean --undo; to free the space: gpudeck clean --empty")
    return 0


def _undo(args: Namespace) -> int:
    if args.undo == LAST:
        newest = next(iter(receipts()), None)
        if newest is None:
            raise NotFound("nothing of a clean-up is in the trash")
        undone = undo(newest)
    else:
        undone = undo(args.undo)
    if args.json:
        say_json(
            {
                "id": undone.id,
                "restored": [_told(find) for find in undone.restored],
                "left": _reasons(undone.left),
            }
        )
    else:
        _explain("is still in the trash", undone.left)
        say(f"{counted(undone.restored)}: back in place")
    return 1 if undone.left else 0


def _empty(args: Namespace) -> int:
    items = [item for receipt in receipts() for item in receipt.items]
    question = f"Delete for good what clean-ups moved to the trash ({counted([item.find for item in items])})?"
    if items and not args.older_than and not _agreed(args, question, "nothing was deleted"):
        return 0
    if not items and not args.json:
        say("nothing of a clean-up is in the trash")
        return 0
    emptied = empty(args.older_than)
    if args.json:
        say_json({"items": emptied.items, "bytes": emptied.bytes, "left": _reasons(emptied.left)})
    else:
        _explain("is still in the trash", emptied.left)
        say(f"{told(emptied.items, emptied.bytes)}: deleted")
    return 1 if emptied.left else 0


def _agreed(args: Namespace, question: str, otherwise: str) -> bool:
    """Whether a person said yes, now or with --yes."""
    if args.yes:
        return True
    if args.json:
        raise UsageError("with --json nobody is asked; if you are sure: --yes")
    if not sys.stdin.isatty():
        say(f"{otherwise}, as there is nobody to ask; if you are sure: --yes")
        return False
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say(otherwise)
    return False


def _show(finds: Sequence[Finding], watch: ScanMonitor) -> None:
    if finds:
        largest, rest = finds[:_SHOWN], finds[_SHOWN:]
        rows = [
            (TITLES[find.kind], memory(find.bytes), age(find.age), find.shown, find.reason)
            for find in largest
        ]
        table([("KIND", "SIZE", "AGE", "WHERE", "WHY"), *rows], (1, 2))
        for group in groups(rest):
            say(f"and {group.title}, smaller ones: {memory(group.bytes)}")
        say()
        for group in groups(finds):
            say(f"{group.title}: {memory(group.bytes)}")
        for find in finds:
            if find.process is not None:
                say(f"to end process {find.process.pid}: gpudeck kill {find.process.pid}")
    else:
        say("nothing to clean up")
    for line in watch.unseen:
        say(f"not looked at: {line}")
    if watch.stopped:
        say(f"there may be more: {watch.stopped}")


def _explain(what: str, left: Iterable[Skipped]) -> None:
    for each in left:
        say(f"{what}: {stays(each)}")


def _reasons(left: Iterable[Skipped]) -> list[dict[str, str]]:
    return [{"path": each.find.shown, "why": each.why} for each in left]


def _told(find: Finding) -> dict[str, Any]:
    """As JSON for programs: `place` is the path in percent-encoding, as it may hold any bytes; `path` is for people."""
    return {
        "path": find.shown,
        **msgspec.to_builtins(msgspec.structs.replace(find, seal="", twin_seal="")),
    }
