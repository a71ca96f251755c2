"""Find incidents in readings: clocks that are held down, and Xid errors of the driver. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpudeck.language.text import Text, joined, phrase
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Reading

WANTED = frozenset({"none", "idle", "application clocks", "display clocks", "sync boost"})
"""Reasons to hold clocks down that somebody chose, or that do no harm."""
CALM_S = 10.0
"""Throttling that returns within this time has not ended: a power cap does so many times a
minute."""


@dataclass
class _ThrottleSpan:
    since: float
    last: float
    """The newest reading of the span."""
    reasons: tuple[str, ...]


class IncidentDetector:
    """Follow the readings of all devices."""

    def __init__(self) -> None:
        self._spans: dict[str, _ThrottleSpan] = {}
        self._xids: dict[str, float] = {}

    def add(self, reading: Reading) -> list[Annotation]:
        """Return what began, changed or ended with this reading."""
        return self._throttling(reading) + self._xid_events(reading)

    def forget(self, devices: Iterable[str]) -> None:
        """Drop what is known of devices that are not read any more."""
        for device in devices:
            self._spans.pop(device, None)
            self._xids.pop(device, None)

    def _throttling(self, reading: Reading) -> list[Annotation]:
        reasons = [r for r in reading.texts.get("throttle", "none").split(", ") if r not in WANTED]
        span = self._spans.get(reading.device)
        if span is not None and not span.last <= reading.time <= span.last + CALM_S:
            del self._spans[reading.device]
            return [_annotation(reading.device, span, span.last), *self._throttling(reading)]
        if not reasons:
            return []
        if span is None:
            span = self._spans[reading.device] = _ThrottleSpan(reading.time, reading.time, ())
        span.last = reading.time
        if set(reasons) <= set(span.reasons):
            return []
        span.reasons = tuple(dict.fromkeys((*span.reasons, *reasons)))
        return [_annotation(reading.device, span, None)]

    def _xid_events(self, reading: Reading) -> list[Annotation]:
        """Return an event if the count went up; earlier counts have no known time."""
        count = reading.values.get("xid_count")
        if count is None:
            return []
        before = self._xids.get(reading.device, count)
        self._xids[reading.device] = count
        if count <= before:
            return []
        text = reading.texts.get("xid", phrase("Xid event"))
        return [Annotation(reading.time, reading.time, "xid", text, reading.device)]


def _annotation(device: str, span: _ThrottleSpan, until: float | None) -> Annotation:
    text = phrase("Throttled: {rest}", rest=joined(map(Text, span.reasons)))
    return Annotation(span.since, until, "throttle", text, device)
