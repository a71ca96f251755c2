"""Describe everything that the page shows of the devices and the queue, as one message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpudeck.app.format.bookings import BookingRow, booking_rows
from gpudeck.app.format.free_devices import free_devices, is_free
from gpudeck.app.format.job_rows import JobRow, job_row
from gpudeck.app.format.values import Meaning, ago, device_label
from gpudeck.app.jobs.queue_timeline import QueueTimeline, queue_timeline
from gpudeck.app.language.texts import tr, tr_count, tr_moment, tr_text
from gpudeck.app.strip.summary import device_names
from gpudeck.app.strip.tile_model import Tile, tiles
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Starting, turn
from gpudeck.scheduler.protocol.schedule import Landing
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot, everywhere
from gpudeck.scheduler.protocol.users import user_name

MOST_JOBS = 60
"""The most jobs in each list of the page."""
SHOWN = ("util", "mem_used", "mem_total", "power", "temp")
"""The fields of a reading whose numbers the page draws."""


@dataclass(frozen=True)
class Device:
    """One device: its tile, its newest numbers, and the job that has it."""

    tile: Tile
    meaning: Meaning
    free: bool
    values: dict[str, float | None]
    """The fields of SHOWN, in their own units."""
    job: JobRow | None


@dataclass(frozen=True)
class ListedJob:
    """One job as a row; texts are in the language of the page."""

    row: JobRow
    state: str
    user: str
    when: str
    """About when it starts, or how long ago it was submitted, or ended."""


@dataclass(frozen=True)
class Page:
    """Everything that the page shows at one moment. Times are in seconds since the epoch."""

    time: float
    zone: int
    """The time zone of this machine in seconds, so that all clocks of the page agree."""
    source: str
    headline: str
    """What is free; which devices there are where none can be, as in a recording."""
    replay: bool
    """The devices are those of a recording."""
    next: str
    """When the next device will be free; may be empty."""
    counts: tuple[str, str]
    """How many jobs run and wait."""
    devices: tuple[Device, ...]
    running: tuple[ListedJob, ...]
    waiting: tuple[ListedJob, ...]
    ended: tuple[ListedJob, ...]
    more: str
    """How many jobs wait that are not listed; empty if all are."""
    timeline: QueueTimeline
    bookings: tuple[BookingRow, ...]
    notices: tuple[tuple[str, bool], ...]
    """Each alert and notice, and whether it is an alert."""


def make_page(snapshot: Snapshot, landings: Sequence[Landing]) -> Page:
    """Return what the page shows of a snapshot.

    Args:
        landings: Where the waiting jobs are expected to start.
    """
    seen = everywhere(snapshot)
    labels = {state.device.id: device_label(state.device) for state in seen.devices}
    jobs = {job.id: job for job in snapshot.jobs}
    waiting = sorted((j for j in jobs.values() if isinstance(j.state, Queued)), key=turn)
    running = [j for j in jobs.values() if j.active and not isinstance(j.state, Queued)]
    over = sorted((j for j in jobs.values() if not j.active), key=lambda j: -(j.ended or 0.0))

    starts = {landing.job: landing.at for landing in landings}

    def listed(found: Sequence[Job]) -> tuple[ListedJob, ...]:
        return tuple(
            _listed(job, labels, starts.get(job.id), snapshot.time) for job in found[:MOST_JOBS]
        )

    free, shown = free_devices(snapshot), tiles(seen)
    left = snapshot.waiting - min(len(waiting), MOST_JOBS)
    return Page(
        time=snapshot.time,
        zone=time.localtime(snapshot.time).tm_gmtoff,
        source=tr_text(snapshot.source),
        headline=free.headline or device_names(shown),
        replay=any(tile.replay for tile in shown),
        next=free.next,
        counts=(tr("{n} running", n=len(running)), tr("{n} waiting", n=snapshot.waiting)),
        devices=tuple(
            _device(state, tile, jobs, labels, snapshot)
            for state, tile in zip(seen.devices, shown, strict=True)
        ),
        running=listed(running),
        waiting=listed(waiting),
        ended=listed(over),
        more=tr_count("and {n} more job", "and {n} more jobs", left) if left > 0 else "",
        timeline=queue_timeline(snapshot, landings),
        bookings=booking_rows(snapshot),
        notices=_notices(snapshot),
    )


def _device(
    state: DeviceState,
    tile: Tile,
    jobs: dict[int, Job],
    labels: dict[str, str],
    snapshot: Snapshot,
) -> Device:
    values = {} if state.reading is None else state.reading.values
    holder = jobs.get(state.holders[0]) if state.holders else None
    return Device(
        tile,
        tile.meaning,
        is_free(state, snapshot.settings) and not state.device.host,
        {field: values.get(field) for field in SHOWN},
        None if holder is None else job_row(holder, labels, snapshot.time),
    )


def _listed(job: Job, labels: dict[str, str], start: float | None, now: float) -> ListedJob:
    row = job_row(job, labels, now)
    user = "" if job.spec.user is None else user_name(job.spec.user)
    if start is not None:
        when = tr("about {time}", time=tr_moment(start, now))
    elif isinstance(job.state, Starting | Running):
        when = ""
    else:
        when = ago(job.ended or job.submitted, now)
    return ListedJob(row, tr(row.state), user, when)


def _notices(snapshot: Snapshot) -> tuple[tuple[str, bool], ...]:
    alerts = ((tr_text(alert.text), True) for alert in snapshot.alerts)
    return (*alerts, *((tr_text(notice), False) for notice in snapshot.notices))
