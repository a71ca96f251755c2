"""Tools for cleaning up: find what can go and propose the trash for it, or undo a clean-up."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence

from gpudeck.assistant.facts import Fact, phrases
from gpudeck.assistant.facts.fact import FactBuilder
from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.housekeeping import (
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
from gpudeck.assistant.query.request import Order, Query
from gpudeck.assistant.tools.buttons import Buttons
from gpudeck.assistant.tools.tool import (
    Environment,
    PlannedAction,
    Planner,
    ToolContext,
    ToolResult,
)
from gpudeck.assistant.writing.template.sentences import counted, listed, sentence, table
from gpudeck.language.numbers import duration
from gpudeck.language.text import phrase, phrase_count
from gpudeck.language.words import Words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import NotFound

_MAX_SHOWN = 12
"""Findings shown one by one, the largest first."""
_MAX_SKIPPED = 3
_KINDS: dict[str, Kind] = {
    "caches": "cache",
    "logs": "log",
    "dumps": "core",
    "processes": "process",
    "models": "duplicate",
    "memory": "memory",
    "results": "artefacts",
}


def find_debris(context: ToolContext, query: Query) -> ToolResult:
    """List what can go, of one kind or of all, and plan the move to the trash."""
    words = context.words
    monitor = ScanMonitor(context.progress, context.cancelled)
    kind = _KINDS.get(query.text)
    found = [finding for finding in scan(context.daemon, monitor) if kind in (None, finding.kind)]
    movable = [finding for finding in found if finding.kind != "process"]

    def row(index: FactIndex, number: int, finding: Finding) -> list[str]:
        columns = ("size", "age", "where", "reason")
        values = [index.text(f"find{number}.{column}") or "N/A" for column in columns]
        return [words.text(TITLES[finding.kind]), *values]

    def render(index: FactIndex) -> list[str]:
        rows = [row(index, i, finding) for i, finding in enumerate(found[:_MAX_SHOWN])]
        total = index.of("finds")
        opening = words.text("There is nothing to clean up.")
        if found:
            opening = words.count(
                "{n} item can go, {size} in all.", "{n} items can go, {size} in all.", len(found),
                size=total("size") or "N/A",
            )  # fmt: skip
        unread = index.texts("finds.unseen")
        home = phrases.escaped(str(paths.home()))
        free = words.text("{free} of {size} are free on the disk that has {home}.",
                          free=total("free"), size=total("disk"), home=home)  # fmt: skip
        return [
            f"{opening} {free}" if found else f"{free} {opening}",
            table(words.captions("Kind", "Size", "Unused for", "Where", "Why"), rows),
            words.text("Not searched: {places}.", places=listed(unread)) if unread else "",
            sentence(total("stopped") or ""),
        ]

    facts = _facts(found, monitor)
    return ToolResult(facts, render, _plan(movable, words) if movable else None)


def undo_clean_up(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to put the files of the last clean-up back. Raises NotFound."""
    newest, words = receipts(), context.words
    if not newest:
        raise NotFound(phrase("there is no clean-up to undo: the trash holds no files from one"))
    receipt = newest[0]

    def carry_out(daemon: Client, env: Environment) -> str:
        undone = undo(receipt)
        put = words.count("{n} item put back.", "{n} items put back.", len(undone.restored))
        return put + _skipped(undone.left, words)

    return PlannedAction(
        words.text("Undo the last clean-up"),
        words.count(
            "{n} item ({size}), moved to the trash {when}, will be put back. Nothing is "
            "overwritten.",
            "{n} items ({size}), moved to the trash {when}, will be put back. Nothing is "
            "overwritten.",
            len(receipt.items), size=phrases.quantity(receipt.bytes, "B"),
            when=words.moment(receipt.time, time.time()),
        ),
        receipt.id,
        carry_out,
        ((words.text("Command"), f"gpudeck clean --undo {receipt.id}"),),
        buttons=Buttons(
            phrase_count("Put {n} item back", "Put {n} items back", len(receipt.items)),
            phrase_count(
                "Leave {n} item in the trash", "Leave {n} items in the trash", len(receipt.items)
            ),
        ),
    )  # fmt: skip


