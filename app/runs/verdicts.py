"""Judge how a job used its devices, from readings: each verdict is measured, or likely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from gpudeck.app.charts.series import Floats
from gpudeck.app.format.job_rows import device_labels
from gpudeck.app.format.peak_share import PeakShare, peak_share
from gpudeck.app.format.results import result_of
from gpudeck.app.format.values import GIB, duration, significant
from gpudeck.app.language.texts import tr, tr_decimal, tr_list, tr_noop, tr_text
from gpudeck.language.numbers import energy
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Columns

FIELDS = ("util", "mem_used", "mem_total", "tflops", "pcie_rx", "pcie_tx")
POINTS = 600
IDLE_BELOW, IDLE_SHARE = 10.0, 0.2
"""Percent of utilisation below which a device is idle, and the share of the time to tell of."""
SHORT_S = 30.0
"""Nothing is told of pauses of a job that ran for less."""
HANG_S = 300.0
"""Seconds without utilisation and progress after which a job may hang."""
LEAK_FIT, LEAK_SHARE, LEAK_POINTS = 0.9, 0.05, 20
"""How well memory must lie on a rising line (R²), how much of all memory it must grow by in the
second half of the time, and the least readings of that half."""
EDGE_SHARE = 0.5
"""The share of all idle time at the begin or the end from which on that is what is told of."""
REGULAR_GAPS, REGULAR_SPREAD = 5, 0.4
"""The least pauses that can be regular, and how much the times between them may differ, as the
standard deviation in shares of the mean."""
FULL_SHARE, SPILL_RATE, SPILL_TIME = 0.95, 2e9, 0.2
"""The used share of the memory and the bytes a second over PCIe from which on a job may work from
host memory, and for which share of its time it must."""
THROTTLE_SHARE = 0.02
"""The share of the time from which on limited clocks are reported."""

Certainty = Literal["measured", "likely"]
CERTAINTIES = (tr_noop("measured"), tr_noop("likely"))


@dataclass(frozen=True)
class Verdict:
    """One verdict with its evidence, as a sentence."""

    certainty: Certainty
    text: str


def read_verdicts(client: Client, number: int) -> tuple[Verdict, ...]:
    """Return the verdicts on a job that began. Raises NotFound, UserError."""
    job, snapshot = client.job(number), client.snapshot(live=False)
    began, labels = job.started, device_labels(snapshot)
    if began is None or isinstance(job.state, Queued):
        return ()
    until = job.ended or snapshot.time
    held = {d: client.history(d, FIELDS, began, until, POINTS) for d in job.state.devices}
    notes = client.annotations(began, until)
    cards = {state.device.id: state.device.name for state in snapshot.devices}
    return judge(job, held, notes, labels, snapshot.settings, until, cards)


def judge(
    job: Job,
    held: Mapping[str, Columns],
    notes: Iterable[Annotation],
    labels: Mapping[str, str],
    settings: Settings,
    until: float,
    cards: Mapping[str, str] | None = None,
) -> tuple[Verdict, ...]:
    """Return the verdicts on a job.

    Args:
        held: What was read of its devices while it had them.
        notes: What happened meanwhile.
        labels: The labels of the devices.
        until: When it ended, or now.
        cards: The names that the driver gives to the devices, from which their peaks follow.
    """
    began = job.started or until
    found: list[Verdict | None] = []
    for device, columns in held.items():
        name, times = labels.get(device, device), np.asarray(columns.times)
        util, used, total, rate, rx, tx = (_column(columns, field) for field in FIELDS)
        card = (cards or {}).get(device, "")
        found += [
            _counted_rate(job, name, card, util, rate),
            _hanging(job, name, times, util, until) or _idle(name, util, until - began),
            _why_idle(job, name, times, util, until),
            _leaking(name, times, used, total) if job.active else None,
            _spilling(name, used, total, rx + tx),
        ]
    found.insert(0, _result_rate(job))
    found += [_throttled(labels, held, notes, began, until), _energy(job, settings)]
    return tuple(verdict for verdict in found if verdict is not None)


def _column(columns: Columns, field: str) -> Floats:
    values = columns.columns.get(field) or [None] * len(columns.times)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _idle(name: str, util: Floats, seconds: float) -> Verdict | None:
    known = util[~np.isnan(util)]
    share = float(np.mean(known < IDLE_BELOW)) if len(known) else 0.0
    if share < IDLE_SHARE or seconds < SHORT_S:
        return None
    gaps = sum(1 for idle, _ in groupby(known < IDLE_BELOW) if idle)
    return Verdict(
        "measured",
        tr(
            "{device} did nothing for {share} % of the time: {time} in all; pauses: {n}",
            device=name,
            share=f"{100 * share:.0f}",
            time=duration(share * seconds),
            n=gaps,
        ),
    )


def _result_rate(job: Job) -> Verdict | None:
    """Return which share of the card's peak the job reached by its own result."""
    result = result_of(job)
    if result is None or not result.tflops:
        return None
    found = peak_share(result.device, result.tflops, str(result.params.get("dtype", "")))
    if found is None:
        return None
    text = tr(
        "It reached {rate} TFLOP/s, {percent} % of the card's peak ({peak} for {precision})",
        **_peak_values(result.tflops, found),
    )
    return Verdict("measured", text)


