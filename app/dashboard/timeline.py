"""What happened, as marks on the charts' time axis: jobs as spans, the rest as marks. Free of Qt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from app.dashboard.job_spans import Span, lanes
from app.format.values import clock, duration
from app.strip.tile_model import Meaning
from scheduler.protocol.annotation import Annotation

MEANINGS: dict[str, Meaning] = {"throttle": "throttled", "alert": "hot", "xid": "failed"}


@dataclass(frozen=True)
class Mark:
    start: float
    end: float
    meaning: Meaning
    tooltip: str
    line: bool
    """A moment that deserves a line through all charts."""


def marks(
    annotations: Iterable[Annotation], devices: Collection[str], start: float, end: float
) -> tuple[Mark, ...]:
    """Of the shown devices, and of the machine."""
    return tuple(
        Mark(
            a.time,
            min(end if a.until is None else a.until, end),
            MEANINGS[a.kind],
            _tooltip(a, end),
            a.kind != "throttle",
        )
        for a in annotations
        if a.kind in MEANINGS
        and (not a.device or a.device in devices)
        and a.time <= end
        and (a.until is None or a.until >= start)
    )


def job_spans(
    annotations: Iterable[Annotation], devices: Sequence[str], start: float, end: float
) -> tuple[Span, ...]:
    """The jobs among them, as the band above the charts shows them; one that held several devices stands once."""
    found: dict[tuple[int, float], Annotation] = {}
    for a in annotations:
        if (
            a.kind == "job"
            and a.job is not None
            and a.device in devices
            and a.time <= end
            and (a.until is None or a.until >= start)
        ):
            found.setdefault((a.job, a.time), a)
    jobs = sorted(found.values(), key=lambda a: a.time)
    ends = [end if a.until is None else a.until for a in jobs]
    placed = lanes([(a.time, until) for a, until in zip(jobs, ends, strict=True)])
    return tuple(
        Span(a.job or 0, _label(a), _tooltip(a, end), a.time, until, _meaning(a), a.device, lane)
        for a, until, lane in zip(jobs, ends, placed, strict=True)
    )


def _meaning(a: Annotation) -> Meaning:
    return "failed" if a.text.endswith((": failed", ": lost")) else ""


def _label(a: Annotation) -> str:
    return a.text.removeprefix("job ")


def _tooltip(a: Annotation, now: float) -> str:
    lasted = (
        "" if a.until == a.time else f", {duration((now if a.until is None else a.until) - a.time)}"
    )
    return f"{a.text}\n{clock(a.time, now)}{lasted}"
