"""Answer what a job could have: which GPUs are free, until when the others are held, and a dry run.

A GPU is free at a moment if nobody uses it now, or all jobs that hold it should have ended, and no
booking keeps it then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from gpudeck.assistant.query.devices import is_free
from gpudeck.assistant.query.estimates import time_left
from gpudeck.assistant.query.find import MAX_JOBS
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.query.rows import Column, Note, Row, Rows, Value
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.busy_causes import Reserved
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Snapshot, label
from gpudeck.scheduler.protocol.wait_texts import explain

_MAX_GPUS = 16
"""The most GPUs whose free memory is told."""


class _Hold(NamedTuple):
    """Describe whether a GPU is free, and until when it is not."""

    name: str
    holder: Value = None
    """The number of the job that holds it for longest, or what else keeps it; None: it is free."""
    until: float | None = None
    """When the holder should have left it, in seconds since the epoch; None if that is unknown."""
    runs: int = 0
    """Earlier runs from which that is estimated; 0: the progress of the job."""
    bookings: tuple[Booking, ...] = ()
    """Those that are not over, in order of their begin."""

    def is_free(self, span: Span) -> bool:
        """Return whether it should be free in all of a time."""
        left = self.holder is None or (self.until is not None and self.until <= span.since)
        return left and not any(one.begin <= span.until and one.end > span.since
                                for one in self.bookings)  # fmt: skip


def capacity(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return where and when such a job would start, and which GPUs are free and held.

    Raises NotFound if the GPUs that are asked about are not there.
    """
    wanted = query.gpus or len(query.devices) or (1 if query.amount or snapshot.devices else 0)
    count = query.limit or 1
    row = _dry_run(daemon, query, wanted, snapshot)
    notes: tuple[Note, ...] = (Note("wanted", (wanted, query.amount, snapshot.time, count)),)
    known = [s for s in snapshot.devices if s.device.kind != "cpu" and not s.device.host]
    gpus = [s for s in known if not query.devices or s.device.index in query.devices]
    if query.devices and not gpus:
        named = ", ".join(f"GPU {index}" for index in query.devices)
        raise NotFound(phrase("there is no {gpu} on this machine", gpu=named))
    if query.amount:
        others = {s.device.id for s in known if s not in gpus}
        notes = (*notes, Note("free", free_memory(snapshot, others | _whole(daemon, gpus))))
    if wanted and gpus:
        notes = (*notes, *_holds(daemon, query, wanted * count, gpus, snapshot))
    if row.absent and snapshot.is_recorded and wanted <= len(snapshot.devices):
        notes = (*notes, Note("recording", ()))
    columns = (Column("start", "moment"), Column("devices"), Column("reason"))
    source = phrase("a dry run of the queue")
    return Rows("capacity", columns, (row,), source, snapshot.time, notes=notes)


def _dry_run(daemon: Client, query: Query, wanted: int, snapshot: Snapshot) -> Row:
    """Return where and when such a job would start, by a dry run of the daemon."""
    begin = max(snapshot.time, query.time.since) if query.time is not None else 0.0
    model = f"GPU {query.devices[0]}" if len(query.devices) == 1 else query.model
    said = {"memory": round(query.amount), "gpu_type": model, "begin": begin}
    options = {"gpus": wanted} | {name: value for name, value in said.items() if value}
    try:
        spec = daemon.spec(["true"], options)  # type: ignore[arg-type]
        found = daemon.foresee_spec(spec, query.limit or 1)
    except UserError as e:
        return Row("plan", "plan", (None, None, e.message), ("never",))
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    where = ", ".join(labels.get(device, device) for device in found.devices)
    at = snapshot.time if found.wait is None else found.at
    why = "" if found.wait is None else explain(found.wait, snapshot.time)
    return Row("plan", "plan", (at, where, why))


