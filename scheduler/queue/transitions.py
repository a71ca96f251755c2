"""The changes that a job goes through, as pure functions that return the job and its events."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import msgspec

from gpudeck.language.numbers import amount, span
from gpudeck.scheduler.attempts import Ending, Exit, NeverRan
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Ended,
    Event,
    Failed,
    Job,
    Lost,
    Progress,
    Queued,
    Running,
    Spec,
    Starting,
    State,
    queued,
    status_of,
)
from gpudeck.scheduler.protocol.snapshot import label
from gpudeck.scheduler.protocol.wait_reasons import FolderUnreadable, StartFailed, render

MAX_UNBEGUN = 5
"""Attempts in a row that may end before they run anything, whatever the cause is."""

Change = tuple[Job, Sequence[Event]]
"""A job as it is now, and the events that are added to its timeline."""


def with_state(job: Job, state: State) -> Job:
    """Return the job in another state."""
    return msgspec.structs.replace(job, state=state)


def with_spec(job: Job, spec: Spec) -> Job:
    """Return the job with another spec."""
    return msgspec.structs.replace(job, spec=spec)


def started(job: Job, state: Running, devices: Sequence[Device], now: float) -> Change:
    """Return the job as its runner was prepared."""
    where = job.spec.where or " and ".join(label(d) for d in devices if d.id in state.devices)
    memory = f", {amount(job.spec.memory)} reserved" if job.spec.memory else ""
    text = f"attempt {job.tries + 1}" + (f" on {where}{memory}" if where else "")
    assert isinstance(job.state, Queued)
    state = msgspec.structs.replace(state, unbegun=job.state.unbegun)
    return with_state(job, state), (Event(now, "started", text),)


def failed_before_start(job: Job, problem: str, now: float) -> Change:
    """Return the job as it failed because of its folder."""
    state = Failed(now, now, problem)
    return with_state(job, state), (end_event(state),)


def queued_again(job: Job, outcome: NeverRan, now: float) -> Change:
    """Return the job as it waits again after an attempt that ran nothing; failed after too many."""
    assert isinstance(job.state, Starting | Running)
    count = job.state.unbegun + (not outcome.passing)
    if count >= MAX_UNBEGUN:
        state = Failed(now, now, f"none of {count} attempts began: {outcome.why}")
        return with_state(job, state), (end_event(state),)
    waits = queued(StartFailed(outcome.why), now, unbegun=count)
    return with_state(job, waits), (Event(now, "queued again", outcome.why),)


def cancelled_before_start(job: Job, now: float) -> Change:
    """Return the job as it was cancelled while it waited."""
    return with_state(job, Cancelled(now)), (Event(now, "cancelled", "before it ran"),)


def cancelled_for_dependency(job: Job, why: str, now: float) -> Change:
    """Return the job as it was cancelled because it can never run."""
    return with_state(job, Cancelled(now, reason=why)), (Event(now, "cancelled", why),)


def stopping(job: Job, state: Running, now: float) -> Change:
    """Return the job as its cancellation was acknowledged."""
    state = msgspec.structs.replace(state, stopping=True)
    return with_state(job, state), (Event(now, "stop requested"),)


def adopted(job: Job, now: float) -> Change:
    """Return the job as a new daemon took it over."""
    return job, (Event(now, "adopted", "by a daemon that was restarted"),)


def acknowledged(job: Job, state: Running, now: float) -> Change:
    """Return the job as its cluster acknowledged its attempt."""
    state = msgspec.structs.replace(state, known=True)
    return with_state(job, state), (Event(now, "acknowledged", f"by {job.spec.where}"),)


def with_progress(job: Job, state: Running, progress: Progress) -> Job:
    """Return the job with the progress it reported."""
    return with_state(job, msgspec.structs.replace(state, progress=progress))


def with_note(job: Job, state: Running, note: str) -> Job:
    """Return the job with a note on what holds it up in its cluster."""
    return with_state(job, msgspec.structs.replace(state, note=note))


def ended(
    state: Starting | Running, record: Exit, result: msgspec.Raw, last_line: str
) -> Done | Failed | Cancelled:
    """Return the state after the runner's record.

    Args:
        last_line: of the output; it is quoted where the job failed.
    """
    if isinstance(state, Running) and state.stopping:
        return Cancelled(record.ended, record.started, state.devices)
    if record.code == 0 and not record.over:
        return Done(record.started, record.ended, state.devices, result)
    reason = _failure(record, last_line)
    return Failed(record.started, record.ended, reason, record.code, state.devices, result)


def _failure(record: Exit, last_line: str) -> str:
    quote = f": {last_line}" if last_line else ""
    if record.over:
        return f"ran longer than its limit of {span(record.over)}{quote}"
    if record.code is None:
        return record.error
    if record.starved and record.code:
        return f"needed more than its {amount(record.starved)} of host memory{quote}"
    if record.code >= 0:
        return f"exit code {record.code}{quote}"
    if record.code == -signal.SIGKILL:
        return "killed by SIGKILL (often the kernel, out of memory)"
    known = -record.code in set(signal.Signals)
    name = signal.Signals(-record.code).name if known else f"signal {-record.code}"
    return f"killed by {name}"


def vanished(state: Running, why: str, now: float) -> Cancelled | Lost:
    """Return the state after an attempt that left no record; cancelled where that was asked for."""
    if state.stopping:
        return Cancelled(now, state.at, state.devices)
    return Lost(state.at, now, why, state.devices)


def end_event(state: Ended) -> Event:
    """Return the event of the timeline for the end of a job or of an attempt."""
    reason = state.reason if isinstance(state, Failed | Lost) else ""
    return Event(state.at, status_of(state), reason)


def unreadable(job: Job, state: Running, why: str, now: float) -> Change:
    """Return the job after its processes ended, while how it ended cannot be read."""
    found = FolderUnreadable(state.unreadable.since if state.unreadable else now, why)
    state = msgspec.structs.replace(state, unreadable=found, over=True)
    return with_state(job, state), (Event(now, "unreadable", render(found, now)),)


def with_folder(job: Job, state: Running, unreadable: FolderUnreadable | None) -> Job:
    """Return the job with what is known of its folder."""
    return with_state(job, msgspec.structs.replace(state, unreadable=unreadable))


def cancelled_unreadable(job: Job, state: Running, now: float) -> Change:
    """Return the job as it was cancelled after its processes ended without a readable record."""
    why = "how it ended could not be read"
    ended = Cancelled(now, state.at, state.devices, why)
    return with_state(job, ended), (Event(now, "cancelled", why),)


def record_events(ending: Ending) -> tuple[Event, ...]:
    """Return events for limits of the system, a log over its limit, and a lost Result."""
    events = []
    if isinstance(ending.outcome, Exit) and ending.outcome.limited:
        events.append(Event(ending.outcome.ended, "limited", ending.outcome.limited))
    if isinstance(ending.outcome, Exit) and ending.outcome.uncapped:
        text = f"all of it was kept, as nothing could be dropped: {ending.outcome.uncapped}"
        events.append(Event(ending.outcome.ended, "log over its limit", text))
    if isinstance(ending.outcome, Exit) and ending.result_problem:
        text = f"the job left one that cannot be read: {ending.result_problem}"
        events.append(Event(ending.outcome.ended, "without result", text))
    return tuple(events)
