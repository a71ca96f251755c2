"""A job's Result, ready for the screen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from accel import result as results
from accel.result import Result
from app.models.format import clock, duration, significant
from scheduler.jobs import Job
from scheduler.telemetry.snapshot import Snapshot


@dataclass(frozen=True)
class Card:
    """The result of one job as a card shows it."""

    job: int
    passed: bool
    verdict: str
    tflops: str
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
    timing = (("Median", _ms(t.median)), ("P95", _ms(t.p95)), ("P99", _ms(t.p99)), ("Calls", f"{t.count}"))
    facts = (
        ("Backend", f"{result.backend}: {result.reason}"),
        ("Device", result.device),
        *(("Check", f"{c.name}: error {c.error:.2e}, {'within' if c.passed else 'over'} {c.bound:.2e}") for c in result.checks),
        ("Sustained", f"{significant(result.sustained_tflops)} TFLOP/s over {duration(result.sustained_to - result.sustained_from)}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in result.versions.items())),
    )
    return Card(job.id, _passed(result), result.verdict, significant(result.tflops), timing, facts, _params(result))


def bars(snapshot: Snapshot, workload: str, most: int = 24) -> tuple[Bar, ...]:
    """The results of one workload, oldest first, at most `most` of the newest."""
    found = [(job, result_of(job)) for job in snapshot.jobs if job.spec.workload == workload]
    newest = [(job, result) for job, result in found if result is not None][:most]
    return tuple(_bar(job, result, snapshot.time) for job, result in reversed(newest))


def _bar(job: Job, result: Result, now: float) -> Bar:
    lines = (f"job {job.id}, {clock(result.ended, now)}", f"{significant(result.tflops)} TFLOP/s, {result.backend}", _params(result))
    return Bar(job.id, result.tflops, _passed(result), "\n".join(lines))


def _passed(result: Result) -> bool:
    return result.verdict.partition(":")[0].strip() == "pass"


def _ms(value: float) -> str:
    return f"{significant(value)} ms"


def _params(result: Result) -> str:
    return ", ".join(f"{name} {value}" for name, value in result.params.items())


@lru_cache(maxsize=512)
def _decode(data: bytes) -> Result | None:
    try:
        return results.read(data)
    except msgspec.MsgspecError:
        return None  # some other program's file; the job's page says that there is no result
