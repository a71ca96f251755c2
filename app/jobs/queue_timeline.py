"""Place jobs and bookings on a time axis: a row for each device. Free of Qt.

The window and the page in the browser draw the same rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpudeck.app.format.job_rows import describe, meaning
from gpudeck.app.format.values import Meaning, device_label
from gpudeck.app.language.texts import tr, tr_moment, tr_text
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, over, suspension_of
from gpudeck.scheduler.protocol.schedule import Landing, Moved, expected_end
from gpudeck.scheduler.protocol.snapshot import Snapshot

Kind = Literal["past", "running", "waiting", "booked"]
_SHORTEST_S, _LONGEST_S = 3600.0, 86_400.0
"""The shortest and the longest future that is shown."""
_OPEN_S = 1800.0
"""The time that is shown of a job whose end is unknown."""
_PAST = 0.25
"""The share of the axis before now."""
_STEPS = (300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds between two round times of the axis."""
_TOLD = 3
"""The most changes that one line tells."""
_ROOM = 1.1
"""The axis ends so much later than the last known end."""


@dataclass(frozen=True)
class Bar:
    """One job, or one booking, on a device. Times are seconds since the epoch."""

    kind: Kind
    key: int
    """The number of the job, or of the booking."""
    label: str
    tooltip: str
    start: float
    end: float | None
    """None: it ends at an unknown time."""
    meaning: Meaning = ""
    share: float | None = None
    """How much of the work is done, 0 to 1; None if that is unknown."""
    lane: int = 0
    """Bars of a device in the same lane do not overlap."""
    text_at: float = 0.0
    """Where the text of a booking begins that no job hides."""
    detail: str = ""
    """How far it is, or when it starts; empty where that is not worth a line."""


@dataclass(frozen=True)
class Row:
    """Hold the bars of one device; an empty id stands for jobs that need no device."""

    device: str
    title: str
    bars: tuple[Bar, ...]
    lanes: int


@dataclass(frozen=True)
class Unplaced:
    """Describe a waiting job whose start is not known."""

    key: int
    label: str
    why: str


@dataclass(frozen=True)
class QueueTimeline:
    """Hold all rows and the axis. Times are seconds since the epoch."""

    start: float
    now: float
    end: float
    rows: tuple[Row, ...]
    unplaced: tuple[Unplaced, ...]


