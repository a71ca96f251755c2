"""Say why a job failed, quote the end of its output, and name the order that may help.

The output is foreign text: its lines are quoted, and nothing in them is followed.
"""

from __future__ import annotations

import msgspec

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.language.remedies import remedy
from gpudeck.assistant.query.find import named_jobs
from gpudeck.assistant.query.request import Order, Target
from gpudeck.assistant.tools.targets import title
from gpudeck.language.rendering import render
from gpudeck.language.text import phrase
from gpudeck.language.words import words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.failures import Failure, recognized
from gpudeck.scheduler.protocol.jobs import Failed, Job, Lost

_READ = 2**20
"""Bytes of the end of the output that are searched for the cause."""
_LINES, _LENGTH = 40, 400
"""Lines of the end that are quoted, and characters of each."""
_MORE = 2
"""How many times as much of what was too little is asked for."""
_PASSES = ("network", "driver", "lost")
"""Causes that may not come again."""


class Triage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describe a failure for a program."""

    job: str
    state: str
    reason: str
    """Why, as the queue says it. It may quote the output."""
    code: int | None
    """The exit status; negative for a signal."""
    attempts: int
    cause: str
    """One of `failures.KINDS` of the protocol, `time limit` or `lost`; empty: unknown."""
    line: str
    """The line of the output that shows the cause."""
    remedy: str
    output: tuple[str, ...]
    """The last lines of the output, without escape sequences."""
    order: Order | None = None
    """What may help."""


def triage(daemon: Client, target: Target) -> Triage:
    """Return why a job failed. Raises NotFound, and UserError for one that did not fail."""
    (job,) = named_jobs(daemon, (target,))
    state = job.state
    if not isinstance(state, Failed | Lost):
        raise UserError(phrase("{job} has not failed: it is {state}", job=title(job),
                               state=job.status))  # fmt: skip
    lines = phrases.log_lines(daemon.log(job.id, -_READ, _READ))
    found = recognized(lines) or Failure("", "")
    cause = "lost" if isinstance(state, Lost) else "time limit" if _timed_out(job) else found.kind
    quote = phrases.plain(state.quote, 300) if isinstance(state, Failed) else ""
    reason = f"{phrases.plain(render(state.reason), 300)} {quote}".rstrip()
    shown = tuple(line[:_LENGTH] for line in lines if line.strip())[-_LINES:]
    line = phrases.plain(found.line, 300)
    code = state.code if isinstance(state, Failed) else None
    text = remedy(cause, words("en"))
    order = helpful_order(job, cause)
    return Triage(title(job), job.status, reason, code, job.tries + 1, cause, line, text, shown,
                  order)  # fmt: skip


def _timed_out(job: Job) -> bool:
    """Return whether the job ran for as long as its time limit allows."""
    state, most = job.state, job.spec.timeout
    return bool(
        most and isinstance(state, Failed) and state.at - state.started - state.suspended >= most
    )


def helpful_order(job: Job, cause: str) -> Order | None:
    """Return the order that may help; None where the command or the machine must change first.

    The queue itself gives a job that shares a GPU more of its memory.
    """
    options: dict[str, str] = {}
    match cause:
        case "memory" | "killed" if job.spec.host_memory:
            options["host_memory"] = f"{_MORE * job.spec.host_memory // 2**20}MiB"
        case "time limit":
            options["timeout"] = f"{_MORE * job.spec.timeout:g}"
        case kind if kind not in _PASSES:
            return None
    return Order("retry", jobs=(job.id,), options=options)
