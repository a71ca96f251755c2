"""Tools that plan changes to the queue: move, hold and release jobs; pause and resume the queue."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.intents.tool_call import ToolCall
from assistant.tools.lookup import (
    MAX_JOBS,
    find_job,
    job_in_state,
    list_jobs,
    queued_jobs,
    title,
)
from assistant.tools.tool import Environment, PlannedAction, ToolContext, Tools
from assistant.writing.template.sentences import counted, upper
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job, Queued


def move(context: ToolContext, call: ToolCall) -> PlannedAction:
    """Plan to give a job another place among those that wait."""
    job = job_in_state(context.daemon, call, "move", (Queued,))
    if not isinstance(job.state, Queued):
        raise UserError(f"{title(job)} is {job.status}: only jobs that wait can be moved")
    queue = queued_jobs(context.daemon)
    others = [other for other in queue if other.id != job.id]
    if not others:
        raise UserError(f"{title(job)} is the only job that waits, so it is next already")
    place = call.text("place") or "first"
    neighbour, after = _neighbour(context.daemon, call, place, others)
    index = next(i for i, other in enumerate(others) if other.id == neighbour.id) + after
    if [other.id for other in queue].index(job.id) == index:
        raise UserError(f"{title(job)} has that place already")

    def carry_out(daemon: Client, env: Environment) -> str:
        if after:
            moved = daemon.move(job.id, after=neighbour.id)
        else:
            moved = daemon.move(job.id, before=neighbour.id)
        return f"Job {moved.id} is now {side} job {neighbour.id}."

    side = "after" if after else "before"
    ahead = (
        f"{counted(index, 'job')} will be ahead of it" if index else "No job will be ahead of it"
    )
    priority = ""
    if neighbour.spec.priority != job.spec.priority:
        priority = f" Its priority changes from {job.spec.priority} to {neighbour.spec.priority}."
    return PlannedAction(
        f"Move {title(job)}",
        f"{upper(title(job))} waits; it will be moved right {side} {title(neighbour)}. {ahead}, "
        f"of {counted(len(queue), 'job')} that wait.{priority}",
        (job.id, neighbour.id, after),
        carry_out,
        (("Command", f"gpudeck move {job.id} --{side} {neighbour.id}"),),
        call.with_job(job.id),
        (job.id,),
    )


def _neighbour(
    daemon: Client, call: ToolCall, place: str, others: Sequence[Job]
) -> tuple[Job, bool]:
    """Return the job next to the new place, and whether the place is after it."""
    if place in ("first", "last"):
        return (others[0], False) if place == "first" else (others[-1], True)
    named = call.job("other")
    if named is None:
        raise UserError(f"name the job {place} which it should run: {list_jobs(others)}")
    other = find_job(daemon, named)
    if other.id not in {known.id for known in others}:
        raise UserError(f"{title(other)} does not wait, or is the job itself: name another one")
    return other, place == "after"


def pause(context: ToolContext, call: ToolCall) -> PlannedAction:
    """Plan to pause the queue, or to hold the job that is named."""
    if call.job() is not None:
        return _hold(context, call, True)
    if context.daemon.snapshot().paused:
        raise UserError("the queue is paused already")
    active = context.daemon.jobs(MAX_JOBS, active=True)
    waiting = sum(isinstance(job.state, Queued) for job in active)

    def carry_out(daemon: Client, env: Environment) -> str:
        daemon.pause(True)
        return "The queue is paused: no job will start."

    return PlannedAction(
        "Pause the queue",
        "No job will start until the queue is resumed. "
        f"{_count(len(active) - waiting, 'keeps running', 'keep running')}; "
        f"{_count(waiting, 'waits', 'wait')}.",
        "goes on",
        carry_out,
        (("Command", "gpudeck pause"),),
    )


def resume(context: ToolContext, call: ToolCall) -> PlannedAction:
    """Plan to resume the queue, or to release the job that is named."""
    if call.job() is not None:
        return _hold(context, call, False)
    if not context.daemon.snapshot().paused:
        raise UserError("the queue is not paused")
    waiting = len(queued_jobs(context.daemon))

    def carry_out(daemon: Client, env: Environment) -> str:
        daemon.pause(False)
        return "The queue is resumed."

    started = " Jobs will start as soon as there is room." if waiting else ""
    return PlannedAction(
        "Resume the queue",
        f"{upper(_count(waiting, 'waits', 'wait'))}.{started}",
        "paused",
        carry_out,
        (("Command", "gpudeck resume"),),
    )


def _hold(context: ToolContext, call: ToolCall, held: bool) -> PlannedAction:
    """Plan to hold or to release one job."""
    verb = "hold" if held else "release"
    job = job_in_state(context.daemon, call, verb, (Queued,))
    if not isinstance(job.state, Queued):
        raise UserError(
            f"{title(job)} is {job.status}: only jobs that wait can be held or released"
        )
    if job.spec.hold == held:
        raise UserError(f"{title(job)} is {'held already' if held else 'not held'}")

    def carry_out(daemon: Client, env: Environment) -> str:
        daemon.hold(job.id, held)
        return f"Job {job.id} is held." if held else f"Job {job.id} is released."

    effect = "will not start until it is released" if held else "may start as soon as there is room"
    command = f"gpudeck {'pause' if held else 'resume'} {job.id}"
    return PlannedAction(
        f"{upper(verb)} {title(job)}",
        f"{upper(title(job))} waits; it {effect}.",
        (job.id, held),
        carry_out,
        (("Command", command),),
        call.with_job(job.id),
        (job.id,),
    )


def _count(count: int, one: str, many: str) -> str:
    return f"{counted(count, 'job') if count else 'no job'} {many if count > 1 else one}"


TOOLS: Tools = {
    ("operate", "move"): move,
    ("operate", "pause"): pause,
    ("operate", "resume"): resume,
}
