"""Compute what an order comes to that says an amount in relation to what a job has.

The proposal states the amount: twice the memory that the job reserved, its time limit and 4 hours,
or the memory that it needed when the memory of its GPU was full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gpudeck.assistant.query.remedies import largest_gpu
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.retrieval.job_logs import ONE_LOG
from gpudeck.assistant.retrieval.job_logs import read as read_log
from gpudeck.assistant.tools.targets import title
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.numbers import GIB
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Failed, Job
from gpudeck.scheduler.protocol.memory_errors import out_of_memory
from gpudeck.scheduler.protocol.retries import retry_changes
from gpudeck.scheduler.protocol.units import parse_bytes, parse_integer, parse_seconds


def settle(context: ToolContext, order: Order, jobs: Sequence[Job]) -> Order:
    """Return an order with values in place of its changes, computed from its jobs.

    Raises UserError if the jobs would get different values, if no amount is said and none follows
    from how a job failed, or if a job has none that it could be added to.
    """
    if not order.changes:
        return order
    options, *others = ({name: _value(context, name, change, job)
                         for name, change in order.changes.items()} for job in jobs)  # fmt: skip
    if any(other != options for other in others):
        raise UserError(phrase("these jobs would get different values: change one at a time"))
    return msgspec.structs.replace(order, options=order.options | options, changes={})


def _value(context: ToolContext, name: str, change: str, job: Job) -> str:
    """Return the new value of an option, as the command line takes it. Raises UserError."""
    if name == "tags":
        return ",".join(dict.fromkeys((*job.spec.tags, *change[1:].split(","))))
    present, read, write, ask = _OPTIONS[name]
    if change == "more" and (better := _after_failure(context, job)).get(name) is not None:
        return write(better[name])
    has, kind, amount = present(job), change[0], change[1:]
    new = 0.0
    if has and kind == "x":
        new = has * float(amount)
    elif has and kind in "+-":
        new = has + (read(amount) if kind == "+" else -read(amount))
    if new <= 0:
        raise UserError(phrase("{job}: {ask}", job=title(job), ask=ask))
    return write(new)


def _after_failure(context: ToolContext, job: Job) -> dict[str, Any]:
    """Return the fields with which a job that failed may succeed.

    Raises UserError if it had the whole memory of a GPU, and that was full.
    """
    log = "\n".join(read_log(job.id, ONE_LOG).lines)
    is_full = isinstance(job.state, Failed) and out_of_memory(log)
    if is_full and not job.spec.memory:
        raise UserError(
            phrase(
                "The memory of the GPU was full, and the job had the GPU to itself: make its "
                "batches smaller, or ask for a GPU with more memory."
            )
        )
    largest = largest_gpu(context.daemon.snapshot())
    return retry_changes(job, log if is_full else "", largest)


_HOW_MUCH = phrase("say how much memory on each GPU it shall have, for example 24 GB")
_HOW_LONG = phrase("say how long it may run, for example 8h")
_WHEN = phrase("say when it shall start, for example at 22:00")
_HOW_MANY = phrase("say how many GPUs it shall have, for example 2 GPUs")


def _as_size(size: float) -> str:
    """Return bytes as the command line takes them, in the largest unit that has no fraction."""
    units = (("gib", GIB), ("gb", 10**9), ("mib", 2**20))
    whole = round(size)
    if not whole:
        return "0"  # a whole GPU
    return next((f"{whole // of}{unit}" for unit, of in units if whole % of == 0), f"{whole}b")


def _as_length(seconds: float) -> str:
    """Return a length of time as the command line takes it."""
    units = (("h", 3600), ("min", 60))
    whole = round(seconds)
    return next((f"{whole // of}{unit}" for unit, of in units if whole % of == 0), f"{whole}s")


def _as_moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}"


_OPTIONS: dict[
    str, tuple[Callable[[Job], float], Callable[[str], float], Callable[[float], str], Message]
] = {
    "memory": (lambda job: job.spec.memory, parse_bytes, _as_size, _HOW_MUCH),
    "timeout": (lambda job: job.spec.timeout, parse_seconds, _as_length, _HOW_LONG),
    "begin": (lambda job: job.spec.begin, parse_seconds, _as_moment, _WHEN),
    "gpus": (lambda job: job.spec.gpus, parse_integer, lambda n: str(round(n)), _HOW_MANY),
}
"""For each option that has amounts: what a job has, how an amount is read and the new value
written, and what is asked for where there is none."""
