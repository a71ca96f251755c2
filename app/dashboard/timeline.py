"""Place jobs, throttling, alerts and Xid events on the time axis of the charts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from gpudeck.app.format.job_rows import device_labels, meaning, state_word
from gpudeck.app.format.values import Meaning, clock, duration
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.language.text import Message, Text, phrase
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.jobs import Job, Queued, suspended_seconds, suspension_of
from gpudeck.scheduler.protocol.snapshot import Snapshot

EVENT_MEANINGS: dict[str, Meaning] = {"throttle": "throttled", "alert": "hot", "xid": "failed"}
"""The kinds of annotations that are events, and the meaning of each."""
_WORDS = {"alert": tr_noop("alert"), "xid": tr_noop("Xid error")}


@dataclass(frozen=True)
class JobSpan:
    """A job from its start to its end, or to now. Times are seconds since the epoch."""

    job: int
    label: str
    tooltip: str
    start: float
    end: float
    meaning: Meaning
    device: str
    """The device that the job held; a job that held several has a span for each."""
    lane: int = 0
    """Spans of a device in the same lane do not overlap."""


@dataclass(frozen=True)
class EventMark:
    """Something that happened to a device or the machine. Times are seconds since the epoch."""

    start: float
    end: float
    meaning: Meaning
    tooltip: str
    line: bool
    """Draw a line through all charts."""
    label: str
    """What happened, in a word or two."""
    device: str = ""
    """The device that it happened to; empty if it is about the machine."""


@dataclass(frozen=True)
class BookingSpan:
    """A stretch of time for which a device is reserved. Times are seconds since the epoch."""

    device: str
    tooltip: str
    start: float
    end: float


def booking_spans(
    snapshot: Snapshot, devices: Collection[str], start: float, end: float
) -> tuple[BookingSpan, ...]:
    """Return the bookings of `devices` in a stretch of time."""
    return tuple(
        BookingSpan(
            device,
            tr(
                "Booking {n} for {holder}\n{begin} to {end}",
                n=number,
                holder=tr_text(booking.holder),
                begin=clock(booking.begin, snapshot.time),
                end=clock(booking.end, snapshot.time),
            ),
            booking.begin,
            booking.end,
        )
        for number, booking in snapshot.settings.reservations.items()
        for device in booking.gpus
        if device in devices and booking.begin <= end and booking.end >= start
    )


def current_job_spans(
    snapshot: Snapshot,
    devices: Collection[str],
    start: float,
    end: float,
    annotations: Sequence[Annotation] = (),
) -> tuple[JobSpan, ...]:
    """Return the jobs of a snapshot that held one of `devices` in a stretch of time.

    Args:
        annotations: What tells when jobs that were suspended were on their devices.
    """
    spans: list[JobSpan] = []
    labels = device_labels(snapshot)
    for job in sorted(snapshot.jobs, key=lambda j: (j.started or 0.0, j.id)):
        devices_held = () if isinstance(job.state, Queued) else job.state.devices
        held = [device for device in devices_held if device in devices]
        began, until = job.started, job.ended or snapshot.time
        if not held or began is None or until < start or began > end:
            continue
        label = f"{job.id} · {job.spec.name}"
        where = ", ".join(labels[device] for device in held)
        when = f"{clock(began, snapshot.time)}, {duration(until - began)}"
        state = tr("Job {job}, {state}", job=label, state=tr(state_word(job)))
        tooltip = f"{state}\n{where}, {when}"
        away = suspended_seconds(job, snapshot.time)
        if away:
            tooltip += "\n" + tr("suspended for {time}", time=duration(away))
        spans += (
            JobSpan(job.id, label, tooltip, since, left, meaning(job), device)
            for device in held
            for since, left in _stays(job, device, annotations if away else (), (began, until))
        )
    return _in_lanes(sorted(spans, key=lambda span: span.start))


def _stays(
    job: Job, device: str, annotations: Iterable[Annotation], whole: tuple[float, float]
) -> list[tuple[float, float]]:
    """Return when a job was on a device, as far as it is known; no later than it was suspended.

    Args:
        whole: From its start to its end, or to now.
    """
    suspension = suspension_of(job)
    off = suspension is not None and suspension.is_off
    until = suspension.since if suspension is not None and off else whole[1]
    known = [
        (a.time, min(until if a.until is None else a.until, until))
        for a in annotations
        if a.kind == "job" and a.job == job.id and a.device == device and a.time <= until
    ]
    return known or [(whole[0], until)]


def past_job_spans(
    annotations: Iterable[Annotation], devices: Sequence[str], start: float, end: float
) -> tuple[JobSpan, ...]:
    """Return the jobs among annotations, a span for each device that a job held."""
    found: dict[tuple[int, float, str], JobSpan] = {}
    for a in annotations:
        if a.kind == "job" and a.job is not None and a.device in devices and _in(a, start, end):
            values = dict(a.text.values) if isinstance(a.text, Text) else {}
            name, status = values.get("name", ""), values.get("status", "")
            failed: Meaning = "failed" if status in (Text("failed"), Text("lost")) else ""
            span = JobSpan(
                a.job,
                tr_text(phrase("{job} ({name}): {status}", job=a.job, name=name, status=status)),
                _tooltip(a, end),
                a.time,
                end if a.until is None else a.until,
                failed,
                a.device,
            )
            found.setdefault((a.job, a.time, a.device), span)
    return _in_lanes(sorted(found.values(), key=lambda span: span.start))


def event_marks(
    annotations: Iterable[Annotation], devices: Collection[str], start: float, end: float
) -> tuple[EventMark, ...]:
    """Return the events of `devices` and of the machine in a stretch of time."""
    return tuple(
        EventMark(
            a.time,
            min(end if a.until is None else a.until, end),
            EVENT_MEANINGS[a.kind],
            _tooltip(a, end),
            a.kind != "throttle",
            tr_text(_reasons(a.text)) if a.kind == "throttle" else tr(_WORDS[a.kind]),
            a.device,
        )
        for a in annotations
        if a.kind in EVENT_MEANINGS and (not a.device or a.device in devices) and _in(a, start, end)
    )


def _in_lanes(spans: Iterable[JobSpan]) -> tuple[JobSpan, ...]:
    """Put each span, in order of start, into the lowest lane in which it overlaps no other."""
    ends: dict[str, list[float]] = {}
    placed = []
    for span in spans:
        free = ends.setdefault(span.device, [])
        lane = next((i for i, time in enumerate(free) if time <= span.start), len(free))
        free[lane:] = [span.end, *free[lane + 1 :]]
        placed.append(replace(span, lane=lane))
    return tuple(placed)


def _in(a: Annotation, start: float, end: float) -> bool:
    return a.time <= end and (a.until is None or a.until >= start)


def _tooltip(a: Annotation, now: float) -> str:
    until = now if a.until is None else a.until
    lasted = "" if a.until == a.time else f", {duration(until - a.time)}"
    return f"{tr_text(a.text)}\n{clock(a.time, now)}{lasted}"


def _reasons(text: Message) -> Message:
    """Return why a device was throttled; older versions stored it in a sentence."""
    if isinstance(text, str):
        return text
    return phrase("{text}", text=dict(text.values)["rest"])
