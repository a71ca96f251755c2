"""What can be cleaned up: told with sizes and reasons, and proposed to be moved to the trash; and the way back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from assistant.facts import Fact, phrases
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.housekeeping import (
    TITLES,
    Finding,
    Kind,
    ScanMonitor,
    Skipped,
    move_to_trash,
    receipts,
    scan,
    undo,
)
from assistant.intents.tool_call import ToolCall
from assistant.tools.plan import Environment, PlannedAction
from assistant.tools.tool import ToolResult
from assistant.writing.template.sentences import counted, listed, sentence, table
from scheduler.client import Client
from scheduler.protocol.errors import NotFound

TOLD = 12
"""Finds told one by one, the largest."""
_KINDS: dict[str, tuple[Kind, ...]] = {
    "caches": ("cache",),
    "logs": ("log",),
    "dumps": ("core",),
    "processes": ("process",),
    "models": ("duplicate",),
    "memory": ("memory",),
    "results": ("artefacts",),
}
_NAMED = 3


class Found(NamedTuple):
    told: ToolResult
    plan: PlannedAction | None
    """The move to the trash; None where there is nothing to move."""


def look(daemon: Client, call: ToolCall, watch: ScanMonitor) -> Found:
    """What may go, of the kind that is asked about or of all. Nothing is moved."""
    wanted = _KINDS.get(call.text("what"), ())
    finds = [find for find in scan(daemon, watch) if not wanted or find.kind in wanted]
    movable = [find for find in finds if find.kind != "process"]
    return Found(_told(finds, watch), _moved(movable) if movable else None)


def put_back(daemon: Client, call: ToolCall, folder: str) -> PlannedAction:
    """Take the last clean-up back. Raises NotFound."""
    newest = next(iter(receipts()), None)
    if newest is None:
        raise NotFound("nothing of a clean-up is in the trash")
    receipt = newest

    def act(daemon: Client, env: Environment) -> str:
        undone = undo(receipt)
        return f"{counted(len(undone.restored), 'thing')} back in place.{_left(undone.left)}"

    size = phrases.quantity(receipt.bytes, "B")
    when = phrases.moment(receipt.time, time.time())
    moved = f"{counted(len(receipt.items), 'thing')} ({size}), moved to the trash {when}"
    effect = f"{moved}, would be put back in place, over nothing that is there now."
    return PlannedAction(
        "Take the last clean-up back",
        effect,
        receipt.id,
        act,
        (("Command", f"gpudeck clean --undo {receipt.id}"),),
    )


def _moved(finds: Sequence[Finding]) -> PlannedAction:
    """Each find is looked at again as it is moved: what has changed since, is open or is needed stays."""

    def act(daemon: Client, env: Environment) -> str:
        receipt = move_to_trash(daemon, finds)
        size = phrases.quantity(receipt.bytes, "B")
        moved = f"{counted(len(receipt.items), 'thing')} ({size}) moved to the trash."
        return f"{moved}{_left(receipt.left)} To take that back, say: undo the clean-up."

    size = phrases.quantity(sum(find.bytes for find in finds), "B")
    effect = (
        f"{counted(len(finds), 'thing')} ({size}) would be moved to the trash, from where all can be put back; the space is free once the "
        "trash is emptied. What has changed until then, is open, or is needed by a job stays."
    )
    details = [
        (TITLES[find.kind], f"{find.shown}, {phrases.quantity(find.bytes, 'B')}: {find.reason}")
        for find in finds[:TOLD]
    ]
    more = (
        [("And", f"{len(finds) - TOLD} smaller ones; all of them: gpudeck clean")]
        if len(finds) > TOLD
        else []
    )
    shown = tuple((caption, phrases.plain(words, 400)) for caption, words in (*details, *more))
    return PlannedAction(
        f"Move {counted(len(finds), 'thing')} to the trash", effect, None, act, shown, sealed=True
    )


def _told(finds: Sequence[Finding], watch: ScanMonitor) -> ToolResult:
    now = time.time()
    facts: list[Fact] = []
    for i, find in enumerate(finds[:TOLD]):
        add = FactBuilder(
            f"find{i}",
            "Find",
            "the file system" if find.place else "the daemon's list of processes",
            now,
        )
        add.text("where", "where", find.shown)
        add.number("size", "size", find.bytes, "B", "not known")
        add.value("age", "unused for", find.age, "s", phrases.duration(find.age))
        add.text("reason", "reason", find.reason)
        facts += add.facts
    add = FactBuilder("finds", "Finds", "the file system", now)
    add.value("count", "in all", len(finds), "", counted(len(finds), "thing"))
    add.number("size", "size of all", sum(find.bytes for find in finds), "B", "not known")
    for i, line in enumerate(watch.unseen):
        add.text(f"unseen{i}", "not looked at", line)
    if watch.stopped:
        add.text("stopped", "the search ended early", watch.stopped)

    def say(index: FactIndex) -> list[str]:
        rows = [
            (
                TITLES[find.kind],
                *(
                    index.text(f"find{i}.{what}") or "N/A"
                    for what in ("size", "age", "where", "reason")
                ),
            )
            for i, find in enumerate(finds[:TOLD])
        ]
        fact = index.of("finds")
        opening = (
            sentence(fact("count") or "N/A", " may go: ", fact("size") or "N/A", " in all")
            if finds
            else "There is nothing to clean up."
        )
        ending = (
            sentence("not looked at: ", listed(index.texts("finds.unseen"))) if watch.unseen else ""
        )
        return [
            opening,
            table(("Kind", "Size", "Unused for", "Where", "Why"), rows),
            ending,
            sentence(fact("stopped") or ""),
        ]

    return ToolResult((*facts, *add.facts), say, quotes=True)


def _left(left: Sequence[Skipped]) -> str:
    """Why some stayed where they were."""
    if not left:
        return ""
    more = f", and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return (
        f" {counted(len(left), 'thing')} stayed: "
        + "; ".join(f"{one.find.shown}: {one.why}" for one in left[:_NAMED])
        + more
        + "."
    )
