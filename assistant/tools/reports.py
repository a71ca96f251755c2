"""Gather the material of a report: on a job, on a day, or on a span of time."""

from __future__ import annotations

import time

from gpudeck.assistant.query.find import named_jobs
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.reports.material import Material, of_job, of_span
from gpudeck.assistant.tools.tool import ToolContext

RECENT_S = 600.0
"""The span of a brief if the request names no time: as long as the daemon keeps every reading."""
_DAY_S = 86400.0


def report_span(query: Query) -> tuple[float, float]:
    """Return the time that a report is about: a day if the request names none."""
    now = time.time()
    return (query.time.since, query.time.until) if query.time else (now - _DAY_S, now)


def report(context: ToolContext, query: Query) -> Material:
    """Gather the material on a job, or on everything in a span of time."""
    if query.jobs:
        (job, *_) = named_jobs(context.daemon, query.jobs)
        return of_job(context.daemon, job.id)
    since, until = report_span(query)
    kind = "daily" if _DAY_S * 0.9 <= until - since <= _DAY_S * 1.1 else "span"
    return of_span(context.daemon, since, "daily" if kind == "daily" else "span", until)
