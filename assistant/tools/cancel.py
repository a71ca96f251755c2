"""Tools that plan to end jobs and processes, and say what happens to each and to its dependents."""

from __future__ import annotations

from assistant.facts import phrases
from assistant.intents.tool_call import ToolCall
from assistant.tools.lookup import (
    ACTIVE,
    MAX_JOBS,
    device_labels,
    job_in_state,
    list_jobs,
    title,
)
from assistant.tools.tool import Environment, PlannedAction, ToolContext, Tools
from assistant.writing.template.sentences import counted, upper
from assistant.writing.template.sentences import listed as enumerated
from scheduler.client import Client
from scheduler.executors.remote_runner import TERM_GRACE_S
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.jobs import Job, Queued, Running, Starting
from scheduler.protocol.units import numbered

_MAX_TOGETHER = 50
"""Jobs that one proposal may cancel."""
_SIGNALS = f"sent SIGTERM, then SIGKILL after {TERM_GRACE_S:.0f} s"


def cancel(context: ToolContext, call: ToolCall) -> PlannedAction:
    """Plan to cancel one job, or all jobs in a state."""
    daemon = context.daemon
    if state := call.text("state"):
        return _cancel_all(daemon, state)
    job = job_in_state(daemon, call, "cancel", ACTIVE)
    if not job.active:
        raise UserError(f"{title(job)} has ended already: {job.status}")
    if isinstance(job.state, Running) and job.state.stopping:
        raise UserError(f"{title(job)} is being cancelled already")

    def carry_out(daemon: Client, env: Environment) -> str:
        if daemon.cancel(job.id).active:
            return f"Stopping job {job.id}."
        return f"Job {job.id} was taken out of the queue."

    effect = (_consequence(daemon, job), _progress(job), _dependents(daemon, job))
    return PlannedAction(
        f"Cancel {title(job)}",
        " ".join(filter(None, effect)),
        _state_basis(job),
        carry_out,
        (("Command", f"gpudeck cancel {job.id}"),),
        call.with_job(job.id),
        (job.id,),
    )


def _cancel_all(daemon: Client, state: str) -> PlannedAction:
    states = {"queued": (Queued,), "running": (Starting, Running), "all": ACTIVE}.get(state)
    if states is None:
        raise UserError(f"jobs that are {state} have ended: there is nothing to cancel")
    found = [job for job in daemon.jobs(MAX_JOBS, active=True) if isinstance(job.state, states)]
    if not found:
        raise UserError("no job waits or runs" if state == "all" else f"no job is {state}")
    if len(found) > _MAX_TOGETHER:
        raise UserError(
            f"{len(found)} jobs are too many to cancel together: the limit is {_MAX_TOGETHER}. "
            "Pause the queue, or name a job"
        )
    jobs = tuple(job.id for job in found)

    def carry_out(daemon: Client, env: Environment) -> str:
        done = daemon.cancel_many(jobs)
        ended = sorted((*done.cancelled, *done.ending))
        return f"Cancelled: {numbered(ended)}." if ended else "All of them had ended already."

    waiting = sum(isinstance(job.state, Queued) for job in found)
    running = len(found) - waiting
    parts = (
        _count(waiting, "queued job will be removed", "queued jobs will be removed"),
        _count(running, f"running job will be {_SIGNALS}", f"running jobs will be {_SIGNALS}"),
    )
    return PlannedAction(
        f"Cancel {counted(len(found), 'job')}",
        upper(f"{list_jobs(found)}. {'; '.join(filter(None, parts))}."),
        frozenset(map(_state_basis, found)),
        carry_out,
        jobs=jobs,
    )


def kill(context: ToolContext, call: ToolCall) -> PlannedAction:
    """Plan to end a process that uses a GPU."""
    pid = call.integer("pid")
    if pid is None:
        raise UserError("name the process to end by its PID. To list them: gpudeck processes")
    details = context.daemon.details()
    found = [process for detail in details for process in detail.processes if process.pid == pid]
    if not found:
        raise NotFound(f"process {pid} uses no GPU. To list those that do: gpudeck processes")
    process = found[0]

    def carry_out(daemon: Client, env: Environment) -> str:
        daemon.kill(process)
        return f"Process {pid} has ended."

    name = phrases.plain(process.name, 60)
    owner = f" of {phrases.plain(process.user, 40)}" if process.user else ""
    job = f" Job {process.job}, which it belongs to, is cancelled." if process.job else ""
    return PlannedAction(
        f"End process {pid} ({name})",
        f"Process {pid} ({name}){owner} will be {_SIGNALS}. Unsaved data is lost.{job}",
        (pid, process.ticks),
        carry_out,
        (("Command", f"gpudeck kill {pid}"),),
    )


def _consequence(daemon: Client, job: Job) -> str:
    """Say what happens to the job itself."""
    if isinstance(job.state, Queued):
        since = phrases.clock(job.submitted)
        return (
            f"{upper(title(job))} has been waiting since {since}; it will be taken out of the "
            "queue and never run."
        )
    assert isinstance(job.state, Starting | Running)
    names = device_labels(daemon)
    where = f" on {enumerated([names.get(device, device) for device in job.state.devices])}"
    if job.spec.where:
        where = f" in {job.spec.where}"
    elif not job.state.devices:
        where = ""
    since = phrases.clock(job.state.at)
    return (
        f"{upper(title(job))} has been running since {since}{where}; all of its processes will be "
        f"{_SIGNALS}."
    )


def _progress(job: Job) -> str:
    progress = job.state.progress if isinstance(job.state, Running) else None
    if progress is None or progress.total <= 0:
        return ""
    return f"It is {100 * progress.done / progress.total:.0f} % done."


def _dependents(daemon: Client, job: Job) -> str:
    """Say which jobs are cancelled with it because they wait for its success."""
    cancelled = [job.id]
    for other in sorted(daemon.jobs(MAX_JOBS, active=True), key=lambda other: other.id):
        if not set(cancelled).isdisjoint(other.spec.after):
            cancelled.append(other.id)
    found = cancelled[1:]
    if not found:
        return ""
    wait = "waits" if len(found) == 1 else "wait"
    return f"{upper(numbered(found))} {wait} for its success and will be cancelled, too."


def _state_basis(job: Job) -> tuple[object, ...]:
    """Return what the effect of cancelling a job depends on."""
    if isinstance(job.state, Starting | Running):
        return (job.id, job.state.attempt)
    return (job.id, job.status)


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}" if count else ""


TOOLS: Tools = {("operate", "cancel"): cancel, ("operate", "kill"): kill}
