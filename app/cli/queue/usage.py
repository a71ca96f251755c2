"""Print what jobs used, by user and month, or write it as CSV or as a page."""

from __future__ import annotations

import csv
import io
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_json, print_line, print_table
from gpudeck.app.format.usage import UsageRow, add_up
from gpudeck.app.format.values import NOT_AVAILABLE
from gpudeck.app.report.usage_page import usage_page
from gpudeck.language.numbers import energy
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.search import ENDED, MAX_LISTED, NEWEST, Search


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
    parser.add_argument(
        "--out", metavar="FILE", help="write it to FILE: a page if this ends in .html, else CSV"
    )


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


def _ended_jobs(client: Client, since: float) -> Iterator[Job]:
    before: int | None = NEWEST
    search = Search(outcomes=ENDED, since=since)
    while before is not None:
        jobs, before = client.page(search, before, MAX_LISTED)
        yield from jobs


def _cells(row: UsageRow) -> tuple[str, ...]:
    hours = (f"{row.gpu_hours:.1f}", f"{row.cpu_hours:.1f}")
    used = NOT_AVAILABLE if row.joules is None else energy(row.joules)
    return (row.month, row.user, str(row.jobs), str(row.succeeded), *hours, used)


def _write(file: Path, rows: list[UsageRow]) -> None:
    text = usage_page(rows, time.time()) if file.suffix == ".html" else _csv(rows)
    try:
        file.write_text(text, encoding="utf-8", newline="")
    except OSError as e:
        raise UserError(f"cannot write {file}: {e.strerror}") from e


def _csv(rows: list[UsageRow]) -> str:
    fields, text = UsageRow.__struct_fields__, io.StringIO()
    out = csv.writer(text)
    out.writerow(fields)
    out.writerows([getattr(row, field) for field in fields] for row in rows)
    return text.getvalue()
