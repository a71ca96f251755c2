"""Whether a job that failed is tried again, when, and with how much memory."""

from __future__ import annotations

import msgspec

from gpudeck.language.text import Bytes, Span, phrase
from gpudeck.scheduler.protocol.jobs import Event, Failed, Job, Lost, Queued, Spec, queued
from gpudeck.scheduler.protocol.memory_errors import needed_memory, next_memory, out_of_memory
from gpudeck.scheduler.protocol.wait_reasons import NotConsidered
from gpudeck.scheduler.queue.transitions import Change

MAX_WAIT_S = 3600.0
_ROUNDING_S = 0.1


def next_attempt(
    job: Job, ended: Failed | Lost, log: str, largest: float | None, now: float
) -> Change | None:
    """Return the job as it waits for its next attempt; None where its end is final.

    A job that shares a GPU and ran out of memory is tried again at once with more of it, at last
    with a GPU to itself; that takes none of its retries.

    Args:
        log: the end of what the job printed.
        largest: bytes of the largest device; None where unknown.
    """
    spec = job.spec
    if isinstance(ended, Lost) and not spec.retry_lost:
        return None
    if isinstance(ended, Failed) and spec.memory and out_of_memory(log):
        peak = job.usage.memory if job.usage else 0.0
        memory = next_memory(spec.memory, needed_memory(log, peak), largest)
        size = Bytes(spec.memory)
        if memory:
            more = Bytes(memory)
            text = phrase("with {amount}, as {size} were not enough", amount=more, size=size)
        else:
            text = phrase("with a GPU to itself, as {size} were not enough", size=size)
        spec = msgspec.structs.replace(spec, memory=memory, spared=spec.spared + 1)
        state = queued(NotConsidered(), now)
    elif job.tries < spec.retries + spec.spared:
        wait = retry_delay(spec, job.tries)
        n, limit, later = job.tries + 2, spec.retries + spec.spared + 1, Span(round(wait, 1))
        if wait:
            text = phrase("for attempt {n} of {limit}, in {span}", n=n, limit=limit, span=later)
        else:
            text = phrase("for attempt {n} of {limit}", n=n, limit=limit)
        state = queued(NotConsidered(), now, until=now + wait)
    else:
        return None
    again = msgspec.structs.replace(job, spec=spec, state=state, tries=job.tries + 1)
    return again, (Event(now, "queued again", text),)


def retry_delay(spec: Spec, tries: int) -> float:
    """Return the seconds before the next attempt, where `tries` others ended before the last."""
    return float(min(spec.backoff * 2.0 ** min(tries, 32), MAX_WAIT_S))


def remaining_delay(job: Job, now: float) -> float:
    """Return the seconds for which a waiting job must not start yet; 0 where it may.

    A clock that was set back does not make it wait longer.
    """
    assert isinstance(job.state, Queued)
    left = job.state.until - now
    longest = retry_delay(job.spec, max(job.tries - 1, 0)) + _ROUNDING_S
    return left if 0 < left <= longest else 0.0
