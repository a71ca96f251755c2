"""Find the jobs and devices that a call names."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.facts.devices import label
from assistant.facts.phrases import plain
from assistant.intents.tool_call import ToolCall
from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.jobs import Job, Queued, Running, Starting, turn
from scheduler.protocol.search import Search
from scheduler.protocol.snapshot import DeviceState, Snapshot

ACTIVE = (Queued, Starting, Running)
"""States of jobs that wait or run."""
MAX_JOBS = 1000
"""Jobs searched for one answer."""
_LISTED = 5
_NAME_LENGTH = 60


def find_job(daemon: Client, named: int | str) -> Job:
    """Return a job by its number or name, or the newest job for `last`.

    Of several jobs with the name, one that waits or runs goes before those that ended.

    Raises:
        NotFound: There is no such job.
        UserError: Several jobs that wait or run have the name.
    """
    if isinstance(named, int):
        return daemon.job(named)
    if named == "last":
        newest = daemon.jobs(1)
        if not newest:
            raise NotFound("there is no job yet")
        return daemon.job(newest[0].id)  # lists cut long commands off
    active = [job for job in daemon.jobs(MAX_JOBS, active=True) if _has_name(job, named)]
    if len(active) > 1:
        name = plain(named, 40)
        raise UserError(
            f"several jobs are called {name}: {list_jobs(active)}. Name one by its number"
        )
    ended = daemon.find(Search(text=named), 20)[0] if not active else ()
    found = active or [job for job in ended if _has_name(job, named)]
    if not found:
        raise NotFound(f"there is no job called {plain(named, 40)}")
    return daemon.job(found[0].id)


def job_in_state(daemon: Client, call: ToolCall, verb: str, states: tuple[type, ...]) -> Job:
    """Return the job that is named, or the only one in these states if none is.

    Raises NotFound, and UserError asking which job is meant.
    """
    named = call.job()
    if named is not None:
        return find_job(daemon, named)
    found = [job for job in daemon.jobs(MAX_JOBS, active=True) if isinstance(job.state, states)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(f"there is no job to {verb}")
    raise UserError(f"name the job to {verb}: {list_jobs(found)}")


def queued_jobs(daemon: Client) -> list[Job]:
    """Return the jobs that wait, in the order of the queue."""
    active = daemon.jobs(MAX_JOBS, active=True)
    return sorted((job for job in active if isinstance(job.state, Queued)), key=turn)


def list_jobs(jobs: Sequence[Job]) -> str:
    """Return jobs in a line, such as `job 7 (train), job 8 (eval) and 3 more`."""
    more = f" and {len(jobs) - _LISTED} more" if len(jobs) > _LISTED else ""
    return ", ".join(title(job) for job in jobs[:_LISTED]) + more


def title(job: Job) -> str:
    """Return a job's number and name, such as `job 7 (train)`; its name is made plain text."""
    return f"job {job.id} ({plain(job.spec.name, _NAME_LENGTH)})"


def named_devices(snapshot: Snapshot, gpu: int | None) -> Sequence[DeviceState]:
    """Return the GPU with this index, or all devices if it is None."""
    return [
        state
        for state in snapshot.devices
        if gpu is None or (state.device.index == gpu and state.device.kind != "cpu")
    ]


def device_labels(daemon: Client) -> dict[str, str]:
    """Return the labels of the devices, such as `GPU 0`, by their ids."""
    return {state.device.id: label(state.device) for state in daemon.snapshot().devices}


def _has_name(job: Job, name: str) -> bool:
    return job.spec.name.casefold() == name.casefold()
