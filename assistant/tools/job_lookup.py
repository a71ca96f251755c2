"""The jobs that a call names: by number, by name, as the last one, or by their state."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.facts.phrases import plain
from assistant.intents.tool_call import ToolCall
from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.jobs import Job, Queued, Running, Starting
from scheduler.protocol.search import Search

MOST = 1000
"""Jobs looked through for one answer."""
_NAMED = 5
_LISTED = 60


def find_job(daemon: Client, named: int | str) -> Job:
    """By number, or `last`: the newest; else by name, those that wait or run before those that ended.

    Raises NotFound, and UserError where several that wait or run have the name.
    """
    if isinstance(named, int):
        return daemon.job(named)
    if named == "last":
        newest = daemon.jobs(1)
        if not newest:
            raise NotFound("there is no job yet")
        return daemon.job(
            newest[0].id
        )  # all of it: a list has the beginning of a long command only
    active = [job for job in daemon.jobs(MOST, active=True) if _called(job, named)]
    if len(active) > 1:
        raise UserError(
            f"several jobs are called {plain(named, 40)}: {listed(active)}. Say which by its number"
        )
    found = active or [job for job in daemon.find(Search(text=named), 20)[0] if _called(job, named)]
    if not found:
        raise NotFound(f"there is no job called {plain(named, 40)}")
    return daemon.job(found[0].id)


def meant(daemon: Client, call: ToolCall, what: str, states: tuple[type, ...]) -> Job:
    """The job that is named; where none is, the only one in these states. Raises UserError asking which, NotFound."""
    named = call.job()
    if named is not None:
        return find_job(daemon, named)
    found = [job for job in daemon.jobs(MOST, active=True) if isinstance(job.state, states)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(f"there is no job to {what}")
    raise UserError(f"say which job to {what}: {listed(found)}")


def listed(jobs: Sequence[Job]) -> str:
    """Job 7 (train), Job 8 (eval) and 3 more: foreign names, made plain."""
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return ", ".join(title(job) for job in jobs[:_NAMED]) + more


def title(job: Job) -> str:
    """Job 7 (train): its name is foreign text, made plain."""
    return f"job {job.id} ({plain(job.spec.name, _LISTED)})"


ACTIVE = (Queued, Starting, Running)
"""States of jobs that wait or run."""


def _called(job: Job, name: str) -> bool:
    return job.spec.name.casefold() == name.casefold()