def _peak_values(rate: float, found: PeakShare) -> dict[str, str]:
    return {
        "rate": significant(rate),
        "percent": f"{found.percent:.0f}",
        "peak": significant(found.peak),
        "precision": found.precision,
    }


def _counted_rate(job: Job, name: str, card: str, util: Floats, rate: Floats) -> Verdict | None:
    """Return the share of the peak by the readings, whose precision is not known."""
    busy = rate[(np.nan_to_num(util) >= IDLE_BELOW) & (np.nan_to_num(rate) > 0)]
    if result_of(job) is not None or not len(busy):
        return None
    mean = float(busy.mean())
    found = peak_share(card, mean)
    if found is None:
        return None
    text = tr(
        "Busy, {device} computed {rate} TFLOP/s, {percent} % of its peak ({peak} for {precision})",
        device=name,
        **_peak_values(mean, found),
    )
    return Verdict("likely", text)


def _why_idle(job: Job, name: str, times: Floats, util: Floats, until: float) -> Verdict | None:
    """Return the likely cause of idle time: before or after the work, or at regular pauses."""
    began, known = job.started or until, ~np.isnan(util)
    times, busy = times[known], util[known] >= IDLE_BELOW
    if not busy.any() or np.mean(~busy) < IDLE_SHARE or until - began < SHORT_S:
        return None
    first, last = int(np.argmax(busy)), len(busy) - 1 - int(np.argmax(busy[::-1]))
    idle = float(np.mean(~busy)) * (until - began)
    before, after = float(times[first]) - began, until - float(times[last])
    if before >= EDGE_SHARE * idle:
        text = tr("It loaded data or a model first: {device} began to compute after {time}",
                  device=name, time=duration(before))  # fmt: skip
    elif not job.active and after >= EDGE_SHARE * idle:
        text = tr("It did something else at the end: {device} last computed {time} before",
                  device=name, time=duration(after))  # fmt: skip
    else:
        ends = times[first : last + 1][:-1][np.diff(busy[first : last + 1].astype(int)) < 0]
        apart = np.diff(ends)
        if len(ends) < REGULAR_GAPS or np.std(apart) > REGULAR_SPREAD * np.mean(apart):
            return None
        text = tr("The GPU waits for data or for checkpoints: {device} pauses every {time}",
                  device=name, time=duration(float(np.mean(apart))))  # fmt: skip
    return Verdict("likely", text)


