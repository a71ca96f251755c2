"""Finding files that are no longer needed, move them to the trash, and restore them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpudeck.app.cleanup.summary import age, count_findings, groups, items_and_size, skip_reason
from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import (
    UsageError,
    clear_progress,
    confirm,
    print_json,
    print_line,
    print_result,
    print_table,
    require_terminal,
    show_progress,
)
from gpudeck.app.format.values import memory
from gpudeck.assistant.housekeeping import (
    KINDS,
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
from gpudeck.assistant.housekeeping.findings import SCAN_S
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound

LAST = "last"
MAX_ROWS = 40
"""Files beyond these, the largest, are summed up."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the kinds of files to find, and the options to undo or complete a cleanup."""
    add = parser.add_argument
    add(
        "--kind",
        type=arguments.names_among(KINDS),
        default=(),
        metavar="KIND,...",
        help=f"any of {', '.join(KINDS)} (default: all)",
    )
    add(
        "--seconds",
        type=arguments.positive_seconds,
        default=SCAN_S,
        metavar="N",
        help=f"stop searching after N seconds (default: {SCAN_S:.0f})",
    )
    add("--yes", action="store_true", help="do not ask")
    add(
        "--undo",
        nargs="?",
        const=LAST,
        metavar="ID",
        help="restore what a cleanup moved to the trash (default: the last cleanup)",
    )
    add(
        "--empty",
        action="store_true",
        help="permanently delete what cleanups moved to the trash; nothing else in it",
    )
    add(
        "--older-than",
        type=arguments.duration,
        default=0.0,
        metavar="TIME",
        help="with --empty: delete only what was moved this long ago, without asking",
    )


def run(args: Namespace) -> int:
    """Clean up, undo a cleanup, or delete what cleanups moved to the trash."""
    if args.undo:
        return _undo(args)
    if args.empty:
        return _empty(args)
    monitor = ScanMonitor(lambda path: show_progress(f"searching {path}"), seconds=args.seconds)
    with Client() as client:
        finds = [find for find in scan(client, monitor) if not args.kind or find.kind in args.kind]
        clear_progress()
        _clean(client, args, finds, monitor)
    return 0


def _clean(client: Client, args: Namespace, finds: list[Finding], monitor: ScanMonitor) -> None:
    movable = [find for find in finds if find.kind != "process"]
    if not args.json:
        _print_finds(finds, monitor)
    elif not args.yes:
        print_json(
            {
                "finds": [_as_json(find) for find in finds],
                "unseen": list(map(str, monitor.unseen)),
                "stopped": str(monitor.stopped),
            }
        )
        return
    question = f"Move {count_findings(movable)}, to the trash?"
    if not movable or not _confirm(args, question, "Nothing was moved."):
        return
    total = len(movable)
    receipt = move_to_trash(
        client, movable, lambda done: show_progress(f"moving: {done} of {total}")
    )
    clear_progress()
    summary = f"Moved {items_and_size(len(receipt.items), receipt.bytes)}, to the trash."
    if receipt.items:
        summary += " To restore: gpudeck clean --undo; to free the space: gpudeck clean --empty"
    print_result(
        args,
        {
            "id": receipt.id,
            "moved": [_as_json(item.find) for item in receipt.items],
            "bytes": receipt.bytes,
            "left": _reasons(receipt.left),
        },
        *(f"not moved: {skip_reason(left)}" for left in receipt.left),
        summary,
    )


def _undo(args: Namespace) -> int:
    undone_id = args.undo
    if undone_id == LAST:
        undone_id = next(iter(receipts()), None)
        if undone_id is None:
            raise NotFound(phrase("the trash holds nothing from a cleanup"))
    undone = undo(undone_id)
    print_result(
        args,
        {
            "id": undone.id,
            "restored": [_as_json(find) for find in undone.restored],
            "left": _reasons(undone.left),
        },
        *(f"still in the trash: {skip_reason(left)}" for left in undone.left),
        f"Restored {count_findings(undone.restored)}.",
    )
    return 1 if undone.left else 0


def _empty(args: Namespace) -> int:
    finds = [item.find for receipt in receipts() for item in receipt.items]
    question = f"Permanently delete {count_findings(finds)}, that cleanups moved to the trash?"
    if not finds and not args.json:
        print_line("The trash holds nothing from a cleanup.")
        return 0
    ask = finds and not args.older_than
    if ask and not _confirm(args, question, "Nothing was deleted."):
        return 0
    emptied = empty(args.older_than)
    print_result(
        args,
        {"items": emptied.items, "bytes": emptied.bytes, "left": _reasons(emptied.left)},
        *(f"still in the trash: {skip_reason(left)}" for left in emptied.left),
        f"Deleted {items_and_size(emptied.items, emptied.bytes)}.",
    )
    return 1 if emptied.left else 0


def _confirm(args: Namespace, question: str, declined: str) -> bool:
    """Return True if the user agrees, at the terminal or with --yes."""
    if args.yes:
        return True
    if args.json:
        raise UsageError("--json does not ask for confirmation. If you are sure, add --yes")
    require_terminal(declined)
    agreed = confirm(question)
    if not agreed:
        print_line(declined)
    return agreed


def _print_finds(finds: Sequence[Finding], monitor: ScanMonitor) -> None:
    if finds:
        rows = [
            (TITLES[find.kind], memory(find.bytes), age(find.age), find.shown, str(find.reason))
            for find in finds[:MAX_ROWS]
        ]
        print_table([("KIND", "SIZE", "AGE", "WHERE", "WHY"), *rows], right=(1, 2))
        for group in groups(finds[MAX_ROWS:]):
            print_line(f"smaller, not listed: {group.title}: {memory(group.bytes)}")
        print_line()
        for group in groups(finds):
            print_line(f"{group.title}: {memory(group.bytes)}")
        for find in finds:
            if find.process is not None:
                pid = find.process.pid
                print_line(f"to end process {pid}: gpudeck kill {pid}")
    else:
        print_line("There is nothing to clean up.")
    for place in monitor.unseen:
        print_line(f"not searched: {place}")
    if monitor.stopped:
        print_line(f"there may be more: {monitor.stopped}")


def _reasons(left: Iterable[Skipped]) -> list[dict[str, str]]:
    return [{"path": each.find.shown, "why": str(each.why)} for each in left]


def _as_json(find: Finding) -> dict[str, Any]:
    """Return a find for programs.

    `place` is the path in percent-encoding, as a path may hold any bytes; `path` is for people.
    """
    fields = msgspec.to_builtins(msgspec.structs.replace(find, seal="", twin_seal=""))
    return {"path": find.shown, **fields}
