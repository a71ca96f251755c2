"""Name the users of jobs."""

from __future__ import annotations

import getpass
import pwd
from collections.abc import Iterable

from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.users import user_name

_PEOPLE = range(1000, 60000)
"""The user ids that Linux distributions give to people; lower ones are for services."""


def user_of(job: Job) -> str:
    """Return the name of a job's user; in a queue of one's own, one's own."""
    return user_name(job.spec.user) if job.spec.user is not None else getpass.getuser()


def users_of(jobs: Iterable[Job]) -> list[str]:
    """Return the users who have jobs."""
    return sorted({user_of(job) for job in jobs})


def people() -> list[str]:
    """Return the users of this machine who are people, as far as it lists them."""
    return [one.pw_name for one in pwd.getpwall() if one.pw_uid in _PEOPLE]
