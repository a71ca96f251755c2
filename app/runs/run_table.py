"""List runs with the parameters in which they differ and their last values, sorted by any."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudeck.accel.result import numbers_in
from gpudeck.app.runs.run_curves import Run
from gpudeck.scheduler.protocol.jobs import Job, Spec

MOST_VALUES = 6
"""The most values that a table shows unless the user names them."""
_OPTION = re.compile(r"--?([A-Za-z][\w.-]{0,40})(?:=(.*))?", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z][\w.-]{0,40})=(.*)", re.DOTALL)


@dataclass(frozen=True)
class RunRow:
    """One run: what it was given, and the last values that it left."""

    job: Job
    parameters: dict[str, str]
    values: dict[str, float]


def run_rows(jobs: Iterable[Job]) -> list[RunRow]:
    """Return a row for each job that left values, with only those parameters that differ."""
    found = ((job, run_values(job)) for job in jobs)
    return _rows([(job, values) for job, values in found if values])


def overlaid_rows(jobs: Iterable[Job], runs: Iterable[Run]) -> list[RunRow]:
    """Return a row for each run with curves, whose values are the newest ones."""
    curves = {run.job: run.curves for run in runs if run.curves}
    newest = {
        number: {name: curve.values[-1] for name, curve in found.items()}
        for number, found in curves.items()
    }
    return _rows([(job, newest[job.id] | run_values(job)) for job in jobs if job.id in newest])


def overlaid_names(runs: Iterable[Run]) -> list[str]:
    """Return the names of curves, those that most runs have first."""
    return [name for name, _ in Counter(n for run in runs for n in run.curves).most_common()]


def _rows(found: Sequence[tuple[Job, dict[str, float]]]) -> list[RunRow]:
    """Return rows with only those parameters that differ."""
    given = [run_parameters(job.spec) for job, _ in found]
    differ = {
        name
        for name in {name for one in given for name in one}
        if len({one.get(name) for one in given}) > 1
    }
    return [
        RunRow(job, {n: v for n, v in one.items() if n in differ}, values)
        for (job, values), one in zip(found, given, strict=True)
    ]


def run_parameters(spec: Spec) -> dict[str, str]:
    """Return what a run was given: its parameters, or options like `--lr 3e-4` and `lr=3e-4`."""
    if spec.params:
        return dict(spec.params)
    found = {} if spec.index is None else {"index": str(spec.index)}
    words = spec.argv[1:]
    for at, word in enumerate(words):
        if option := _OPTION.fullmatch(word):
            following = words[at + 1] if at + 1 < len(words) else "-"
            value = option[2] if option[2] is not None else following
            found[option[1]] = "yes" if option[2] is None and value.startswith("-") else value
        elif assigned := _ASSIGNED.fullmatch(word):
            found[assigned[1]] = assigned[2]
    return found


def run_values(job: Job) -> dict[str, float]:
    """Return the numbers of a job's result by name, first the figures of a workload."""
    return {} if job.result is None else numbers_in(job.result)


def value_names(rows: Sequence[RunRow]) -> tuple[str, ...]:
    """Return the names of values that most rows have."""
    counts = Counter(name for row in rows for name in row.values)
    return tuple(name for name, _ in counts.most_common(MOST_VALUES))


def sorted_rows(rows: Iterable[RunRow], name: str, descending: bool = False) -> list[RunRow]:
    """Return the rows in order of a value or parameter, those without it last."""

    def key(row: RunRow) -> tuple[bool, float, str]:
        value = row.values.get(name)
        given = row.parameters.get(name)
        if value is None and given is not None:
            try:
                value = float(given)
            except ValueError:
                return (False, 0.0, given)
        return (value is None, 0.0 if value is None else -value if descending else value, "")

    return sorted(rows, key=key)
