"""Add up what jobs used, by user and month, as a table or as CSV."""

from __future__ import annotations

import csv
import getpass
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_json, print_line, print_table
from gpudeck.app.format.values import NOT_AVAILABLE
from gpudeck.language.numbers import energy
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Ended, Job, held_gpus, held_seconds
from gpudeck.scheduler.protocol.search import ENDED, MAX_LISTED, NEWEST, Search
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


def add_arguments(parser: ArgumentParser) -> None:
    """Add the beginning, and the file to write."""
    parser.add_argument(
        "--since",
        type=arguments.moment,
        default=0.0,
        metavar="TIME",
        help="leave out jobs that ended before this time, e.g. 90d or 2026-01-01 (default: leave "
        "out none)",
    )
    parser.add_argument("--out", metavar="FILE", help="write the table to FILE, as CSV")


def run(args: Namespace) -> int:
    """Print a line for each user and month."""
    with Client() as client:
        rows = add_up(_ended_jobs(client, args.since))
    if args.out:
        _write(Path(args.out), rows)
        print_line(f"The usage is in {args.out}.")
    elif args.json:
        print_json(rows)
    elif rows:
        heading = ("MONTH", "USER", "JOBS", "SUCCEEDED", "GPU HOURS", "CPU HOURS", "ENERGY")
        print_table([heading, *(_cells(row) for row in rows)], right=(2, 3, 4, 5, 6))
    else:
        print_line("No job has ended in this time.")
    return 0


def add_up(jobs: Iterable[Job]) -> list[UsageRow]:
    """Return the usage by month and user, the newest month first."""
    rows: dict[tuple[str, str], UsageRow] = {}
    for job in jobs:
        state = job.state
        if not isinstance(state, Ended) or state.started is None:
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


def _ended_jobs(client: Client, since: float) -> Iterator[Job]:
    before: int | None = NEWEST
    search = Search(outcomes=ENDED, since=since)
    while before is not None:
        jobs, before = client.page(search, before, MAX_LISTED)
        yield from jobs


def _user(job: Job) -> str:
    """Return the name of the job's user; of a queue of one's own, one's own."""
    uid = job.spec.user
    if uid is None:
        place = Client.default_place
        return place.env.get("USER", place.name) if place else getpass.getuser()
    return user_name(uid)


def _cells(row: UsageRow) -> tuple[str, ...]:
    hours = (f"{row.gpu_hours:.1f}", f"{row.cpu_hours:.1f}")
    used = NOT_AVAILABLE if row.joules is None else energy(row.joules)
    return (row.month, row.user, str(row.jobs), str(row.succeeded), *hours, used)


def _write(file: Path, rows: list[UsageRow]) -> None:
    fields = UsageRow.__struct_fields__
    try:
        with file.open("w", newline="") as f:
            out = csv.writer(f)
            out.writerow(fields)
            out.writerows([getattr(row, field) for field in fields] for row in rows)
    except OSError as e:
        raise UserError(f"cannot write {file}: {e.strerror}") from e