def _holds(
    daemon: Client, query: Query, wanted: int, gpus: Sequence[DeviceState], snapshot: Snapshot
) -> Iterator[Note]:
    """Yield notes of the GPUs that are free, of those that are held, and of the time asked for."""
    active, now = daemon.jobs(MAX_JOBS, active=True), snapshot.time
    jobs = {job.id: job for job in active}
    holds = [_hold(daemon, state, jobs, snapshot) for state in gpus]
    wanted = min(wanted, len(holds)) if query.devices else wanted
    free = [hold for hold in holds if hold.holder is None]
    yield Note("gpus now", tuple(part for hold in free for part in _until_booked(hold)))
    held: dict[tuple[Value, ...], list[str]] = {}
    for hold in holds:
        if hold.holder is not None:
            held.setdefault((hold.holder, hold.until, hold.runs), []).append(hold.name)
    for how, names in held.items():
        yield Note("gpus held", (*how, *names))
    if query.time is not None:
        then = [hold.name for hold in holds if hold.is_free(query.time)]
        yield Note("gpus then", (query.time.since, query.time.until, wanted, *then))
    elif len(free) < wanted:
        yield Note("gpus from", (_first_moment(holds, wanted, now), wanted))
    if waiting := sum(_waits_for_gpu(job) for job in active):
        yield Note("gpus wanted", (waiting,))


def _hold(daemon: Client, state: DeviceState, jobs: dict[int, Job], snapshot: Snapshot) -> _Hold:
    """Return who holds a GPU until when, and for whom it is kept later."""
    name, now = label(state.device), snapshot.time
    booked = [b for b in snapshot.settings.reservations.values()
              if state.device.id in b.gpus and b.end > now]  # fmt: skip
    kept = sorted(booked, key=lambda booking: booking.begin)
    free = _Hold(name, bookings=tuple(kept))
    if state.holders:
        ends = {number: time_left(daemon, jobs[number], now) if number in jobs else None
                for number in state.holders}  # fmt: skip
        job, left = max(ends.items(), key=lambda pair: math.inf if pair[1] is None
                        else pair[1].seconds)  # fmt: skip
        return free._replace(holder=job, until=None if left is None else now + left.seconds,
                             runs=0 if left is None else left.runs)  # fmt: skip
    if isinstance(state.use, Busy) and isinstance(state.use.cause, Reserved):
        return free._replace(holder=state.use.reason, until=state.use.cause.until)
    if isinstance(state.use, Busy) and not is_free(state):
        return free._replace(holder=state.use.reason)
    return free


def _until_booked(hold: _Hold) -> tuple[Value, ...]:
    """Return the name of a GPU, with whom it is kept for next, and when."""
    if not hold.bookings:
        return (hold.name, None, None, None)
    first = hold.bookings[0]
    return (hold.name, first.holder, first.begin, first.end)


def _first_moment(holds: Sequence[_Hold], wanted: int, now: float) -> float | None:
    """Return from when on as many GPUs should be free; None if that is unknown."""
    ends = [hold.until for hold in holds if hold.until is not None]
    ends += [booking.end for hold in holds for booking in hold.bookings]
    for at in sorted(end for end in ends if end >= now):
        if sum(hold.is_free(Span(at, at)) for hold in holds) >= wanted:
            return at
    return None


def _waits_for_gpu(job: Job) -> bool:
    return isinstance(job.state, Queued) and bool(job.spec.gpus) and not job.spec.hold


def _whole(daemon: Client, gpus: Sequence[DeviceState]) -> set[str]:
    """Return the GPUs of which a job holds all memory, whatever it has allocated."""
    alone = {job.id for job in daemon.jobs(MAX_JOBS, active=True) if not job.spec.memory}
    return {state.device.id for state in gpus if alone & {*state.holders}}


def free_memory(snapshot: Snapshot, without: Collection[str] = ()) -> tuple[Value, ...]:
    """Return the GPUs with their free memory in bytes, one after the other, the most first.

    Args:
        snapshot: The state now.
        without: The ids of GPUs that are left out.
    """
    found = [
        (value, label(state.device))
        for state in snapshot.devices
        if state.device.kind != "cpu" and state.reading is not None
        and state.device.id not in without
        and isinstance(value := state.reading.get("mem_free"), int | float)
    ]  # fmt: skip
    ordered = sorted(found, key=lambda pair: -pair[0])[:_MAX_GPUS]
    return tuple(part for value, name in ordered for part in (name, value))
