"""List runs with their last values, sorted by any of them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_json, print_line, print_table
from gpudeck.app.cli.queue.jobs import MAX_NAME, shortened
from gpudeck.app.format.job_rows import job_row
from gpudeck.app.format.values import precise
from gpudeck.app.runs.run_table import RunRow, run_rows, sorted_rows, value_names
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.search import Search


def add_arguments(parser: ArgumentParser) -> None:
    """Add which runs to list, which values to show, and their order."""
    add = parser.add_argument
    add("--search", default="", metavar="TEXT", help="words that all occur in the job")
    add("--group", metavar="NAME", help="list only the jobs of this group")
    add("--sort", metavar="NAME", help="sort by this value or parameter, the lowest first")
    add("--descending", action="store_true", help="sort the highest first")
    add(
        "--values",
        type=lambda text: tuple(filter(None, text.split(","))),
        metavar="NAME,...",
        help="the values to show (default: those that most runs have)",
    )
    add(
        "--limit",
        type=arguments.positive_count,
        default=50,
        metavar="N",
        help="look at so many of the newest jobs that match (default: 50)",
    )


def run(args: Namespace) -> None:
    """Print a table of runs."""
    if args.descending and not args.sort:
        raise UsageError("--descending goes with --sort NAME")
    with Client() as client:
        jobs = client.find(Search(args.search, (), args.group), args.limit)[0]
        now = client.snapshot(live=False).time
    rows = run_rows(jobs)
    if args.sort:
        names = {name for row in rows for name in (*row.values, *row.parameters)}
        if args.sort not in names:
            known = ", ".join(sorted(names)) or "none"
            raise UsageError(f"no run has a value {args.sort!r}. There are: {known}")
        rows = sorted_rows(rows, args.sort, args.descending)
    if args.json:
        print_json([_printed(row) for row in rows])
    elif rows:
        _print_rows(rows, args.values or _names(rows, args.sort), now)
    else:
        print_line("No job that matches left values. See the manual page Training.")


def _names(rows: list[RunRow], first: str | None) -> tuple[str, ...]:
    """Return the values to show: first the one that the rows are sorted by."""
    names = value_names(rows)
    is_value = first is not None and any(first in row.values for row in rows)
    return tuple(dict.fromkeys((first, *names))) if is_value and first is not None else names


def _printed(row: RunRow) -> dict[str, object]:
    return {
        "job": row.job.id,
        "name": row.job.spec.name,
        "state": row.job.status,
        "parameters": row.parameters,
        "values": row.values,
    }


def _print_rows(rows: list[RunRow], names: tuple[str, ...], now: float) -> None:
    given = tuple(dict.fromkeys(name for row in rows for name in row.parameters))
    table = [("JOB", "NAME", "STATE", "TIME", *given, *names)]
    for row in rows:
        shown = job_row(row.job, {}, now)
        values = [precise(row.values[name]) if name in row.values else "–" for name in names]
        parameters = [shortened(row.parameters.get(name, "–"), MAX_NAME) for name in given]
        name = shortened(row.job.spec.name, MAX_NAME)
        table.append((str(row.job.id), name, row.job.status, shown.duration, *parameters, *values))
    print_table(table, right=(0, *range(4 + len(given), 4 + len(given) + len(names))))
