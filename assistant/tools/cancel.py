"""Ending jobs and processes: what becomes of each, of those that wait for it, and by which signals. Planned, not done.

Every planner raises UserError, in one line, where it cannot be done as things are.
"""

from __future__ import annotations

from assistant.facts import phrases
from assistant.facts.devices import label
from assistant.intents.tool_call import ToolCall
from assistant.tools.job_lookup import ACTIVE, MOST, listed, meant, title
from assistant.tools.plan import Environment, PlannedAction
from assistant.writing.template.sentences import counted, upper
from assistant.writing.template.sentences import listed as enumerated
from scheduler.client import Client
from scheduler.executors.remote_runner import TERM_GRACE_S
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.jobs import Job, Queued, Running, Starting
from scheduler.protocol.units import numbered

_TOGETHER = 50
"""Jobs that one proposal may end."""
_SIGNALS = f"sent SIGTERM, then SIGKILL after {TERM_GRACE_S:.0f} s"


def cancel(daemon: Client, call: ToolCall) -> PlannedAction:
    """One job, or all of a state."""
    if state := call.text("state"):
        return _cancel_all(daemon, state)
    job = meant(daemon, call, "cancel", ACTIVE)
    _refuse_ended(job)
    if isinstance(job.state, Running) and job.state.stopping:
        raise UserError(f"{title(job)} is being ended already")

    def act(daemon: Client, env: Environment) -> str:
        return (
            f"Job {job.id} is being ended."
            if daemon.cancel(job.id).active
            else f"Job {job.id} was taken out of the queue."
        )

    effect = " ".join(
        filter(None, (_ended(daemon, job), _progress(daemon, job), _dependents(daemon, job)))
    )
    return PlannedAction(
        f"Cancel {title(job)}",
        effect,
        _situation(job),
        act,
        (("Command", f"gpudeck cancel {job.id}"),),
        call.with_job(job.id),
        (job.id,),
    )


def _cancel_all(daemon: Client, state: str) -> PlannedAction:
    states = {"queued": (Queued,), "running": (Starting, Running), "all": ACTIVE}.get(state)
    if states is None:
        raise UserError(f"jobs that are {state} have ended: there is nothing to cancel")
    found = [job for job in daemon.jobs(MOST, active=True) if isinstance(job.state, states)]
    if not found:
        raise UserError("no job waits or runs" if state == "all" else f"no job is {state}")
    if len(found) > _TOGETHER:
        raise UserError(
            f"{len(found)} jobs are more than I end at once ({_TOGETHER}). Pause the queue, or name a job"
        )

    jobs = tuple(job.id for job in found)

    def act(daemon: Client, env: Environment) -> str:
        done = daemon.cancel_many(jobs)
        ended = sorted((*done.cancelled, *done.ending))
        return f"Cancelled: {numbered(ended)}." if ended else "All of them had ended already."

    waiting = sum(isinstance(job.state, Queued) for job in found)
    parts = [_told(waiting, "waits and will never run", "wait and will never run")]
    parts.append(
        _told(len(found) - waiting, f"runs and will be {_SIGNALS}", f"run and will be {_SIGNALS}")
    )
    effect = f"{listed(found)}. {'; '.join(filter(None, parts))}."
    effect = upper(effect)
    return PlannedAction(
        f"Cancel {counted(len(found), 'job')}",
        effect,
        frozenset(map(_situation, found)),
        act,
        jobs=jobs,
    )


def kill(daemon: Client, call: ToolCall) -> PlannedAction:
    """End a process that uses a GPU."""
    pid = call.integer("pid")
    if pid is None:
        raise UserError("say which process to end by its pid. See: gpudeck processes")
    process = next(
        (p for detail in daemon.details() for p in detail.processes if p.pid == pid), None
    )
    if process is None:
        raise NotFound(f"process {pid} uses no GPU. See: gpudeck processes")
    found = process

    def act(daemon: Client, env: Environment) -> str:
        daemon.kill(found)
        return f"Process {pid} has ended."

    name = phrases.plain(found.name, 60)
    whose = f" of {phrases.plain(found.user, 40)}" if found.user else ""
    job = f" It belongs to job {found.job}, which is cancelled." if found.job is not None else ""
    effect = (
        f"Process {pid} ({name}){whose} will be {_SIGNALS}. What it has not saved is lost.{job}"
    )
    return PlannedAction(
        f"End process {pid} ({name})",
        effect,
        (pid, found.ticks),
        act,
        (("Command", f"gpudeck kill {pid}"),),
    )


def _refuse_ended(job: Job) -> None:
    if not job.active:
        raise UserError(f"{title(job)} has ended already: {job.status}")


def _ended(daemon: Client, job: Job) -> str:
    """What becomes of the job itself."""
    if isinstance(job.state, Queued):
        return f"{upper(title(job))} waits since {phrases.clock(job.submitted)}; it will be taken out of the queue and never run."
    assert isinstance(job.state, Starting | Running)
    labels = {state.device.id: label(state.device) for state in daemon.snapshot().devices}
    where = job.spec.where or enumerated(
        [labels.get(device, device) for device in job.state.devices]
    )
    on = f" {'in' if job.spec.where else 'on'} {where}" if where else ""
    return f"{upper(title(job))} is running since {phrases.clock(job.state.at)}{on}; all of its processes will be {_SIGNALS}."


def _progress(daemon: Client, job: Job) -> str:
    progress = job.state.progress if isinstance(job.state, Running) else None
    return (
        f"It is {100 * progress.done / progress.total:.0f} % through."
        if progress is not None and progress.total > 0
        else ""
    )


def _dependents(daemon: Client, job: Job) -> str:
    """Those that are cancelled with it, as they wait for its success."""
    found, known = list[int](), {job.id}
    for other in sorted(daemon.jobs(MOST, active=True), key=lambda j: j.id):
        if known & set(other.spec.after):
            known.add(other.id)
            found.append(other.id)
    if not found:
        return ""
    return f"{upper(numbered(found))} {'waits' if len(found) == 1 else 'wait'} for its success and will be cancelled, too."


def _situation(job: Job) -> tuple[object, ...]:
    """What the effect of ending it depends on."""
    state = job.state
    return (
        job.id,
        "queued"
        if isinstance(state, Queued)
        else state.attempt
        if isinstance(state, Starting | Running)
        else job.status,
    )


def _told(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}" if count else ""
