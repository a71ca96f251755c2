"""Sum up the last 24 hours: how busy the devices were, what they used, and for whom. Free of Qt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from gpudeck.app.format.values import clock, device_label, significant
from gpudeck.app.language.texts import tr, tr_count, tr_decimal, tr_list
from gpudeck.app.link.call import Call
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.energy import POWER_FIELDS, watts
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Columns

SECONDS = 86_400.0
_FIELDS = ("util", *POWER_FIELDS, "temp")
_BINS, _BINS_OF_MANY, _MANY = 1440, 288, 16
"""The number of bins, fewer if there are many devices."""
_MOST_JOBS = 1000
"""The newest jobs, whose users are known."""
_NAMED = 2
_LEAST = 1 / 3600
"""Device-hours of a job that is worth its name."""


@dataclass(frozen=True)
class Day:
    """Hold the figures of 24 hours. Hours count each device by itself."""

    hours: float
    """Device-hours with readings."""
    busy_hours: float
    energy_kwh: float | None
    """None where no device reports its power."""
    hottest: tuple[float, str, float] | None
    """°C, the device's label and the time; None without a sensor."""
    jobs: tuple[tuple[str, float], ...]
    """The jobs that held devices longest, and their device-hours."""
    users: tuple[tuple[str, float], ...]


class LoadDay(msgspec.Struct, frozen=True):
    """Request the figures of the 24 hours before `now`, in seconds since the epoch."""

    devices: tuple[Device, ...]
    now: float
    idle_below: float
    """Percent of utilisation from which on a device is busy."""

    def carry_out(self, call: Call) -> Day:
        """Read the history, the jobs and what held the devices."""
        since = self.now - SECONDS
        bins = _BINS if len(self.devices) <= _MANY else _BINS_OF_MANY
        with call.client() as client:
            read = {
                device_label(d): client.history(d.id, _FIELDS, since, self.now, bins)
                for d in self.devices
            }
            jobs = {job.id: job for job in client.jobs(limit=_MOST_JOBS)}
            held = client.annotations(since, self.now)
            return day(read, held, jobs, since, self.now, self.idle_below)


def day(
    read: Mapping[str, Columns],
    annotations: Iterable[Annotation],
    jobs: Mapping[int, Job],
    since: float,
    now: float,
    idle_below: float,
) -> Day:
    """Return the figures of a day.

    Args:
        read: Bins of utilisation, power and temperature of each device.
        annotations: What held the devices.
        jobs: The jobs whose names and users are known.
    """
    seconds = busy = 0.0
    joules: float | None = None
    hottest: tuple[float, str, float] | None = None
    for name, columns in read.items():
        bin_s = _bin_width(columns.times)
        loads = _known(columns.columns.get("util", []))
        seconds += bin_s * len(loads)
        busy += bin_s * sum(load >= idle_below for load in loads)
        power = _known(watts(columns))
        if power:
            joules = (joules or 0.0) + sum(power) * bin_s
        highs = columns.high.get("temp") or columns.columns.get("temp", [])
        for at, degrees in zip(columns.times, highs, strict=False):
            if degrees is not None and (hottest is None or degrees > hottest[0]):
                hottest = degrees, name, at
    by_job, by_user = _held(annotations, jobs, since, now)
    return Day(
        seconds / 3600,
        busy / 3600,
        None if joules is None else joules / 3.6e6,
        hottest,
        tuple(by_job.most_common(_NAMED)),
        tuple(by_user.most_common(_NAMED)),
    )


def _bin_width(times: Sequence[float]) -> float:
    """Return the seconds of a bin, which divide the time since the first reading."""
    steps = sorted(after - before for before, after in pairwise(times))
    return steps[len(steps) // 2] if steps else 0.0


def _known(values: Sequence[float | None]) -> list[float]:
    return [v for v in values if v is not None and not math.isnan(v)]


def _held(
    annotations: Iterable[Annotation], jobs: Mapping[int, Job], since: float, now: float
) -> tuple[Counter[str], Counter[str]]:
    """Return the device-hours of each job and of each user."""
    by_job: Counter[str] = Counter()
    by_user: Counter[str] = Counter()
    for a in annotations:
        if a.kind != "job" or a.job is None:
            continue
        hours = (min(a.until or now, now) - max(a.time, since)) / 3600
        if hours < _LEAST:
            continue
        job = jobs.get(a.job)
        by_job[f"{a.job} · {job.spec.name}" if job else str(a.job)] += hours  # type: ignore[assignment]
        user = job.spec.env.get("USER", "") if job else ""
        if user:
            by_user[user] += hours  # type: ignore[assignment]
    return by_job, by_user


def figures(day: Day, settings: Settings, now: float) -> tuple[tuple[str, str], ...]:
    """Return the captions and values of the card."""
    share = f" ({100 * day.busy_hours / day.hours:.0f} %)" if day.hours else ""
    found = [(tr("Busy"), f"{hours(day.busy_hours)}{share}")]
    if day.energy_kwh is not None:
        found.append((tr("Energy"), energy(day, settings)))
    if day.hottest is not None:
        degrees, device, at = day.hottest
        found.append((tr("Peak"), f"{degrees:.0f} °C, {device}, {clock(at, now)[:-3]}"))
    if day.jobs:
        found.append((tr("Top job"), f"{day.jobs[0][0]}, {hours(day.jobs[0][1])}"))
    if day.users:
        found.append((tr("Top user"), f"{day.users[0][0]}, {hours(day.users[0][1])}"))
    return tuple(found)


def energy(day: Day, settings: Settings) -> str:
    """Return the energy, and its cost where a price is set."""
    kwh = day.energy_kwh or 0.0
    text = f"{significant(kwh)} kWh"
    if settings.energy_price > 0:
        cost = tr_decimal(f"{kwh * settings.energy_price:.2f}")
        text += f", {cost} {settings.currency}".rstrip()
    return text


def sentence(day: Day, settings: Settings, devices: int) -> str:
    """Return one sentence about the day."""
    busy, whole = hours(day.busy_hours), hours(day.hours)
    if day.energy_kwh is None:
        text = tr_count(
            "The device was busy for {busy} of the {hours} that were read",
            "The {n} devices together were busy for {busy} of the {hours} that were read",
            devices,
            busy=busy,
            hours=whole,
        )
    else:
        text = tr_count(
            "The device was busy for {busy} of the {hours} that were read and used {energy}",
            "The {n} devices together were busy for {busy} of the {hours} that were read and used"
            " {energy}",
            devices,
            busy=busy,
            hours=whole,
            energy=energy(day, settings),
        )
    return tr("{text}; {jobs}.", text=text, jobs=_holders(day)) if day.jobs else f"{text}."


def _holders(day: Day) -> str:
    """Return which jobs held devices longest, the part of a sentence."""
    jobs = [tr("job {name} ({hours})", name=name, hours=hours(spent)) for name, spent in day.jobs]
    if len(jobs) == 1:
        return tr("{job} held a device longest in these 24 hours", job=jobs[0])
    return tr("{jobs} held devices longest in these 24 hours", jobs=tr_list(jobs))


def hours(count: float) -> str:
    """Format device-hours: 19 s, 24 min, 3.2 h, 31 h."""
    if count < 1 / 60:
        return f"{3600 * count:.0f} s"
    if count < 0.95:
        return f"{60 * count:.0f} min"
    return tr_decimal(f"{count:.1f} h") if count < 9.95 else f"{count:.0f} h"