def _hanging(job: Job, name: str, times: Floats, util: Floats, now: float) -> Verdict | None:
    """Return that a running job may hang: it used to compute, and does so no more."""
    if not isinstance(job.state, Running):
        return None
    busy = times[np.nan_to_num(util) >= IDLE_BELOW]
    reported = 0.0 if job.state.progress is None else job.state.progress.time
    since = max(float(busy[-1]), reported) if len(busy) else now
    if now - since < HANG_S or not len(times) or now - times[-1] > HANG_S:
        return None
    return Verdict(
        "likely",
        tr(
            "It hangs: {device} has done nothing and the job has reported no progress for {time}",
            device=name,
            time=duration(now - since),
        ),
    )


def _leaking(name: str, times: Floats, used: Floats, total: Floats) -> Verdict | None:
    """Return that memory grows on a line until none is left."""
    known = ~(np.isnan(used) | np.isnan(total))
    times, used, total = times[known], used[known], total[known]
    half = len(times) // 2
    times, used = times[half:], used[half:]
    if len(times) < LEAK_POINTS or np.ptp(used) < LEAK_SHARE * total[-1]:
        return None
    slope, start = np.polyfit(times - times[0], used, 1)
    rest = used - (start + slope * (times - times[0]))
    if slope <= 0 or 1 - np.var(rest) / np.var(used) < LEAK_FIT:
        return None
    return Verdict(
        "likely",
        tr(
            "Memory leaks: on {device} it grows by {rate} GiB a minute, and is full in {time}",
            device=name,
            rate=tr_decimal(f"{60 * slope / GIB:.2f}"),
            time=duration(float((total[-1] - used[-1]) / slope)),
        ),
    )


def _spilling(name: str, used: Floats, total: Floats, traffic: Floats) -> Verdict | None:
    """Return that memory was full while much went over PCIe: the rest is in host memory."""
    known = ~(np.isnan(used) | np.isnan(total) | np.isnan(traffic))
    used, total, traffic = used[known], total[known], traffic[known]
    spilling = (used >= FULL_SHARE * total) & (traffic >= SPILL_RATE)
    if not len(spilling) or np.mean(spilling) < SPILL_TIME:
        return None
    text = tr(
        "Memory spills to the CPU: for {share} % of the time the memory of {device} was full and "
        "{rate} GB/s went over PCIe",
        device=name,
        share=f"{100 * float(np.mean(spilling)):.0f}",
        rate=tr_decimal(f"{float(np.mean(traffic[spilling])) / 1e9:.1f}"),
    )
    return Verdict("likely", text)


def _throttled(
    labels: Mapping[str, str],
    held: Mapping[str, Columns],
    notes: Iterable[Annotation],
    began: float,
    until: float,
) -> Verdict | None:
    spans = [note for note in notes if note.kind == "throttle" and note.device in held]
    seconds = sum(
        min(until, until if note.until is None else note.until) - max(began, note.time)
        for note in spans
    )
    share = seconds / max(until - began, 1e-9) / max(len(held), 1)
    if share < THROTTLE_SHARE:
        return None
    names = tr_list([labels.get(d, d) for d in dict.fromkeys(note.device for note in spans)])
    why = "; ".join(dict.fromkeys(tr_text(note.text) for note in spans))
    text = tr("{devices}: clocks were limited for {share} % of the time. {why}",
              devices=names, share=f"{100 * min(share, 1.0):.0f}", why=why)  # fmt: skip
    return Verdict("measured", text)


def _energy(job: Job, settings: Settings) -> Verdict | None:
    usage = job.usage
    if usage is None or "energy" in usage.absent or not usage.energy:
        return None
    used = tr_decimal(energy(usage.energy))
    if not settings.energy_price:
        return Verdict("measured", tr("It used {energy}", energy=used))
    cost = cost_of(usage.energy, settings)
    text = tr("It used {energy}: {cost} {unit}", energy=used, cost=cost, unit=settings.currency)
    return Verdict("measured", text)


def cost_of(joules: float, settings: Settings) -> str:
    """Return what energy costs at the price of a kWh in the settings, without the currency."""
    return tr_decimal(f"{joules / 3.6e6 * settings.energy_price:.2f}")
