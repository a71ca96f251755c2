"""Answer what happened to jobs by the hand of somebody: cancellations, changes, suspensions."""

from __future__ import annotations

from gpudeck.assistant.facts.fact import QUEUE
from gpudeck.assistant.query.find import named_jobs
from gpudeck.assistant.query.jobs import title
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.query.rows import Column, Row, Rows
from gpudeck.assistant.query.shape import aggregated
from gpudeck.assistant.query.users import user_of
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Cancelled
from gpudeck.scheduler.protocol.search import FOREVER, Search
from gpudeck.scheduler.protocol.snapshot import Snapshot

_SEARCHED = 60
"""The newest jobs whose timelines are read where none is named."""
_BY_HAND = frozenset({"submitted", "ordered", "cancelled", "edited", "moved", "restored", "held",
                      "suspended", "resumed", "stop requested", "asked to end", "gives way",
                      "queued again"})  # fmt: skip


def events(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return what people and the queue did with jobs, the newest first. Raises NotFound."""
    span = query.time or Span(0.0, FOREVER)
    if query.jobs:
        found = list(named_jobs(daemon, query.jobs, several=True))
    else:
        search = Search(outcomes=query.states, group=query.group or None, since=span.since)
        found = list(daemon.find(search, _SEARCHED)[0])
    if query.user:
        names = query.user.casefold().split(",")
        found = [job for job in found if user_of(job).casefold() in names]
    wanted = frozenset(query.states) & _BY_HAND or _BY_HAND
    rows = [
        Row(f"job{job.id}", title(job), (event.time, phrase(event.what), event.text, user_of(job)))
        for job in found
        for event in daemon.timeline(job.id)
        if event.what in wanted and _is_in(event.time, span)
    ]
    for job in found:
        told = any(row.key == f"job{job.id}" and str(row.values[1]) == "cancelled" for row in rows)
        if isinstance(job.state, Cancelled) and not told and "cancelled" in wanted:
            what = (job.state.at, phrase("cancelled"), job.state.reason, user_of(job))
            rows += [Row(f"job{job.id}", title(job), what)] * _is_in(job.state.at, span)
    rows.sort(key=lambda row: -float(str(row.values[0])))
    columns = (Column("time", "moment"), Column("what"), Column("text"), Column("user"))
    return aggregated(query, Rows("events", columns, tuple(rows), QUEUE, snapshot.time, query.time))


def _is_in(at: float, span: Span) -> bool:
    return span.since <= at <= span.until
