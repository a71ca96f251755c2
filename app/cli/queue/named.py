"""Find the job that a command names by its number or by its name."""

from __future__ import annotations

from collections.abc import Iterator

from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.search import ACTIVE, Search

_PAGE = 200
"""Jobs that are asked for at a time."""


def latest(client: Client, job: int | str) -> int:
    """Return the number of a job; of those with a name, of the latest. Raises NotFound."""
    if isinstance(job, int):
        return job
    found = next(_with_name(client, job, Search(job)), None)
    if found is None:
        raise NotFound(phrase("there is no job with the name {job}. See: gpudeck jobs", job=job))
    return found.id


def only_active(client: Client, job: int | str) -> int:
    """Return the number of a job; of those with a name, of the only one that waits or runs.

    Raises NotFound, and UserError if several do.
    """
    if isinstance(job, int):
        return job
    found = [each.id for each in _with_name(client, job, Search(job, ACTIVE))]
    if not found:
        raise NotFound(
            phrase("no job with the name {job} waits or runs. See: gpudeck jobs", job=job)
        )
    if len(found) > 1:
        raise UserError(
            phrase(
                "{n} jobs with the name {job} wait or run, from job {first} to job "
                "{last}. Use their numbers",
                n=len(found),
                job=job,
                first=found[-1],
                last=found[0],
            )
        )
    return found[0]


def _with_name(client: Client, name: str, search: Search) -> Iterator[Job]:
    """Yield the jobs with exactly this name, the latest first."""
    found, before = client.find(search, _PAGE)
    while True:
        yield from (job for job in found if job.spec.name == name)
        if before is None:
            return
        found, before = client.find(search, _PAGE, before)
