"""Find the jobs that a request names by number, by name, or as the newest."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.assistant.facts.phrases import plain
from gpudeck.assistant.query.request import NEWEST, Target
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.search import ENDED, Search

MAX_JOBS = 1000
"""Jobs searched for one answer."""
_LISTED = 5
_SHOWN = 20
"""Jobs of one name in an answer."""


def named_jobs(daemon: Client, targets: Sequence[Target], several: bool = False) -> tuple[Job, ...]:
    """Return the jobs in the order in which they are named, each once.

    Args:
        daemon: A client of the daemon.
        targets: Numbers, names, or NEWEST.
        several: A name may stand for several jobs: those that wait or run, else those that ended.

    Raises:
        NotFound: One of them does not exist.
        UserError: Several jobs have a name, and `several` is not set.
    """
    found: dict[int, Job] = {}
    for target in targets:
        for job in _matching(daemon, target, several):
            found[job.id] = job
    return tuple(found.values())


def _matching(daemon: Client, target: Target, several: bool) -> Sequence[Job]:
    if target == NEWEST:
        newest = daemon.jobs(1)
        if not newest:
            raise NotFound(phrase("there is no job yet"))
        return [daemon.job(newest[0].id)]  # lists cut long commands off
    if isinstance(target, int):
        return [daemon.job(target)]
    active = [job for job in daemon.jobs(MAX_JOBS, active=True) if _has_name(job, target)]
    if len(active) > 1 and not several:
        raise UserError(
            phrase(
                "several jobs are called {name}: {numbers}. Name one by its number",
                name=plain(target, 40),
                numbers=list_jobs(active),
            )
        )
    if active:
        return [daemon.job(job.id) for job in active]
    ended = [job for job in daemon.find(Search(text=target), _SHOWN)[0] if _has_name(job, target)]
    if not ended:
        raise NotFound(phrase("there is no job called {name}", name=plain(target, 40)))
    return [daemon.job(ended[0].id)]


def earlier_run(daemon: Client, job: Job) -> Job | None:
    """Return the newest job before it that has its name and has ended."""
    before: int | None = job.id
    while before is not None:
        search = Search(text=job.spec.name, outcomes=ENDED)
        found, before = daemon.find(search, _SHOWN, before)
        same = [other for other in found if other.spec.name == job.spec.name]
        if same:
            return daemon.job(same[0].id)
    return None


def list_jobs(jobs: Sequence[Job]) -> str:
    """Return jobs in a line, such as `job 7 (train), job 8 (eval) and 3 more`."""
    more = f" and {len(jobs) - _LISTED} more" if len(jobs) > _LISTED else ""
    names = (f"job {job.id} ({plain(job.spec.name, 60)})" for job in jobs[:_LISTED])
    return ", ".join(names) + more


def _has_name(job: Job, name: str) -> bool:
    return job.spec.name.casefold() == name.casefold()
