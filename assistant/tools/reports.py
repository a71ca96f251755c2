"""Tools that gather the material of a report: on a job, on a day, or on a span of time."""

from __future__ import annotations

import time

from assistant.intents.period import Period, period
from assistant.intents.tool_call import ToolCall
from assistant.reports.material import Material, of_job, of_span
from assistant.tools.lookup import find_job
from assistant.tools.tool import ToolContext, Tools

RECENT_S = 600.0
"""The span of a brief if the request names no time: as long as the daemon keeps every reading."""
_DAY_S = 86400.0


def report_on_job(context: ToolContext, call: ToolCall) -> Material:
    """Gather the material on one job, the newest if the call names none."""
    return of_job(context.daemon, find_job(context.daemon, call.job() or "last").id)


def report_on_day(context: ToolContext, call: ToolCall) -> Material:
    """Gather the material on a day, the last 24 hours if the call names none."""
    now = time.time()
    span = period(call, now) or Period(now - _DAY_S, now)
    return of_span(context.daemon, span.since, "daily", span.until)


def brief(context: ToolContext, call: ToolCall) -> Material:
    """Gather the material on a span of time."""
    now = time.time()
    span = period(call, now) or Period(now - RECENT_S, now)
    return of_span(context.daemon, span.since, until=span.until)


TOOLS: Tools = {
    ("report", "job"): report_on_job,
    ("report", "daily"): report_on_day,
    ("report", "brief"): brief,
}
