"""The changes that a job goes through, as pure functions that return the job and its events."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

import msgspec

from gpudeck.language.text import Bytes, Listed, Message, Span, phrase
from gpudeck.scheduler.attempts import Ending, Exit, NeverRan, running
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.failures import recognized
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Ended,
    Event,
    Failed,
    Job,
    JobSuspension,
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
from gpudeck.scheduler.protocol.wait_reasons import (
    FolderUnreadable,
    NotConsidered,
    StartFailed,
    WaitReason,
)
from gpudeck.scheduler.protocol.wait_texts import explain

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
    held = (
        (job.spec.where,)
        if job.spec.where
        else [label(d) for d in devices if d.id in state.devices]
    )
    where, n, memory = Listed(tuple(held)), job.tries + 1, Bytes(job.spec.memory)
    if not held:
        text = phrase("attempt {n}", n=n)
    elif not job.spec.memory:
        text = phrase("attempt {n} on {devices}", n=n, devices=where)
    else:
        text = phrase(
            "attempt {n} on {devices}, {amount} reserved", n=n, devices=where, amount=memory
        )
    assert isinstance(job.state, Queued)
    state = msgspec.structs.replace(state, unbegun=job.state.unbegun)
    return with_state(job, state), (Event(now, "started", text),)


def failed_before_start(job: Job, problem: Message, now: float) -> Change:
    """Return the job as it failed because of its folder."""
    state = Failed(now, now, problem)
    return with_state(job, state), (end_event(state),)


def queued_again(job: Job, outcome: NeverRan, now: float) -> Change:
    """Return the job as it waits again after an attempt that ran nothing; failed after too many."""
    assert isinstance(job.state, Starting | Running)
    count = job.state.unbegun + (not outcome.passing)
    if count >= MAX_UNBEGUN:
        state = Failed(
            now, now, phrase("none of {n} attempts began: {problem}", n=count, problem=outcome.why)
        )
        return with_state(job, state), (end_event(state),)
    waits = queued(StartFailed(outcome.why), now, unbegun=count)
    return with_state(job, waits), (Event(now, "queued again", outcome.why),)


def cancelled_before_start(job: Job, now: float) -> Change:
    """Return the job as it was cancelled while it waited."""
    return with_state(job, Cancelled(now)), (Event(now, "cancelled", phrase("before it ran")),)


def cancelled_for_dependency(job: Job, why: Message, now: float) -> Change:
    """Return the job as it was cancelled because it can never run."""
    return with_state(job, Cancelled(now, reason=why)), (Event(now, "cancelled", why),)


def stopping(job: Job, state: Running, now: float) -> Change:
    """Return the job as its cancellation was acknowledged."""
    state = msgspec.structs.replace(state, stopping=True)
    return with_state(job, state), (Event(now, "stop requested"),)


def adopted(job: Job, now: float) -> Change:
    """Return the job as a new daemon took it over."""
    return job, (Event(now, "adopted", phrase("by a daemon that was restarted")),)


def acknowledged(job: Job, state: Running, now: float) -> Change:
    """Return the job as its cluster acknowledged its attempt."""
    state = msgspec.structs.replace(state, known=True)
    text = phrase("by {cluster}", cluster=job.spec.where)
    return with_state(job, state), (Event(now, "acknowledged", text),)


def leaving(job: Job, state: Running, resume_at: float | None, now: float) -> Change:
    """Return the job as it is to leave its GPUs."""
    suspension = JobSuspension("suspending", now, resume_at)
    return with_suspension(job, state, suspension), (Event(now, "suspending"),)


def off(job: Job, state: Running, memory: int, now: float) -> Change:
    """Return the job as it has left its GPUs.

    Args:
        memory: Bytes that the host holds for it.
    """
    assert state.suspension is not None
    left = msgspec.structs.replace(state.suspension, phase="suspended", memory=memory)
    text = phrase("{text}", text=Bytes(memory))
    return with_suspension(job, state, left), (Event(now, "suspended", text),)


def returning(job: Job, state: Running, now: float) -> Change:
    """Return the job as it comes back to its GPUs."""
    assert state.suspension is not None
    back = msgspec.structs.replace(state.suspension, phase="resuming")
    return with_suspension(job, state, back), (Event(now, "resuming"),)


def off_again(job: Job, state: Running) -> Job:
    """Return the job as it could not come back to its GPUs yet."""
    assert state.suspension is not None
    return with_suspension(job, state, msgspec.structs.replace(state.suspension, phase="suspended"))


def never_back(job: Job, state: Running, why: Message) -> Job:
    """Return the job as the driver cannot bring it back, and its processes end."""
    assert state.suspension is not None
    return with_suspension(job, state, msgspec.structs.replace(state.suspension, loss=why))


def on_again(job: Job, state: Running, event: Event) -> Change:
    """Return the job as it runs on its GPUs again.

    Its last report counts as made after the suspension, so that its pace is that of its work.
    """
    assert state.suspension is not None
    took, progress = max(event.time - state.suspension.since, 0.0), state.progress
    if progress is not None:
        progress = msgspec.structs.replace(progress, time=progress.time + took)
    state = msgspec.structs.replace(
        state, suspension=None, suspended=state.suspended + took, progress=progress,
        returned=event.time,
    )  # fmt: skip
    return with_state(job, state), (event,)


def with_resumption(job: Job, state: Running, resume_at: float | None) -> Job:
    """Return the suspended job with the moment at which it comes back."""
    assert state.suspension is not None
    suspension = msgspec.structs.replace(state.suspension, resume_at=resume_at)
    return with_suspension(job, state, suspension)


def with_wait(job: Job, wait: WaitReason) -> Job:
    """Return the suspended job with why it is not back yet."""
    state = running(job)
    assert state.suspension is not None
    return with_suspension(job, state, msgspec.structs.replace(state.suspension, wait=wait))


def with_suspension(job: Job, state: Running, suspension: JobSuspension) -> Job:
    """Return the job with how it is suspended."""
    return with_state(job, msgspec.structs.replace(state, suspension=suspension))


def yielding(job: Job, state: Running, resume_at: float | None, now: float) -> Change:
    """Return the resumable job as it is asked to end.

    Args:
        resume_at: It does not start before that when it is queued again (seconds since the epoch);
            None: it is put on hold.
    """
    state = msgspec.structs.replace(state, yielding="hold" if resume_at is None else "queue")
    spec = msgspec.structs.replace(job.spec, begin=resume_at or job.spec.begin)
    text = phrase("by SIG{name}", name=job.spec.resumable)
    asked = msgspec.structs.replace(job, spec=spec, state=state)
    return asked, (Event(now, "asked to end", text),)


def giving_way(job: Job, state: Running, why: Message, now: float) -> Change:
    """Return the job that runs only while its GPUs are idle as it leaves them."""
    state = msgspec.structs.replace(state, yielding="queue")
    return with_state(job, state), (Event(now, "gives way", why),)


def yielded(job: Job, state: Running, now: float) -> Change:
    """Return the job as it waits again after it was ended for others, or asked to end; that takes
    none of its retries."""
    spec = msgspec.structs.replace(
        job.spec, spared=job.spec.spared + 1, hold=state.yielding == "hold"
    )
    waits = queued(NotConsidered(), now)
    again = msgspec.structs.replace(job, spec=spec, state=waits, tries=job.tries + 1)
    text = (
        phrase("with its artefacts, as it is resumable")
        if job.spec.resumable
        else phrase("it starts again once its GPUs are idle")
    )
    return again, (Event(now, "queued again", text),)


def with_progress(job: Job, state: Running, progress: Progress) -> Job:
    """Return the job with the progress it reported."""
    return with_state(job, msgspec.structs.replace(state, progress=progress))


def with_note(job: Job, state: Running, note: Message) -> Job:
    """Return the job with a note on what holds it up in its cluster."""
    return with_state(job, msgspec.structs.replace(state, note=note))


def ended(state: Starting | Running, record: Exit, result: msgspec.Raw, last_line: str) -> Ended:
    """Return the state after the runner's record.

    Args:
        last_line: of the output; it is quoted where the job failed, as the cause if it is that of a
            known kind of failure.
    """
    off = state.suspended_by(record.ended) if isinstance(state, Running) else 0.0
    if isinstance(state, Running) and state.stopping:
        return Cancelled(record.ended, record.started, state.devices, suspended=off)
    if isinstance(state, Running) and state.suspension is not None and state.suspension.loss:
        return Lost(record.started, record.ended, state.suspension.loss, state.devices, off)
    if record.code == 0 and not record.over:
        return Done(record.started, record.ended, state.devices, result, suspended=off)
    reason = _explain_failure(record)
    printed = record.over or (record.code is not None and (record.code >= 0 or record.starved))
    quote = last_line if printed else ""
    if quote and recognized([quote]) is not None:
        reason = phrase("{reason}: {quote}", reason=reason, quote=quote)
    elif quote:
        reason = phrase("{reason}; last line: {quote}", reason=reason, quote=quote)
    return Failed(
        record.started, record.ended, reason, record.code, state.devices, result, suspended=off,
        quote=quote,
    )  # fmt: skip


def _explain_failure(record: Exit) -> Message:
    if record.over:
        return phrase("ran longer than its limit of {span}", span=Span(record.over))
    if record.code is None:
        return _explain_start(record)
    if record.starved and record.code:
        return phrase("needed more than its {amount} of host memory", amount=Bytes(record.starved))
    if record.code >= 0:
        return phrase("exit code {n}", n=record.code)
    if record.code == -signal.SIGKILL:
        return phrase("killed by SIGKILL (often the kernel, out of memory)")
    known = -record.code in set(signal.Signals)
    name = signal.Signals(-record.code).name if known else f"signal {-record.code}"
    return phrase("killed by {signal}", signal=name)


def _explain_start(record: Exit) -> Message:
    """Return why the command could not be started."""
    if not record.program:
        return record.error
    gone = phrase("there is no such folder any more")
    problem: Message = gone if record.folder_gone else record.error
    program = repr(record.program)
    if not record.folder:
        return phrase("cannot start {program}: {problem}", program=program, problem=problem)
    return phrase(
        "cannot start {program} in {path}: {problem}",
        program=program, path=record.folder, problem=problem,
    )  # fmt: skip


def vanished(state: Running, why: Message, now: float) -> Cancelled | Lost:
    """Return the state after an attempt that left no record; cancelled where that was asked for."""
    off = state.suspended_by(now)
    if state.stopping:
        return Cancelled(now, state.at, state.devices, suspended=off)
    return Lost(state.at, now, why, state.devices, off)


def end_event(state: Ended) -> Event:
    """Return the event of the timeline for the end of a job or of an attempt."""
    reason: Message = state.reason if isinstance(state, Failed | Lost) else ""
    return Event(state.at, status_of(state), reason)


def unreadable(job: Job, state: Running, why: str, now: float) -> Change:
    """Return the job after its processes ended, while how it ended cannot be read."""
    found = FolderUnreadable(state.unreadable.since if state.unreadable else now, why)
    state = msgspec.structs.replace(state, unreadable=found, over=True)
    return with_state(job, state), (Event(now, "unreadable", explain(found, now)),)


def with_folder(job: Job, state: Running, unreadable: FolderUnreadable | None) -> Job:
    """Return the job with what is known of its folder."""
    return with_state(job, msgspec.structs.replace(state, unreadable=unreadable))


def cancelled_unreadable(job: Job, state: Running, now: float) -> Change:
    """Return the job as it was cancelled after its processes ended without a readable record."""
    why = phrase("how it ended could not be read")
    ended = Cancelled(now, state.at, state.devices, why)
    return with_state(job, ended), (Event(now, "cancelled", why),)


def record_events(ending: Ending) -> Iterator[Event]:
    """Return events for limits of the system, a log over its limit, and a lost Result."""
    if isinstance(ending.outcome, Exit) and ending.outcome.limited:
        yield Event(ending.outcome.ended, "limited", ending.outcome.limited)
    if isinstance(ending.outcome, Exit) and ending.outcome.uncapped:
        text = phrase(
            "all of it was kept, as nothing could be dropped: {problem}",
            problem=ending.outcome.uncapped,
        )
        yield Event(ending.outcome.ended, "log over its limit", text)
    if isinstance(ending.outcome, Exit) and ending.result_problem:
        problem = ending.result_problem
        text = phrase("the job left one that cannot be read: {problem}", problem=problem)
        yield Event(ending.outcome.ended, "without result", text)