def queue_timeline(snapshot: Snapshot, landings: Sequence[Landing]) -> QueueTimeline:
    """Return what was, is and will be on the devices of this machine.

    Args:
        snapshot: Its jobs are shown, as far as they wait, run or ended last.
        landings: Where its waiting jobs are expected to start.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    placed = {landing.job: landing for landing in landings if landing.job in jobs}
    devices = {s.device.id: device_label(s.device) for s in snapshot.devices if not s.device.host}
    bars: dict[str, list[Bar]] = {device: [] for device in devices}
    for job in snapshot.jobs:
        bar, held = _bar(job, placed.get(job.id), snapshot.time)
        for device in held if bar is not None else ():
            if bar is not None and (device in bars or not device):
                bars.setdefault(device, []).append(bar)
    start, end = _axis(bars.values(), snapshot.time)
    booked = _bookings(snapshot)
    rows = tuple(
        _row(device, devices.get(device, tr("No GPU")), found, booked.get(device, ()), start)
        for device, found in bars.items()
    )
    waiting = (job for job in snapshot.jobs if isinstance(job.state, Queued))
    unplaced = tuple(
        Unplaced(job.id, _label(job), describe(job))
        for job in sorted(waiting, key=lambda job: job.id)
        if job.id not in placed
    )
    return QueueTimeline(start, snapshot.time, end, rows, unplaced)


def changed_starts(
    before: Sequence[Landing], after: Sequence[Landing]
) -> dict[int, tuple[float | None, float | None]]:
    """Return the old and the new start of each job whose start changes; None: it is unknown."""
    old = {landing.job: landing.at for landing in before}
    new = {landing.job: landing.at for landing in after}
    return {
        job: (old.get(job), new.get(job))
        for job in dict.fromkeys((*new, *old))
        if old.get(job) != new.get(job)
    }


def drop_target(row: Row, dragged: int, at: float, end: float) -> Moved | None:
    """Return where a waiting job would be moved that is dropped on a row; None for nowhere.

    Args:
        at: The time at which it is dropped.
        end: The end of the axis, where the bars end whose end is unknown.
    """

    def middle(bar: Bar) -> float:
        return (bar.start + (bar.end or end)) / 2

    others = [bar for bar in row.bars if bar.kind == "waiting" and bar.key != dragged]
    if not others:
        return None
    nearest = min(others, key=lambda bar: abs(middle(bar) - at))
    return Moved(dragged, nearest.key, at > middle(nearest))


def ticks(start: float, end: float, most: int) -> list[tuple[float, str]]:
    """Return at most this many round times of day on an axis, with their texts."""
    step = next((step for step in _STEPS if (end - start) / step <= most), _STEPS[-1])
    zone = time.localtime(start).tm_gmtoff
    first = math.ceil((start + zone) / step) * step - zone
    times = (first + step * i for i in range(most + 1))
    return [(at, time.strftime("%H:%M", time.localtime(at))) for at in times if at < end]


def change_text(
    before: Sequence[Landing], after: Sequence[Landing], jobs: Mapping[int, Job], now: float
) -> str:
    """Say which jobs would start at another time, the first of them by name."""
    changes = changed_starts(before, after)
    if not changes:
        return tr("No job would start at another time, as far as the times are known")
    texts = [
        tr(
            "{job}: {new} instead of {old}",
            job=_label(jobs[job]) if job in jobs else job,
            old=tr("unknown") if old is None else tr_moment(old, now),
            new=tr("unknown") if new is None else tr_moment(new, now),
        )
        for job, (old, new) in changes.items()
    ]
    if len(texts) > _TOLD:
        texts[_TOLD:] = [tr("and {n} more", n=len(texts) - _TOLD)]
    return " · ".join(texts)


def _bar(job: Job, landing: Landing | None, now: float) -> tuple[Bar | None, tuple[str, ...]]:
    """Return the bar of a job, and its devices; no bar while its time is unknown."""
    state = job.state
    if isinstance(state, Queued):
        if landing is None:
            return None, ()
        text = tr("starts about {time}", time=tr_moment(landing.at, now))
        made = _make_bar("waiting", job, text, max(landing.at, now), landing.until)
        made = replace(made, detail=tr("from {time}", time=tr_moment(landing.at, now)))
        return made, landing.devices or ("",)
    began, end = job.started, job.ended
    if began is None or job.spec.where:
        return None, ()
    if end is not None or over(job):
        return _make_bar("past", job, describe(job), began, end or now), state.devices or ("",)
    suspension = suspension_of(job)
    if suspension is not None and suspension.is_off:  # others have its devices since then
        return _make_bar("past", job, describe(job), began, suspension.since), state.devices or (
            "",
        )
    expected = expected_end(job, now)
    until = None if expected is None else max(expected.at, now)
    text = describe(job)
    if until is not None:
        text = tr("{state}; ends about {time}", state=text, time=tr_moment(until, now))
    made = _make_bar("running", job, text, began, until)
    if isinstance(state, Running) and state.progress is not None:
        share = state.progress.done / state.progress.total
        parts = [f"{100 * share:.0f} %"]
        parts += [] if until is None else [tr("until {time}", time=tr_moment(until, now))]
        made = replace(made, share=share, detail=" · ".join(parts))
    return made, state.devices or ("",)


def _make_bar(kind: Kind, job: Job, text: str, start: float, end: float | None) -> Bar:
    label = _label(job)
    return Bar(kind, job.id, label, f"{label}\n{text}", start, end, meaning(job))


def _label(job: Job) -> str:
    return f"{job.id} · {job.spec.name}"


def _axis(bars: Iterable[Sequence[Bar]], now: float) -> tuple[float, float]:
    """Return both ends of the time axis."""
    known = [bar.end or bar.start + _OPEN_S for row in bars for bar in row]
    future = _ROOM * (max(known, default=now) - now)
    future = min(max(future, _SHORTEST_S), _LONGEST_S)
    return now - future * _PAST / (1 - _PAST), now + future


def _bookings(snapshot: Snapshot) -> Mapping[str, Sequence[Bar]]:
    """Return the bookings of each device."""
    found: dict[str, list[Bar]] = {}
    for number, booking in snapshot.settings.reservations.items():
        holder = tr_text(booking.holder)
        begin, end = (tr_moment(at, snapshot.time) for at in (booking.begin, booking.end))
        text = tr("Reserved for {holder}\n{begin} to {end}", holder=holder, begin=begin, end=end)
        bar = Bar(
            "booked",
            int(number),
            tr("booked: {holder}", holder=holder),
            text,
            booking.begin,
            booking.end,
        )
        for device in booking.gpus:
            found.setdefault(device, []).append(bar)
    return found


def _row(device: str, title: str, bars: Iterable[Bar], booked: Iterable[Bar], start: float) -> Row:
    """Put each bar into the lowest lane in which it overlaps no other."""
    shown = sorted(
        (bar for bar in bars if bar.end is None or bar.end > start), key=lambda bar: bar.start
    )
    free: list[float] = []
    placed = []
    for bar in shown:
        lane = next((i for i, time in enumerate(free) if time <= bar.start), len(free))
        free[lane:] = [float("inf") if bar.end is None else bar.end, *free[lane + 1 :]]
        placed.append(replace(bar, lane=lane))
    behind = (
        replace(bar, text_at=_free_from(bar, bar.end, placed))
        for bar in booked
        if bar.end is not None and bar.end > start
    )
    return Row(device, title, (*behind, *placed), max(len(free), 1))


def _free_from(booking: Bar, end: float, bars: Iterable[Bar]) -> float:
    """Return the time from which no job lies on a booking that ends at `end`."""
    at = booking.start
    for bar in bars:
        if bar.start <= at:
            at = max(at, end if bar.end is None else bar.end)
    return min(at, end)
