"""Whether a job that failed is tried again, when, and with what. Pure."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from scheduler.protocol.jobs import Event, Failed, Job, Queued, Spec
from scheduler.protocol.units import amount, span
from scheduler.queue.oom import needed, next_memory, out_of_memory

MAX_WAIT_S = 3600.0
_ROUNDING_S = 0.1


class Again(NamedTuple):
    job: Job
    event: Event


def again(job: Job, failed: Failed, log: str, largest: float | None, now: float) -> Again | None:
    """The job as it waits again, None where its failure is final.

    `log`: the end of what it printed. `largest`: bytes of the largest device; None where unknown. A job that shares a GPU and ran out
    of memory is tried again at once with more of it, at last with a GPU for itself; that takes none of its retries.
    """
    spec = job.spec
    if spec.memory and out_of_memory(log):
        memory = next_memory(
            spec.memory, needed(log, job.usage.memory if job.usage else 0.0), largest
        )
        more = f"with {amount(memory)}" if memory else "with a GPU for itself"
        grown = msgspec.structs.replace(spec, memory=memory, retries=spec.retries + 1)
        text = f"{more}, as {amount(spec.memory)} were not enough"
        return Again(_next(job, Queued(), spec=grown), Event(now, "queued again", text))
    if job.tries >= spec.retries:
        return None
    wait = delay(job.spec, job.tries)
    text = f"for attempt {job.tries + 2} of {spec.retries + 1}" + (
        f", in {span(round(wait, 1))}" if wait else ""
    )
    return Again(_next(job, Queued(until=now + wait)), Event(now, "queued again", text))


def _next(job: Job, state: Queued, **more: object) -> Job:
    return msgspec.structs.replace(job, state=state, tries=job.tries + 1, **more)


def delay(spec: Spec, tries: int) -> float:
    """Seconds between the end of an attempt, which `tries` others came before, and the next."""
    return float(min(spec.backoff * 2.0 ** min(tries, 32), MAX_WAIT_S))


def rests(job: Job, now: float) -> float:
    """Seconds for which it is not to be started yet; 0 where it may be. A clock that was set back does not make it wait longer."""
    assert isinstance(job.state, Queued)
    left = job.state.until - now
    return left if 0 < left <= delay(job.spec, max(job.tries - 1, 0)) + _ROUNDING_S else 0.0


def resting(job: Job) -> str:
    """Why it waits while it rests."""
    assert isinstance(job.state, Queued)
    return f"attempt {job.tries} failed; the next starts at {time.strftime('%H:%M:%S', time.localtime(job.state.until))}"
