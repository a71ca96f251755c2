"""Print what jobs used, by user and week or month, or write it as CSV or as a page."""

from __future__ import annotations

import csv
import io
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_json, print_line, print_table
from gpudeck.app.format.usage import UsageRow, add_up, ended_jobs, work_share
from gpudeck.app.format.values import NOT_AVAILABLE
from gpudeck.app.report.usage_page import usage_page
from gpudeck.app.runs.person_verdicts import judge_person
from gpudeck.language.numbers import energy
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings

_HEADINGS = ("USER", "JOBS", "SUCCEEDED", "GPU HOURS", "AT WORK", "CPU HOURS", "ENERGY")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the beginning, the length of a period, and the file to write."""
    parser.add_argument(
        "--since",
        type=arguments.moment,
        default=0.0,
        metavar="TIME",
        help="leave out jobs that ended before this time, e.g. 90d or 2026-01-01 (default: leave "
        "out none)",
    )
    parser.add_argument(
        "--by",
        choices=("week", "month"),
        default="month",
        help="add up each week, or each month (default: month)",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write it to FILE: a page if this ends in .html, else CSV"
    )


def run(args: Namespace) -> None:
    """Print a line for each user and period, and verdicts on the newest one."""
    with Client() as client:
        rows = add_up(ended_jobs(client, args.since), args.by)
        settings = client.snapshot(live=False).settings
    if args.out:
        _write(Path(args.out), rows, settings)
        print_line(f"The usage is in {args.out}.")
    elif args.json:
        print_json(rows)
    elif rows:
        heading = (args.by.upper(), *_HEADINGS)
        print_table([heading, *(_cells(row) for row in rows)], right=(2, 3, 4, 5, 6, 7))
        newest = (row for row in rows if row.period == rows[0].period)
        for verdict in (v for row in newest for v in judge_person(row, settings)):
            print_line(f"{verdict.certainty}: {verdict.text}")
    else:
        print_line("No job has ended in this time.")


def _cells(row: UsageRow) -> tuple[str, ...]:
    hours = (f"{row.gpu_hours:.1f}", f"{row.cpu_hours:.1f}")
    used = NOT_AVAILABLE if row.joules is None else energy(row.joules)
    counts = (str(row.jobs), str(row.succeeded))
    return (row.period, row.user, *counts, hours[0], work_share(row), hours[1], used)


def _write(file: Path, rows: list[UsageRow], settings: Settings) -> None:
    def told(row: UsageRow) -> list[str]:
        return [verdict.text for verdict in judge_person(row, settings)]

    text = usage_page(rows, told, time.time()) if file.suffix == ".html" else _csv(rows)
    try:
        file.write_text(text, encoding="utf-8", newline="")
    except OSError as e:
        raise UserError(
            phrase("cannot write {file}: {error}", file=str(file), error=str(e.strerror))
        ) from e


def _csv(rows: list[UsageRow]) -> str:
    fields, text = UsageRow.__struct_fields__, io.StringIO()
    out = csv.writer(text)
    out.writerow(fields)
    out.writerows([getattr(row, field) for field in fields] for row in rows)
    return text.getvalue()
