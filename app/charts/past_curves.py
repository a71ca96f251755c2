"""A stretch of the past that the daemon was asked for, for charts that look further back than the window itself remembers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from app.charts.scales import round_up
from app.charts.series import Floats
from scheduler.protocol.annotation import Annotation
from scheduler.protocol.snapshot import Columns

if TYPE_CHECKING:
    from app.link.call import Call

PIXELS_A_BIN = 2
_MARGIN = 0.5
"""Of the span, at each side: a small move needs no new answer."""
_ALIKE = 1.7
"""Bins that are so many times too wide or too narrow are still shown."""
_FRESH_S = 3.0
_AGAIN_S = 2.0
"""After a refusal."""


@dataclass(frozen=True)
class LoadPast:
    """Ask for a stretch of the past, and for what happened in it."""

    slot: str
    """Who asked."""
    devices: tuple[str, ...]
    fields: tuple[str, ...]
    since: float
    until: float
    points: int

    def carry_out(self, call: Call) -> Page:
        """Read the curves of each device, and the annotations of that time."""
        with call.client() as client:
            answers = {
                device: client.history(device, self.fields, self.since, self.until, self.points)
                for device in self.devices
                if self.fields
            }
            return page(self, answers, client.annotations(self.since, self.until))


@dataclass(frozen=True)
class Band:
    """One field of a device: n buckets, NaN where there is a gap."""

    times: Floats
    low: Floats
    mean: Floats
    high: Floats

    def cut(self, start: float, end: float) -> Band:
        """Those between the two times, and the next one at each side."""
        first, last = np.searchsorted(self.times, (start, end))
        part = slice(max(int(first) - 1, 0), int(last) + 1)
        return Band(self.times[part], self.low[part], self.mean[part], self.high[part])


NOTHING = Band(*(np.empty(0) for _ in range(4)))


@dataclass(frozen=True, eq=False)
class Page:
    """What came back."""

    request: LoadPast
    curves: Mapping[str, Mapping[str, Band]]
    """By device, then by field."""
    annotations: tuple[Annotation, ...]

    @property
    def step(self) -> float:
        """Seconds of a bucket."""
        return (self.request.until - self.request.since) / self.request.points

    def strand(self, device: str, field: str) -> Band:
        return self.curves.get(device, {}).get(field, NOTHING)


def page(
    request: LoadPast, answers: Mapping[str, Columns], annotations: tuple[Annotation, ...]
) -> Page:
    """`answers`: by device."""
    curves = {
        device: {field: _strand(found, field) for field in request.fields}
        for device, found in answers.items()
    }
    return Page(request, curves, annotations)


def _strand(found: Columns, field: str) -> Band:
    times = np.array(found.times, dtype=np.float64)
    low, mean, high = (
        np.array(part[field], dtype=np.float64) for part in (found.low, found.columns, found.high)
    )
    return Band(times, low, mean, high)


class Past:
    """Asks for what is shown, one question at a time; what is there meanwhile stays."""

    def __init__(self, slot: str) -> None:
        self.slot = slot
        self.page: Page | None = None
        self._asked: LoadPast | None = None
        self._refused = 0.0

    def want(
        self,
        devices: tuple[str, ...],
        fields: tuple[str, ...],
        limits: tuple[float, float],
        pixels: int,
        newest: float,
    ) -> LoadPast | None:
        """What to ask now so that `limits` can be shown on so many pixels; None: nothing, or not yet."""
        start, end = limits
        step = round_up((end - start) / pixels * PIXELS_A_BIN)
        if self._asked is not None or self._serves(devices, fields, start, min(end, newest), step):
            return None
        if time.monotonic() - self._refused < _AGAIN_S:
            return None
        margin = _MARGIN * (end - start)
        first, last = int((start - margin) // step), int(min(end + margin, newest) // step) + 1
        self._asked = LoadPast(self.slot, devices, fields, first * step, last * step, last - first)
        return self._asked

    def take(self, page: Page) -> None:
        """The answer to a question of ours."""
        if page.request is self._asked:
            self.page, self._asked = page, None

    def refused(self, request: LoadPast) -> None:
        """It could not be answered: asked again after a while."""
        if request is self._asked:
            self._asked, self._refused = None, time.monotonic()

    def _serves(
        self,
        devices: tuple[str, ...],
        fields: tuple[str, ...],
        start: float,
        end: float,
        step: float,
    ) -> bool:
        if self.page is None:
            return False
        asked = self.page.request
        return (
            set(devices) <= set(asked.devices)
            and set(fields) <= set(asked.fields)
            and asked.since <= start
            and asked.until >= end - max(step, _FRESH_S)
            and step / _ALIKE <= self.page.step <= step * _ALIKE
        )
