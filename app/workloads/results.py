"""A job's Result, ready for the screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from accel import result as results
from accel.result import Result
from app.format.values import clock, duration, plural, precise, significant
from app.workloads.cells import sensors
from scheduler.protocol.jobs import Job
from scheduler.protocol.snapshot import Snapshot

MOST_SHOWN = 100.0
"""Times the allowed error, from which on a figure says no more."""


@dataclass(frozen=True)
class Card:
    """The result of one job as a card shows it."""

    job: int
    workload: str
    passed: bool
    verdict: str
    tflops: str
    headline: tuple[str, str]
    """The figure that counts most, and what it is: TFLOP/s, of a grid those of its fastest cell; of trials the largest error."""
    timing: tuple[tuple[str, str], ...]
    """Caption and value: median, P95, P99."""
    facts: tuple[tuple[str, str], ...]
    """Caption and value: backend and why, device, checks, versions."""
    params: str


@dataclass(frozen=True)
class Bar:
    """One earlier result in a bar chart."""

    job: int
    tflops: float
    passed: bool
    tooltip: str


def result_of(job: Job) -> Result | None:
    """The Result the job left; None where it left none that can be read."""
    return None if job.result is None else _decode(job.result)


def card(job: Job) -> Card | None:
    """None where the job left no Result."""
    result = result_of(job)
    if result is None:
        return None
    t = result.timing
    timing = (
        ("Median", _ms(t.median)),
        ("P95", _ms(t.p95)),
        ("P99", _ms(t.p99)),
        ("Calls", f"{t.count}"),
    )
    facts = (
        *((("Grid", _grid(result)),) if len(result.cells) > 1 else ()),
        ("Backend", f"{result.backend}: {result.reason}"),
        ("Device", result.device),
        *(
            (
                "Check",
                f"{c.name}: {'' if 'error' in c.name else 'error '}{c.error:.2e}, {'within' if c.passed else 'over'} {c.bound:.2e}",
            )
            for c in result.checks
        ),
        (
            "Sustained",
            f"{significant(result.sustained_tflops)} TFLOP/s over {duration(result.sustained_to - result.sustained_from)}",
        ),
        *((("Sensors", said),) if (said := sensors(result.sensors)) else ()),
        *(("Not measured", text) for text in _misses(result)),
        ("Versions", ", ".join(f"{name} {version}" for name, version in result.versions.items())),
    )
    return Card(
        job.id,
        result.workload,
        _passed(result),
        result.verdict,
        significant(result.tflops),
        _headline(result),
        timing,
        facts,
        _params(result),
    )


def bars(snapshot: Snapshot, workload: str, most: int = 24) -> tuple[Bar, ...]:
    """The results of one workload, oldest first, at most `most` of the newest."""
    found = [(job, result_of(job)) for job in snapshot.jobs if job.spec.workload == workload]
    newest = [(job, result) for job, result in found if result is not None][:most]
    return tuple(_bar(job, result, snapshot.time) for job, result in reversed(newest))


def _bar(job: Job, result: Result, now: float) -> Bar:
    lines = (
        f"job {job.id}, {clock(result.ended, now)}",
        f"{significant(result.tflops)} TFLOP/s, {result.backend}",
        _params(result),
    )
    return Bar(job.id, result.tflops, _passed(result), "\n".join(lines))


def _passed(result: Result) -> bool:
    return result.verdict.partition(":")[0].strip() == "pass"


def _headline(result: Result) -> tuple[str, str]:
    worst = max((cell.trials.worst for cell in result.cells if cell.trials), default=None)
    if worst is not None:
        return (f"{100 * worst:.0f} %" if worst < MOST_SHOWN else "∞"), "of the allowed error"
    return significant(result.tflops), "TFLOP/s at best" if len(result.cells) > 1 else "TFLOP/s"


def _grid(result: Result) -> str:
    timed = [cell for cell in result.cells if cell.tflops]
    text = f"{len(timed)} of {len(result.cells)} measured"
    rates = sorted(cell.tflops for cell in timed)
    return (
        f"{text}, {precise(rates[0])} to {precise(rates[-1])} TFLOP/s; the fastest above"
        if rates
        else text
    )


def _misses(result: Result) -> Iterator[str]:
    """Why cells are empty, once for each backend and reason."""
    found: dict[tuple[str, str], int] = {}
    for cell in result.cells:
        if not cell.tflops and cell.note:
            found[cell.contender, cell.note] = found.get((cell.contender, cell.note), 0) + 1
    for (contender, note), count in found.items():
        yield f"{contender}: {note}" + (
            f" ({plural(count, 'cell')})" if len(result.cells) > 1 else ""
        )


def _ms(value: float) -> str:
    return f"{significant(value)} ms"


def _params(result: Result) -> str:
    words = {True: "yes", False: "no"}
    return ", ".join(
        f"{name} {words[value] if isinstance(value, bool) else value}"
        for name, value in result.params.items()
    )


@lru_cache(maxsize=512)
def _decode(data: bytes) -> Result | None:
    try:
        return results.read(data)
    except msgspec.MsgspecError:
        return None  # some other program's file; the job's page says that there is no result
