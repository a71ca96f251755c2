"""Judge how the jobs of one person used the GPUs in a week or a month, from what was added up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudeck.app.format.usage import UsageRow
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.runs.verdicts import Verdict, cost_of
from gpudeck.language.numbers import energy
from gpudeck.scheduler.protocol.settings import Settings

TOLD_SHARE = 0.1
"""The share of all GPU-hours from which on those of failed jobs are told of."""
LEAST_HOURS = 0.1
"""Nothing is told of somebody who held GPUs for less."""


def judge_person(row: UsageRow, settings: Settings) -> tuple[Verdict, ...]:
    """Return the verdicts on what the jobs of one person used in one period."""
    return _measured((*_work(row), *_failures(row), *_energy(row, settings)))


def judge_beyond_figures(row: UsageRow, settings: Settings) -> tuple[Verdict, ...]:
    """Return the verdicts that say more than a table with the share of work and the energy."""
    return _measured((*_failures(row), *(_energy(row, settings) if settings.energy_price else ())))


def _measured(texts: Iterable[str]) -> tuple[Verdict, ...]:
    return tuple(Verdict("measured", text) for text in texts)


def _work(row: UsageRow) -> Iterator[str]:
    if row.gpu_hours >= LEAST_HOURS and row.read_hours:
        yield tr(
            "{user}, {period}: the GPUs worked for {share} % of {hours} GPU-hours",
            user=row.user,
            period=row.period,
            share=f"{100 * row.worked_hours / row.read_hours:.0f}",
            hours=_hours(row.gpu_hours),
        )


def _failures(row: UsageRow) -> Iterator[str]:
    if row.gpu_hours >= LEAST_HOURS and row.failed_hours >= TOLD_SHARE * row.gpu_hours:
        yield tr(
            "{user}, {period}: jobs that failed held GPUs for {failed} of {hours} GPU-hours",
            user=row.user,
            period=row.period,
            failed=_hours(row.failed_hours),
            hours=_hours(row.gpu_hours),
        )


def _energy(row: UsageRow, settings: Settings) -> Iterator[str]:
    if row.joules:
        used = tr_decimal(energy(row.joules))
        if settings.energy_price:
            cost = cost_of(row.joules, settings)
            used = tr("{energy}: {cost} {unit}", energy=used, cost=cost, unit=settings.currency)
        yield tr(
            "{user}, {period}: the jobs used {energy}",
            user=row.user,
            period=row.period,
            energy=used,
        )


def _hours(hours: float) -> str:
    return tr_decimal(f"{hours:.1f}")
