"""Collect the curves of one run: the values that the job printed, and its event files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudeck.app.charts.printed_curves import MOST_POINTS, PrintedCurves
from gpudeck.app.runs.event_files import MOST_BYTES, PATTERN, created, scalars
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job

MOST_NAMES = 64
"""The most curves of a run."""
_LOG_PART, _MOST_LOG = 2**20, 32 * 2**20
"""Bytes of the log that are read at once, and in all: the last ones."""
MOST_FILES, _DEEPEST = 50, 4
"""The most event files of a run, and the depth of folders in which they are searched."""


@dataclass(frozen=True)
class RunCurve:
    """The values of one name in order of their steps, [n] each."""

    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """One job with its curves by name."""

    job: int
    name: str
    curves: Mapping[str, RunCurve]


def read_run(client: Client, number: int) -> Run:
    """Return the curves of a job. Raises NotFound, and UserError where its log cannot be read."""
    job = client.job(number)
    found = _printed(client, job) if job.started is not None else {}
    if client.place is None and not job.spec.where:
        found |= event_curves(event_files(job, _artefacts(client, number)))
    return Run(job.id, job.spec.name, dict(list(found.items())[:MOST_NAMES]))


def _printed(client: Client, job: Job) -> dict[str, RunCurve]:
    printed, at = PrintedCurves(MOST_NAMES), -_MOST_LOG
    while True:
        start, data, end = client.log_part(job.id, at, _LOG_PART)
        if not data:
            break
        if at < 0 and start > 0:  # begin with a whole line
            data = data[data.find(b"\n") + 1 :]
        printed.feed(data)
        at = end
    printed.feed(b"\n")
    return printed_curves(printed)


def printed_curves(printed: PrintedCurves) -> dict[str, RunCurve]:
    """Return what was printed so far in order of its steps; at the same step, the newest value."""
    return {
        name: _curve(dict(zip(steps.tolist(), values.tolist(), strict=True)))
        for name, (steps, values) in printed.points.items()
    }


def _artefacts(client: Client, number: int) -> Sequence[Path]:
    try:
        return client.artefacts(number)
    except UserError:  # another user's
        return ()


def event_files(job: Job, artefacts: Iterable[Path]) -> list[Path]:
    """Return the event files that a job wrote: its artefacts, and those below its folder.

    Those below its folder are taken for its own if they were begun, as their names say, and
    written while it ran.
    """
    found = [file for file in artefacts if file.match(PATTERN)]
    began, until = job.started, job.ended
    if began is not None:
        for depth in range(_DEEPEST):
            for file in Path(job.spec.cwd).glob("*/" * depth + PATTERN):
                at = created(file)  # in whole seconds
                if at is not None and int(began) <= at <= (until or at) and _written(file) >= began:
                    found.append(file)
    return sorted(set(found))[:MOST_FILES]


def _written(file: Path) -> float:
    """Return when a file was last written, in seconds since the epoch; 0 if it is gone."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def event_curves(files: Iterable[Path]) -> dict[str, RunCurve]:
    """Return the curves of event files; of several values at one step, the last one."""
    points: dict[str, dict[float, float]] = {}
    left = MOST_BYTES
    for file in files:
        try:
            for name, step, value in scalars(file, left):
                if name in points or len(points) < MOST_NAMES:
                    points.setdefault(name, {})[step] = value
            left -= min(left, file.stat().st_size)
        except OSError:
            continue  # it was removed meanwhile, or belongs to another user
    return {name: _curve(found) for name, found in points.items()}


def _curve(found: Mapping[float, float]) -> RunCurve:
    """Return values by their steps as a curve; of too many, every second one is left out."""
    points = sorted(found.items())
    while len(points) > MOST_POINTS:
        points = points[::2]
    steps, values = zip(*points, strict=True)
    return RunCurve(tuple(map(float, steps)), values)
