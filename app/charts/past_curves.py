"""Load stretches of the past from the daemon, for charts that look further back than the window
remembers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpudeck.app.charts.scales import round_up
from gpudeck.app.charts.series import Floats
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.snapshot import Columns

if TYPE_CHECKING:
    from gpudeck.app.link.call import Call

PIXELS_A_BIN = 2
_MARGIN = 0.5
"""Share of the span that is loaded at each side, so that small moves need no new request."""
_SIMILAR = 1.7
"""Bins that are so many times too wide or too narrow are still shown."""
_FRESH_S = 3.0
RETRY_S = 2.0
"""Seconds until the next request after a failure."""


@dataclass(frozen=True)
class LoadPast:
    """Request a stretch of the past and what happened in it."""

    slot: str
    """The loader that sent the request."""
    devices: tuple[str, ...]
    fields: tuple[str, ...]
    since: float
    until: float
    points: int

    def carry_out(self, call: Call) -> PastCurves:
        """Read the curves of each device and the annotations of that time."""
        with call.client() as client:
            answers = {
                device: client.history(device, self.fields, self.since, self.until, self.points)
                for device in self.devices
                if self.fields
            }
            return past_curves(self, answers, client.annotations(self.since, self.until))


@dataclass(frozen=True)
class Band:
    """One field of a device in n bins, with NaN in gaps."""

    times: Floats
    low: Floats
    mean: Floats
    high: Floats

    def cut(self, start: float, end: float) -> Band:
        """Return the bins between two times, and the next one at each side."""
        first, last = np.searchsorted(self.times, (start, end))
        part = slice(max(int(first) - 1, 0), int(last) + 1)
        return Band(self.times[part], self.low[part], self.mean[part], self.high[part])

    def scaled(self, divisor: float) -> Band:
        """Return the band in a unit that is `divisor` times larger."""
        return Band(self.times, self.low / divisor, self.mean / divisor, self.high / divisor)


_EMPTY = Band(*(np.empty(0) for _ in range(4)))


@dataclass(frozen=True, eq=False)
class PastCurves:
    """The reply to a `LoadPast`."""

    request: LoadPast
    curves: Mapping[str, Mapping[str, Band]]
    """The curves by device, then by field."""
    annotations: tuple[Annotation, ...]

    @property
    def step(self) -> float:
        """Return the width of a bin in seconds."""
        return (self.request.until - self.request.since) / self.request.points

    def band(self, device: str, field: str) -> Band:
        """Return the curve of a field; an empty one if it was not loaded."""
        return self.curves.get(device, {}).get(field, _EMPTY)


def past_curves(
    request: LoadPast, answers: Mapping[str, Columns], annotations: tuple[Annotation, ...]
) -> PastCurves:
    """Make a reply of the columns of each device."""
    curves = {
        device: {field: _band(found, field) for field in request.fields}
        for device, found in answers.items()
    }
    return PastCurves(request, curves, annotations)


def _band(found: Columns, field: str) -> Band:
    parts = (found.low[field], found.columns[field], found.high[field])
    return Band(*(np.array(part, dtype=np.float64) for part in (found.times, *parts)))


class PastLoader:
    """Load what is shown, one request at a time; show the old curves meanwhile."""

    def __init__(self, slot: str) -> None:
        self.slot = slot
        self.curves: PastCurves | None = None
        self._pending: LoadPast | None = None
        self._failed_at = 0.0

    def next_request(
        self,
        devices: tuple[str, ...],
        fields: tuple[str, ...],
        limits: tuple[float, float],
        pixels: int,
        newest: float,
    ) -> LoadPast | None:
        """Return the request to send now; None if the curves suffice or a request is pending.

        Args:
            limits: Both ends of the time axis.
            pixels: Width of the chart.
            newest: Time of the newest reading.
        """
        start, end = limits
        step = round_up((end - start) / pixels * PIXELS_A_BIN)
        if self._pending is not None or time.monotonic() - self._failed_at < RETRY_S:
            return None
        if self._suffices(devices, fields, start, min(end, newest), step):
            return None
        margin = _MARGIN * (end - start)
        first, last = int((start - margin) // step), int(min(end + margin, newest) // step) + 1
        self._pending = LoadPast(
            self.slot, devices, fields, first * step, last * step, last - first
        )
        return self._pending

    def take(self, curves: PastCurves) -> None:
        """Keep the curves if this loader requested them."""
        if curves.request is self._pending:
            self.curves, self._pending = curves, None

    def fail(self, request: LoadPast) -> None:
        """Note that a request failed; if it came from this loader, it is repeated later."""
        if request is self._pending:
            self._pending, self._failed_at = None, time.monotonic()

    def _suffices(
        self,
        devices: tuple[str, ...],
        fields: tuple[str, ...],
        start: float,
        end: float,
        step: float,
    ) -> bool:
        if self.curves is None:
            return False
        loaded = self.curves.request
        return (
            set(devices) <= set(loaded.devices)
            and set(fields) <= set(loaded.fields)
            and loaded.since <= start
            and loaded.until >= end - max(step, _FRESH_S)
            and step / _SIMILAR <= self.curves.step <= step * _SIMILAR
        )
