"""Summarize the Result of a job as texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from gpudeck.accel import result as results
from gpudeck.accel.result import Check, Figure, Result, Sensors
from gpudeck.accel.workloads import catalog
from gpudeck.app.format.values import ago, clock, duration, precise, significant
from gpudeck.app.language.texts import tr, tr_count, tr_decimal, tr_text, tr_whole
from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.progress import printable

_MOST_OWN = 12
"""The members of a job's own result that are shown."""
_PLAIN = 1e-4
"""Smaller errors are written with an exponent."""
MOST_SHOWN = 100.0
"""Larger errors, in multiples of the limit, are shown as ∞."""


@dataclass(frozen=True)
class ResultSummary:
    """The result of one job as texts."""

    job: int
    workload: str
    passed: bool
    verdict: str
    tflops: str
    headline: tuple[str, str]
    """The most important value and its unit: the largest error of trials, else TFLOP/s."""
    timing: tuple[tuple[str, str], ...]
    """Captions and values: median, P95, P99, calls."""
    facts: tuple[tuple[str, str], ...]
    """Captions and values: backend and why it was chosen, device, checks, versions."""
    params: str


@dataclass(frozen=True)
class EarlierResult:
    """One result of the past."""

    job: int
    tflops: float
    passed: bool
    tooltip: str
    when: str = ""
    backend: str = ""
    params: str = ""
    """The parameters in which the listed results differ."""


def result_of(job: Job) -> Result | None:
    """Return the Result that the job left; None if there is none that can be read."""
    return None if job.result is None else _decode(job.result)


def own_lines(members: Mapping[str, Any]) -> list[str]:
    """Return the members of a result that is no Result, with their values, cut where long."""
    return [
        f"{printable(name)[:64]} {printable(msgspec.json.encode(value).decode())[:200]}"
        for name, value in members.items()
    ]


def own_result(job: Job) -> str:
    """Return the values of a job's own result in a line; empty if it left none or a Result."""
    if job.result is None or result_of(job) is not None:
        return ""
    return ", ".join(own_lines(msgspec.json.decode(job.result, type=dict[str, Any]))[:_MOST_OWN])


def summarize_result(job: Job) -> ResultSummary | None:
    """Summarize the Result that the job left, if any."""
    result = result_of(job)
    if result is None:
        return None
    t = result.timing
    timing = (
        (tr("Median"), _ms(t.median)),
        ("P95", _ms(t.p95)),
        ("P99", _ms(t.p99)),
        (tr("Calls"), tr_whole(t.count)),
    )
    return ResultSummary(
        job=job.id,
        workload=result.workload,
        passed=result.passed,
        verdict=tr_text(result.verdict),
        tflops=significant(result.tflops),
        headline=_headline(result),
        timing=timing,
        facts=tuple(_facts(result)),
        params=_listed(_params(result)),
    )


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    if len(result.cells) > 1:
        yield tr("Grid"), _grid(result)
    reason = tr_text(result.reason)
    yield tr("Backend"), tr("{caption} ({value})", caption=result.backend, value=reason)
    yield tr("Ran on"), result.device
    for figure in result.figures:
        yield tr_text(figure.name), f"{precise(figure.value)} {figure.unit}".rstrip()
    for check in result.checks:
        yield tr("Check"), _checked(check)
    seconds = duration(result.sustained_to - result.sustained_from)
    rate = significant(result.sustained_tflops)
    yield tr("Sustained"), tr("{rate} TFLOP/s over {time}", rate=rate, time=seconds)
    if sensors := describe_sensors(result.sensors):
        yield tr("Sensors"), sensors
    for text in _misses(result):
        yield tr("Not measured"), text
    yield (
        tr("Versions"),
        ", ".join(f"{name} {version}" for name, version in result.versions.items()),
    )


def _checked(check: Check) -> str:
    values = {
        "check": tr_text(check.name),
        "error": _error(check.error),
        "limit": _error(check.bound),
    }
    if check.passed:
        return tr("{check}: error {error}, allowed {limit}", **values)
    return tr("{check}: error {error}, above the allowed {limit}", **values)


def _error(value: float) -> str:
    return precise(value) if value >= _PLAIN else tr_decimal(f"{value:.1e}")