def _plan(found: Sequence[Finding], words: Words) -> PlannedAction:
    """Plan to move findings to the trash; each is checked again when it is moved."""

    def carry_out(daemon: Client, env: Environment) -> str:
        receipt = move_to_trash(daemon, found)
        moved = words.count(
            "{n} item ({size}) moved to the trash.", "{n} items ({size}) moved to the trash.",
            len(receipt.items), size=phrases.quantity(receipt.bytes, "B"),
        )  # fmt: skip
        back = words.text("To put them back, say: {said}.", said=words.text("undo the clean-up"))
        return f"{moved}{_skipped(receipt.left, words)} {back}"

    size = phrases.quantity(sum(finding.bytes for finding in found), "B")
    effect = words.count(
        "{n} item ({size}) will be moved to the trash.",
        "{n} items ({size}) will be moved to the trash.", len(found), size=size,
    )  # fmt: skip
    effect += " " + words.text(
        "Everything can be put back from there. The space is free after the trash is emptied. What "
        "has changed, is open, or is needed by a job stays."
    )
    details = [
        (
            words.text(TITLES[finding.kind]),
            f"{finding.shown}, {phrases.quantity(finding.bytes, 'B')}: {finding.reason}",
        )
        for finding in found[:_MAX_SHOWN]
    ]
    if len(found) > _MAX_SHOWN:
        smaller = words.text(
            "{n} smaller ones; to list all of them: {command}", n=len(found) - _MAX_SHOWN,
            command="gpudeck clean",
        )  # fmt: skip
        details.append((words.text("And"), smaller))
    return PlannedAction(
        words.count("Move {n} item to the trash", "Move {n} items to the trash", len(found)),
        effect,
        None,
        carry_out,
        tuple((caption, phrases.plain(text, 400)) for caption, text in details),
        sealed=True,
        buttons=_buttons(len(found)),
    )


def _buttons(n: int) -> Buttons:
    return Buttons(
        phrase_count("Move {n} item to the trash", "Move {n} items to the trash", n),
        phrase_count("Keep {n} item", "Keep {n} items", n),
    )


def _facts(found: Sequence[Finding], monitor: ScanMonitor) -> tuple[Fact, ...]:
    now = time.time()
    facts: list[Fact] = []
    for i, finding in enumerate(found[:_MAX_SHOWN]):
        source = "the file system" if finding.place else "the daemon's list of processes"
        add = FactBuilder(f"find{i}", "Find", source, now)
        add.text("where", "where", finding.shown)
        add.number("size", "size", finding.bytes, "B", phrase("not known"))
        add.value("age", "unused for", finding.age, "s", duration(finding.age))
        add.text("reason", "reason", finding.reason)
        facts += add.facts
    add = FactBuilder("finds", "Finds", "the file system", now)
    add.value("count", "in all", len(found), "", counted(len(found), "item"))
    add.number("size", "size of all", sum(f.bytes for f in found), "B", phrase("not known"))
    disk = shutil.disk_usage(paths.home())
    add.number("free", "free on the disk", disk.free, "B", phrase("not known"))
    add.number("disk", "size of the disk", disk.total, "B", phrase("not known"))
    for i, line in enumerate(monitor.unseen):
        add.text(f"unseen{i}", "not searched", line)
    if monitor.stopped:
        add.text("stopped", "the search ended early", monitor.stopped)
    return (*facts, *add.facts)


def _skipped(skipped: Sequence[Skipped], words: Words) -> str:
    """Return a sentence that says which items stayed, and why."""
    if not skipped:
        return ""
    shown = "; ".join(f"{item.find.shown}: {item.why}" for item in skipped[:_MAX_SKIPPED])
    more = "; …" if len(skipped) > _MAX_SKIPPED else ""
    stayed = words.count("{n} item stayed: {items}.", "{n} items stayed: {items}.", len(skipped),
                         items=shown + more)  # fmt: skip
    return f" {stayed}"


PLANNERS: dict[str, Planner] = {"undo": undo_clean_up}
