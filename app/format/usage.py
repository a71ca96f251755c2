"""Add up what jobs used, by user and month."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterable

import msgspec

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Done, Ended, Job, held_gpus, held_seconds
from gpudeck.scheduler.protocol.users import user_name

_HOUR = 3600.0


class UsageRow(msgspec.Struct):
    """Hold what the jobs of one user that ended in one month used."""

    month: str
    user: str
    jobs: int = 0
    succeeded: int = 0
    gpu_hours: float = 0.0
    """GPUs held, times the time for which they were."""
    cpu_hours: float = 0.0
    """The time of jobs that held no GPU."""
    joules: float | None = None
    """The energy of the devices that the jobs held, as far as readings tell; None where none do."""


def add_up(jobs: Iterable[Job]) -> list[UsageRow]:
    """Return the usage by month and user, the newest month first."""
    rows: dict[tuple[str, str], UsageRow] = {}
    for job in jobs:
        state = job.state
        if not isinstance(state, Ended) or (state.started is None and job.usage is None):
            continue  # it never ran
        key = (time.strftime("%Y-%m", time.localtime(state.at)), _user(job))
        row = rows.setdefault(key, UsageRow(*key))
        row.jobs += 1
        row.succeeded += isinstance(state, Done)
        gpus, seconds = held_gpus(job), held_seconds(job, state.at)
        row.gpu_hours += gpus * seconds / _HOUR
        row.cpu_hours += 0.0 if gpus else seconds / _HOUR
        if job.usage is not None and "energy" not in job.usage.absent:
            row.joules = (row.joules or 0.0) + job.usage.energy
    by_user = sorted(rows.values(), key=lambda row: row.user)
    return sorted(by_user, key=lambda row: row.month, reverse=True)


def _user(job: Job) -> str:
    """Return the name of the job's user; of a queue of one's own, one's own."""
    uid = job.spec.user
    if uid is None:
        place = Client.default_place
        return place.env.get("USER", place.name) if place else getpass.getuser()
    return user_name(uid)
