"""Compute what an order comes to that says an amount in relation to what a job has.

The proposal states the amount: twice the memory that the job reserved, its time limit and 4 hours,
or the memory that it needed when the memory of its GPU was full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.retrieval.job_logs import ONE_LOG
from gpudeck.assistant.retrieval.job_logs import read as read_log
from gpudeck.assistant.tools.targets import title
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.numbers import GIB
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Failed, Job
from gpudeck.scheduler.protocol.memory_errors import needed_memory, next_memory, out_of_memory
from gpudeck.scheduler.protocol.units import parse_bytes, parse_integer, parse_seconds


def settle(context: ToolContext, order: Order, jobs: Sequence[Job]) -> Order:
    """Return an order with values in place of its changes, computed from its one job.

    Raises UserError if several jobs are meant, if no amount is said and none follows from how the
    job failed, or if the job has none that it could be added to.
    """
    if not order.changes:
        return order
    if len(jobs) > 1:
        raise UserError(phrase("change the amounts of one job at a time"))
    options = {name: _value(context, name, change, jobs[0])
               for name, change in order.changes.items()}  # fmt: skip
    return msgspec.structs.replace(order, options=order.options | options, changes={})


def _value(context: ToolContext, name: str, change: str, job: Job) -> str:
    """Return the new value of an option, as the command line takes it. Raises UserError."""
    if name == "memory" and change == "more" and (found := _memory_after(context, job)):
        return found
    if name == "tags":
        return ",".join(dict.fromkeys((*job.spec.tags, *change[1:].split(","))))
    present, read, write, ask = _OPTIONS[name]
    has, kind, amount = present(job), change[0], change[1:]
    new = 0.0
    if has and kind == "x":
        new = has * float(amount)
    elif has and kind in "+-":
        new = has + (read(amount) if kind == "+" else -read(amount))
    if new <= 0:
        raise UserError(phrase("{job}: {ask}", job=title(job), ask=ask))
    return write(new)


def _memory_after(context: ToolContext, job: Job) -> str:
    """Return the memory for a job whose GPU's memory was full, or nothing for any other.

    Raises UserError if no GPU has more than the job had.
    """
    log = "\n".join(read_log(job.id, ONE_LOG).lines)
    if not (isinstance(job.state, Failed) and out_of_memory(log)):
        return ""
    devices = context.daemon.snapshot().devices
    totals = [float(total) for state in devices if state.reading is not None
              and isinstance(total := state.reading.get("mem_total"), int | float)]  # fmt: skip
    reserved = job.spec.memory  # without any it had a whole GPU, of which its peak is a part
    need = needed_memory(log, job.usage.memory if job.usage and reserved else 0.0)
    size = next_memory(reserved, need, max(totals, default=None)) if need or reserved else 0
    if not (size or reserved):
        raise UserError(
            phrase("{job} had a GPU to itself, and no GPU here has more memory: make its batches "
                   "smaller, or ask for several GPUs", job=title(job))
        )  # fmt: skip
    return _as_size(size) if size else "0"


_HOW_MUCH = phrase("say how much memory on each GPU it shall have, for example 24 GB")
_HOW_LONG = phrase("say how long it may run, for example 8h")
_WHEN = phrase("say when it shall start, for example at 22:00")
_HOW_MANY = phrase("say how many GPUs it shall have, for example 2 GPUs")


def _as_size(size: float) -> str:
    """Return bytes as the command line takes them, in the largest unit that has no fraction."""
    units = (("gib", GIB), ("gb", 10**9), ("mib", 2**20))
    whole = round(size)
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
