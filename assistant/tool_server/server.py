"""Serve the table of queries over stdin and stdout. It reads only: an order becomes a card.

The package `mcp` is optional, so that this module is imported by `gpudeck mcp` alone.
"""

from __future__ import annotations

import shlex
import time
from typing import Any

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from gpudeck.assistant.client import Assistant
from gpudeck.assistant.query.execute import execute
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.query.table import AGGREGATES, ROWS, SUBJECTS
from gpudeck.language.numbers import GIB
from gpudeck.language.rendering import in_english
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.progress import printable

_ABOUT = (
    "GPU Deck watches the GPUs of this machine and queues jobs on them. These tools only read. "
    "What would change anything is never carried out here: a person is shown a card for it in "
    "their terminal or window, and approves or refuses it there."
)

MOST_HOURS = 10 * 366 * 24.0
"""Ten years; readings are kept for a month, jobs for longer."""
MOST_GIB = 2.0**20


def _listed() -> str:
    """Return the subjects with their measures, for the description of the tool."""
    lines = (
        f"{name} ({SUBJECTS[name].about}): {', '.join(SUBJECTS[name].measures) or 'no measures'}"
        for name in ROWS
        if name != "conversion"
    )
    return "Subjects and their measures:\n" + "\n".join(lines)


def server() -> MCPServer:
    """Return the server with its tools."""
    found = MCPServer("gpudeck", instructions=_ABOUT)
    found.tool(name="query", description=f"Return rows about GPUs or jobs. {_listed()}")(query)
    found.tool(name="ask", description="Answer a question in English, German, French or Spanish. "
               "An order is not carried out: its card is returned.")(ask)  # fmt: skip
    return found


def query(
    subject: str,
    measure: str = "",
    gpus: list[int] | None = None,
    jobs: list[int] | None = None,
    states: list[str] | None = None,
    group: str = "",
    last_hours: float = 0.0,
    aggregate: str = "",
    limit: int = 0,
    job_gpus: int = 0,
    job_memory_gib: float = 0.0,
) -> dict[str, Any]:
    """Return the rows of a query with their units and source.

    Args:
        subject: One of the table's subjects.
        measure: A measure of the subject; empty: its headline measures.
        gpus: Indices of GPUs; none: all.
        jobs: Numbers of jobs; none: all.
        states: States of jobs, or idle or busy for devices.
        group: The group of jobs.
        last_hours: The time up to now; 0: only now.
        aggregate: One of sum, mean, max, min, count, first and last; empty: every row.
        limit: The most rows; 0: all.
        job_gpus: For capacity: how many GPUs the job would need.
        job_memory_gib: For capacity: GiB on each GPU.
    """
    now = time.time()
    if not 0 <= last_hours <= MOST_HOURS:
        raise ToolError(f"last_hours is from 0 to {MOST_HOURS:.0f}; got {last_hours:g}")
    if min(limit, job_gpus, *(gpus or ()), *(jobs or ()), 0) < 0:  # elsewhere -1 is the last job
        raise ToolError("a limit, a number of GPUs, and the numbers of GPUs and jobs are 0 or more")
    if not 0 <= job_memory_gib <= MOST_GIB:
        raise ToolError(f"job_memory_gib is from 0 to {MOST_GIB:.0f}; got {job_memory_gib:g}")
    if aggregate and aggregate not in AGGREGATES:
        raise ToolError(f"no aggregate is called {aggregate!r}: use {', '.join(AGGREGATES)}")
    wanted = Query(
        subject,
        measure,
        devices=tuple(gpus or ()),
        jobs=tuple(jobs or ()),
        states=tuple(states or ()),
        group=group,
        time=Span(now - 3600.0 * last_hours, now) if last_hours > 0 else None,
        aggregate=aggregate,
        limit=limit,
        gpus=job_gpus,
        amount=job_memory_gib * GIB,
    )
    try:
        with Client() as daemon:
            rows = execute(daemon, wanted)
    except (UserError, DaemonGone) as e:
        raise ToolError(str(e)) from e
    found: dict[str, Any] = in_english(msgspec.to_builtins(rows))
    return found


def ask(question: str) -> str:
    """Return the answer to a question, or the card of an order with how a person approves it."""
    try:
        answer = Assistant().ask(question, device="cpu")
    except (UserError, DaemonGone) as e:
        raise ToolError(str(e)) from e
    if answer.proposal is None:
        return answer.text
    words = printable(question)
    end = "-- " if words.startswith("-") else ""
    command = f"gpudeck ask {end}{shlex.quote(words)}"
    return (
        f"{answer.text}\n\nNothing was done. A person can approve it in the window, or in a "
        f"terminal with: {command}"
    )
