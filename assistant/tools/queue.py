"""What can be done to jobs that wait, and to the queue: move, hold, release, pause, resume. Each is planned, not done.

Every planner raises UserError, in one line, where it cannot be done as things are.
"""

from __future__ import annotations

from collections.abc import Sequence

from assistant.intents.tool_call import ToolCall
from assistant.tools.job_lookup import MOST, find_job, listed, meant, title
from assistant.tools.plan import Environment, PlannedAction
from assistant.writing.template.sentences import counted, upper
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job, Queued, turn


def move(daemon: Client, call: ToolCall) -> PlannedAction:
    """Another place among those that wait."""
    job = meant(daemon, call, "move", (Queued,))
    if not isinstance(job.state, Queued):
        raise UserError(
            f"{title(job)} is {job.status}: only jobs that wait have a place in the queue"
        )
    line = sorted(
        (j for j in daemon.jobs(MOST, active=True) if isinstance(j.state, Queued)), key=turn
    )
    others = [other for other in line if other.id != job.id]
    if not others:
        raise UserError(f"{title(job)} is the only one that waits: it is next already")
    place = call.text("place") or "first"
    beside, after = _beside(daemon, call, place, others)
    at = next(i for i, other in enumerate(others) if other.id == beside.id) + after
    if [other.id for other in line].index(job.id) == at:
        raise UserError(f"{title(job)} stands there already")

    def act(daemon: Client, env: Environment) -> str:
        moved = (
            daemon.move(job.id, after=beside.id) if after else daemon.move(job.id, before=beside.id)
        )
        return f"Job {moved.id} stands {'after' if after else 'before'} job {beside.id} now."

    where = f"{'right after' if after else 'right before'} {title(beside)}"
    ahead = f"{counted(at, 'job')} would stand before it" if at else "no job would stand before it"
    rank = (
        f" It takes priority {beside.spec.priority} instead of {job.spec.priority}."
        if beside.spec.priority != job.spec.priority
        else ""
    )
    effect = f"{upper(title(job))} waits; it would stand {where}: {ahead}, of {counted(len(line), 'job')} that wait.{rank}"
    command = f"gpudeck move {job.id} {'--after' if after else '--before'} {beside.id}"
    return PlannedAction(
        f"Move {title(job)}",
        effect,
        (job.id, beside.id, after),
        act,
        (("Command", command),),
        call.with_job(job.id),
        (job.id,),
    )


def _beside(daemon: Client, call: ToolCall, place: str, others: Sequence[Job]) -> tuple[Job, bool]:
    """The job to stand beside, and whether after it."""
    if place in ("first", "last"):
        return (others[0], False) if place == "first" else (others[-1], True)
    named = call.job("other")
    if named is None:
        raise UserError(f"say which job it is to stand {place}: {listed(others)}")
    other = find_job(daemon, named)
    if other.id not in {known.id for known in others}:
        raise UserError(
            f"{title(other)} does not wait, or is the job itself: there is no place {place} it"
        )
    return other, place == "after"


def pause(daemon: Client, call: ToolCall) -> PlannedAction:
    """The queue; or one job, which is held."""
    if call.job() is not None:
        return _hold(daemon, call, True)
    snapshot = daemon.snapshot()
    if snapshot.paused:
        raise UserError("the queue is paused already")
    active = daemon.jobs(MOST, active=True)
    waiting = sum(isinstance(job.state, Queued) for job in active)

    def act(daemon: Client, env: Environment) -> str:
        daemon.pause(True)
        return "The queue is paused: nothing new starts."

    effect = f"Nothing new will start until the queue is resumed. {upper(_going(len(active) - waiting, waiting))}"
    return PlannedAction("Pause the queue", effect, "goes on", act, (("Command", "gpudeck pause"),))


def resume(daemon: Client, call: ToolCall) -> PlannedAction:
    """The queue; or one job that is held."""
    if call.job() is not None:
        return _hold(daemon, call, False)
    if not daemon.snapshot().paused:
        raise UserError("the queue is not paused")
    waiting = sum(isinstance(job.state, Queued) for job in daemon.jobs(MOST, active=True))

    def act(daemon: Client, env: Environment) -> str:
        daemon.pause(False)
        return "The queue goes on."

    told = (
        f"{counted(waiting, 'job')} that {'waits' if waiting == 1 else 'wait'} may start"
        if waiting
        else "No job waits"
    )
    return PlannedAction(
        "Resume the queue",
        f"{told}, as soon as there is room.",
        "paused",
        act,
        (("Command", "gpudeck resume"),),
    )


def _hold(daemon: Client, call: ToolCall, held: bool) -> PlannedAction:
    job = meant(daemon, call, "hold" if held else "release", (Queued,))
    if not isinstance(job.state, Queued):
        raise UserError(
            f"{title(job)} is {job.status}: only jobs that wait can be held and released"
        )
    if job.spec.hold == held:
        raise UserError(f"{title(job)} is {'held already' if held else 'not held'}")

    def act(daemon: Client, env: Environment) -> str:
        daemon.hold(job.id, held)
        return f"Job {job.id} is held." if held else f"Job {job.id} may start."

    effect = f"{upper(title(job))} waits; it {'will not start until it is released' if held else 'may start as soon as there is room'}."
    verb = "pause" if held else "resume"
    details = (("Command", f"gpudeck {verb} {job.id}"),)
    return PlannedAction(
        f"{'Hold' if held else 'Release'} {title(job)}",
        effect,
        (job.id, held),
        act,
        details,
        call.with_job(job.id),
        (job.id,),
    )


def _going(running: int, waiting: int) -> str:
    runs = (
        f"{counted(running, 'job')} {'runs' if running == 1 else 'run'} on"
        if running
        else "no job runs"
    )
    return f"{runs}; {counted(waiting, 'job') if waiting else 'none'} {'waits' if waiting <= 1 else 'wait'}."
