"""What a job went through, below what is known of it."""

from __future__ import annotations

from collections.abc import Sequence

from app.format.job_rows import Details
from app.format.values import clock
from scheduler.protocol.jobs import Event, Job, Running, Spec

RENEW_S = 5.0
"""A timeline that is shown is read again after this time: other programs may add to it."""

Chapter = tuple[int, str, int, bool, float | None, Spec, float]


def chapter(job: Job, now: float) -> Chapter:
    """Return a value that differs where the job's timeline may have changed."""
    stopping = isinstance(job.state, Running) and job.state.stopping
    return job.id, job.status, job.tries, stopping, job.place, job.spec, now // RENEW_S


_SHORT = 240
"""Characters of a fact that are shown before the others; the rest follows after the timeline, so that no command fills the page."""


def story(details: Details, events: Sequence[Event], now: float) -> tuple[tuple[str, str], ...]:
    """Captions and values: why it waits or ended before all else, then the facts, then one line an event, then what is long."""
    first = tuple(fact for fact in details.facts if fact[0] == "Reason")
    rest = tuple((name, _beginning(text)) for name, text in details.facts if name != "Reason")
    long = tuple(
        (f"{name}, whole", text)
        for name, text in details.facts
        if name != "Reason" and len(text) > _SHORT
    )
    lines = [f"{clock(e.time, now)}  {e.what}" + (f": {e.text}" if e.text else "") for e in events]
    return (
        *first,
        *rest,
        *((("Timeline" if i == 0 else ""), line) for i, line in enumerate(lines)),
        *long,
    )


def _beginning(text: str) -> str:
    return (
        text
        if len(text) <= _SHORT
        else f"{text[:_SHORT]}… ({len(text)} characters: whole at the end)"
    )