def earlier_results(
    jobs: Iterable[Job], workload: str, now: float, most: int = 24
) -> tuple[EarlierResult, ...]:
    """Return the newest results of a workload, at most `most`, oldest first.

    Args:
        jobs: The newest first.
        now: Seconds since the epoch.
    """
    found = [(job, result_of(job)) for job in jobs if job.spec.workload == workload]
    newest = [(job, result) for job, result in found if result is not None][:most]
    known = [_params(result) for _, result in newest]
    common = set.intersection(*(set(params.items()) for params in known)) if known else set()
    return tuple(_earlier(job, result, now, common) for job, result in reversed(newest))


def _earlier(job: Job, result: Result, now: float, common: Set[tuple[str, str]]) -> EarlierResult:
    params = _params(result)
    lines = (
        f"{tr('job {job}', job=job.id)}, {clock(result.ended, now)} ({ago(result.ended, now)})",
        f"{significant(result.tflops)} TFLOP/s, {result.backend}",
        _listed(params),
    )
    when = clock(result.ended, now)
    return EarlierResult(
        job.id,
        result.tflops,
        result.passed,
        "\n".join(lines),
        when,
        result.backend,
        _listed({name: value for name, value in params.items() if (name, value) not in common}),
    )


def _headline(result: Result) -> tuple[str, str]:
    worst = max((cell.trials.worst for cell in result.cells if cell.trials), default=None)
    if worst is not None:
        return (f"{100 * worst:.0f} %" if worst < MOST_SHOWN else "∞"), tr("of the error limit")
    if result.figures:
        return precise(result.figures[0].value), _captioned(result.figures[0])
    unit = tr("TFLOP/s at best") if len(result.cells) > 1 else "TFLOP/s"
    return significant(result.tflops), unit


def _captioned(figure: Figure) -> str:
    return f"{figure.unit} {tr_text(figure.name)}".lstrip()


def _grid(result: Result) -> str:
    timed = [cell for cell in result.cells if cell.tflops]
    text = tr("{n} of {total} measured", n=len(timed), total=len(result.cells))
    rates = sorted(cell.tflops for cell in timed)
    if not rates:
        return text
    return tr(
        "{measured}, {low} to {high} TFLOP/s; fastest shown above",
        measured=text,
        low=precise(rates[0]),
        high=precise(rates[-1]),
    )


def _misses(result: Result) -> Iterator[str]:
    """Explain why cells are empty, once for each backend and reason."""
    found: dict[tuple[str, Message], int] = {}
    for cell in result.cells:
        if not cell.tflops and cell.note:
            found[cell.contender, cell.note] = found.get((cell.contender, cell.note), 0) + 1
    for (contender, note), count in found.items():
        text = tr("{caption}: {value}", caption=contender, value=tr_text(note))
        cells = tr_count("({n} cell)", "({n} cells)", count)
        yield f"{text} {cells}" if len(result.cells) > 1 else text


def _ms(value: float) -> str:
    return f"{significant(value)} ms"


def _params(result: Result) -> dict[str, str]:
    """Return the parameters that mattered for what ran, each with the caption of its field."""
    return {
        name if param is None else tr(param.label): _value(result.params[name])
        for name, param in catalog.told(result.workload, result.params).items()
    }


def _value(value: object) -> str:
    if isinstance(value, bool):
        return tr("yes") if value else tr("no")
    return str(value)


def _listed(params: Mapping[str, str]) -> str:
    return ", ".join(f"{caption} {value}" for caption, value in params.items())


@lru_cache(maxsize=512)
def _decode(data: bytes) -> Result | None:
    try:
        return results.read(data)
    except msgspec.MsgspecError:
        return None  # the file of another program; the job page reports that there is no result


def describe_sensors(s: Sensors) -> str:
    """Describe what was read: `1755 MHz, 640 W, 61 °C, 0.98 J per TFLOP`; empty for nothing."""
    parts = [
        (s.sm_mhz, ".0f", "MHz"),
        (s.true_mhz, ".0f", tr("MHz measured by a kernel")),
        (s.watts, ".0f", "W"),
        (s.celsius, ".0f", "°C"),
        (s.joules_per_tflop, ".3g", tr("J per TFLOP")),
    ]
    known = (f"{value:{form}} {unit}" for value, form, unit in parts if value is not None)
    return ", ".join(map(tr_decimal, known))
