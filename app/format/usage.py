"""Add up what jobs used, by user and week or month."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from gpudeck.app.format.values import NOT_AVAILABLE
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import (
    Done,
    Ended,
    Failed,
    Job,
    Lost,
    Usage,
    held_gpus,
    held_seconds,
)
from gpudeck.scheduler.protocol.search import ENDED, MAX_LISTED, NEWEST, Search
from gpudeck.scheduler.protocol.users import user_name

Period = Literal["week", "month"]
_HOUR = 3600.0
_FORMATS: dict[Period, str] = {"week": "%G-W%V", "month": "%Y-%m"}
"""How a period is written: `2026-W48` by ISO 8601, and `2026-11`."""


class UsageRow(msgspec.Struct):
    """Hold what the jobs of one user that ended in one period used."""

    period: str
    user: str
    jobs: int = 0
    succeeded: int = 0
    gpu_hours: float = 0.0
    """GPUs held, times the time for which they were."""
    cpu_hours: float = 0.0
    """The time of jobs that held no GPU."""
    joules: float | None = None
    """The energy of the devices that the jobs held, as far as readings tell; None where none do."""
    read_hours: float = 0.0
    """The GPU-hours of which the utilisation is known."""
    worked_hours: float = 0.0
    """The GPU-hours in which the GPUs worked: `read_hours` times their utilisation."""
    failed_hours: float = 0.0
    """The GPU-hours of jobs that failed or were lost."""


def ended_jobs(client: Client, since: float) -> Iterator[Job]:
    """Yield the jobs that ended since a moment, the newest first."""
    before: int | None = NEWEST
    search = Search(outcomes=ENDED, since=since)
    while before is not None:
        jobs, before = client.page(search, before, MAX_LISTED)
        yield from jobs


def add_up(jobs: Iterable[Job], by: Period = "month") -> list[UsageRow]:
    """Return the usage by period and user, the newest period first."""
    rows: dict[tuple[str, str], UsageRow] = {}
    for job in jobs:
        state = job.state
        if not isinstance(state, Ended) or (state.started is None and job.usage is None):
            continue  # it never ran
        key = (time.strftime(_FORMATS[by], time.localtime(state.at)), _user(job))
        row = rows.setdefault(key, UsageRow(*key))
        row.jobs += 1
        row.succeeded += isinstance(state, Done)
        gpus, seconds = held_gpus(job), held_seconds(job, state.at)
        hours = gpus * seconds / _HOUR
        row.gpu_hours += hours
        row.failed_hours += hours if isinstance(state, Failed | Lost) else 0.0
        row.cpu_hours += 0.0 if gpus else seconds / _HOUR
        if job.usage is not None:
            _add_readings(row, job.usage, gpus)
    by_user = sorted(rows.values(), key=lambda row: row.user)
    return sorted(by_user, key=lambda row: row.period, reverse=True)


def _add_readings(row: UsageRow, usage: Usage, gpus: int) -> None:
    """Add what was read of the devices that a job held."""
    if "energy" not in usage.absent:
        row.joules = (row.joules or 0.0) + usage.energy
    if "util" not in usage.absent:
        hours = gpus * usage.seconds / _HOUR
        row.read_hours += hours
        row.worked_hours += hours * usage.util / 100


def work_share(row: UsageRow) -> str:
    """Return for which share of their GPU-hours the GPUs worked; – where nothing was read."""
    return f"{100 * row.worked_hours / row.read_hours:.0f} %" if row.read_hours else NOT_AVAILABLE


def _user(job: Job) -> str:
    """Return the name of the job's user; of a queue of one's own, one's own."""
    uid = job.spec.user
    if uid is None:
        place = Client.default_place
        return place.env.get("USER", place.name) if place else getpass.getuser()
    return user_name(uid)
