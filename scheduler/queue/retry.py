"""Whether a job that failed is tried again, when, and with how much memory."""

from __future__ import annotations

import math
import re

import msgspec

from gpudeck.language.numbers import GIB, amount, span
from gpudeck.scheduler.protocol.jobs import Event, Failed, Job, Lost, Queued, Spec, queued
from gpudeck.scheduler.protocol.units import parse_bytes
from gpudeck.scheduler.protocol.wait_reasons import NotConsidered
from gpudeck.scheduler.queue.transitions import Change

MAX_WAIT_S = 3600.0
_ROUNDING_S = 0.1
_OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    r"|RESOURCE_EXHAUSTED: Out of memory"
)
_TRIED = re.compile(r"Tried to allocate (\d+(?:\.\d+)? [KMGT]iB)")
_HAS = re.compile(r"(?:[Tt]his process|Process \d+) has (\d+(?:\.\d+)? [KMGT]iB) memory in use")
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
"""GiB; each a half to a third more than the one before it, as GPUs come."""
_SHARE = 0.95
"""Of a GPU's memory; a job that needs more gets the GPU to itself."""


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
        more = f"with {amount(memory)}" if memory else "with a GPU to itself"
        text = f"{more}, as {amount(spec.memory)} were not enough"
        spec = msgspec.structs.replace(spec, memory=memory, retries=spec.retries + 1)
        state = queued(NotConsidered(), now)
    elif job.tries < spec.retries:
        wait = retry_delay(spec, job.tries)
        text = f"for attempt {job.tries + 2} of {spec.retries + 1}"
        text += f", in {span(round(wait, 1))}" if wait else ""
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


def out_of_memory(log: str) -> bool:
    """Return whether a log's end shows that CUDA, or a library on it, ran out of memory."""
    return _OUT_OF_MEMORY.search(log) is not None


def needed_memory(log: str, peak: float) -> float:
    """Return the bytes that the job needed at least.

    That is what it had and asked for, where PyTorch printed it, or else the most that it was
    observed to have.
    """
    tried, has = _TRIED.findall(log), _HAS.findall(log)
    if not tried or not has:
        return peak
    return max(float(parse_bytes(tried[-1]) + max(map(parse_bytes, has))), peak)


def next_memory(reserved: int, need: float, largest: float | None) -> int:
    """Return the bytes that the next attempt reserves; 0 for a GPU to itself.

    That is what the job needed, or else the next size, unless hardly any GPU has more.

    Args:
        largest: bytes of the largest GPU; None where no device was read yet.
    """
    larger = next((size * GIB for size in _SIZES if size * GIB > reserved), 2 * reserved)
    new = math.ceil(need / GIB) * GIB if need > reserved else larger
    return 0 if largest is None or new > _SHARE * largest else new
