"""Run a query against the snapshot, the history and the store: the one place that does."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gpudeck.assistant.query import events, others
from gpudeck.assistant.query.attention import attention
from gpudeck.assistant.query.capacity import capacity
from gpudeck.assistant.query.conversion import conversion, converted
from gpudeck.assistant.query.costs import with_cost
from gpudeck.assistant.query.devices import devices
from gpudeck.assistant.query.find import earlier_run, named_jobs
from gpudeck.assistant.query.groups import grouped
from gpudeck.assistant.query.jobs import jobs
from gpudeck.assistant.query.models import models
from gpudeck.assistant.query.readings import NEAR_S, recorded_since
from gpudeck.assistant.query.request import COST, PREVIOUS, Query
from gpudeck.assistant.query.rows import Column, Note, Row, Rows
from gpudeck.assistant.query.table import ROWS, check
from gpudeck.assistant.query.versions import versions
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Snapshot

FIRST_READING_S = 5.0
"""A daemon that has just started gets this long to read its devices."""

_RUN: dict[str, Callable[[Client, Query, Snapshot], Rows]] = {
    "devices": devices,
    "jobs": jobs,
    "processes": others.processes,
    "alerts": others.alerts,
    "queue": others.queue,
    "limits": others.limits,
    "events": events.events,
    "bookings": others.bookings,
    "machines": others.machines,
    "capacity": capacity,
    "settings": others.settings,
    "attention": lambda _, query, snapshot: attention(query, snapshot),
    "versions": lambda _, query, snapshot: versions(query, snapshot),
    "models": lambda _, query, snapshot: models(query, snapshot),
    "conversion": lambda daemon, query, snapshot: conversion(query, snapshot.time),
}


def execute(daemon: Client, query: Query) -> Rows:
    """Return the rows that a query asks for. Raises NotFound and UserError, in one line."""
    check(query)
    if query.subject not in ROWS:
        raise UserError(
            phrase("{subject} has no rows; ask for it: gpudeck ask", subject=query.subject)
        )
    snapshot = read_snapshot(daemon)
    if query.other is not None:
        found = _beside(daemon, query, query.other, snapshot)
    else:
        found = _since_when(daemon, query, _run(daemon, query, snapshot), snapshot)
        if query.to and query.subject == "devices":
            found = converted(found, query.to)
    return with_cost(query, found, snapshot) if COST in (query.text, query.to) else found


def _since_when(daemon: Client, query: Query, found: Rows, snapshot: Snapshot) -> Rows:
    """Return rows with a note of when readings begin, if the time that they are about begins
    before: the time of the query, or what is told where it names none."""
    empty = query.subject in ("jobs", "alerts") and not found.rows
    span = query.time or found.span
    if span is None or span.since <= 0 or not (empty or query.subject == "devices"):
        return found
    first = recorded_since(daemon, snapshot)
    if first is None or span.since > first - NEAR_S:
        return found
    return msgspec.structs.replace(found, notes=(*found.notes, Note("since", (first,))))


def read_snapshot(daemon: Client) -> Snapshot:
    """Return the state now, once the devices have been read."""
    end = time.monotonic() + FIRST_READING_S
    while (
        not ((snapshot := daemon.snapshot()).devices and all(s.reading for s in snapshot.devices))
        and time.monotonic() < end
    ):
        time.sleep(0.05)
    return snapshot


def _run(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    if not query.by or query.subject != "jobs":
        return _RUN[query.subject](daemon, query, snapshot)
    each = msgspec.structs.replace(query, aggregate="", limit=0, order="", extreme=False)
    return grouped(query, jobs(daemon, each, snapshot))


def _beside(daemon: Client, query: Query, other: Query, snapshot: Snapshot) -> Rows:
    """Return two rows, one for each side of a comparison, with the same columns."""
    if other.text == PREVIOUS:
        (job, *_) = named_jobs(daemon, query.jobs)
        earlier = earlier_run(daemon, job)
        numbers = (earlier.id,) if earlier is not None else ()
        other = msgspec.structs.replace(query, jobs=numbers or query.jobs, other=None)
        if not numbers:
            return _run(daemon, other, snapshot)  # the first of its name
    alone = [msgspec.structs.replace(side, other=None) for side in (query, other)]
    sides = [_since_when(daemon, side, _run(daemon, side, snapshot), snapshot) for side in alone]
    first, second = sides
    now = query.time is None and other.time is None
    notes = dict.fromkeys((*first.notes, *second.notes))
    rows: list[Row] = []
    for asked, side in zip((query, other), sides, strict=True):
        if not side.rows:
            continue
        row = side.rows[0]
        if len(side.rows) > 1 or (side.total is not None and side.span is not None):
            chosen = ", ".join(one.label for one in side.rows) if asked.devices else side.subject
            label = "the others" if asked.exclude else chosen
            row = msgspec.structs.replace(row, key=side.subject, label=label, values=(side.total,))
        rows.append(msgspec.structs.replace(row, span=side.span))
    columns = first.columns[: min(len(row.values) for row in rows)] if rows else ()
    columns = (Column("Jobs"),) if query.aggregate == "count" and rows else columns
    return msgspec.structs.replace(
        first,
        columns=columns,
        rows=tuple(rows),
        notes=tuple(one for one in notes if now or one.kind != "usual"),
        total=None,
        best="",
        left_out=0,
    )
