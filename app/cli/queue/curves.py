"""Print the curves of what jobs printed or wrote to event files, several runs beside each other."""

from __future__ import annotations

import csv
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_json, print_line, print_table
from gpudeck.app.cli.queue.jobs import MAX_NAME, shortened
from gpudeck.app.format.values import precise
from gpudeck.app.runs.run_curves import Run, RunCurve, read_run
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError

_BARS = "▁▂▃▄▅▆▇█"
_HEADING = ("VALUE", "JOB", "NAME", "CURVE", "STEPS", "FIRST", "LOWEST", "HIGHEST", "LAST")
_WIDTH = 32
"""The characters of a curve."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the jobs, which values to show, and the file to write."""
    add = parser.add_argument
    add("jobs", type=arguments.count, nargs="+", metavar="JOB", help="the numbers of the jobs")
    add(
        "--value",
        action="append",
        default=[],
        metavar="NAME",
        help="show only this value; may be given several times",
    )
    add("--out", metavar="FILE", help="write all points to a CSV file")


def run(args: Namespace) -> None:
    """Print the curves."""
    with Client() as client:
        runs = [read_run(client, number) for number in dict.fromkeys(args.jobs)]
    names = list(dict.fromkeys(name for one in runs for name in one.curves))
    if not names:
        raise UserError(
            phrase(
                "these jobs printed no values and wrote no event files. See the "
                "manual page Training"
            )
        )
    if unknown := [name for name in args.value if name not in names]:
        raise UserError(
            phrase(
                "no run has a value {name}. There are: {names}",
                name=repr(unknown[0]),
                names=", ".join(names),
            )
        )
    names = args.value or names
    if args.out:
        _write(runs, names, Path(args.out))
        print_line(f"The curves are in {args.out}.")
    elif args.json:
        print_json([{"job": r.job, "name": r.name, "curves": r.curves} for r in runs])
    else:
        _print(runs, names)


def _print(runs: Sequence[Run], names: Sequence[str]) -> None:
    """Print a line for each value and run; the curves of a value share one scale."""
    table: list[Sequence[str]] = [_HEADING]
    for name in names:
        found = [(one, one.curves[name]) for one in runs if name in one.curves]
        low = min(min(curve.values) for _, curve in found)
        high = max(max(curve.values) for _, curve in found)
        for one, curve in found:
            values = curve.values
            numbers = (values[0], min(values), max(values), values[-1])
            table.append((
                name, str(one.job), shortened(one.name, MAX_NAME), _drawn(curve, low, high),
                f"{curve.steps[-1]:g}", *map(precise, numbers),
            ))  # fmt: skip
    print_table(table, right=(1, 4, 5, 6, 7, 8))


def _drawn(curve: RunCurve, low: float, high: float) -> str:
    """Return a curve as characters, at equal distances of steps."""
    at = np.linspace(curve.steps[0], curve.steps[-1], min(_WIDTH, len(curve.steps)))
    values = np.interp(at, curve.steps, curve.values)
    shares = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return "".join(_BARS[round(float(share) * (len(_BARS) - 1))] for share in shares)


def _write(runs: Sequence[Run], names: Sequence[str], file: Path) -> None:
    """Write a row for each point. Raises UserError."""
    try:
        with file.open("w", newline="") as out:
            rows = csv.writer(out)
            rows.writerow(("job", "name", "value", "step", "number"))
            for one in runs:
                for name in names:
                    curve = one.curves.get(name, RunCurve((), ()))
                    for step, value in zip(curve.steps, curve.values, strict=True):
                        rows.writerow((one.job, one.name, name, step, value))
    except OSError as e:
        raise UserError(
            phrase("cannot write {file}: {error}", file=str(file), error=str(e.strerror))
        ) from e
