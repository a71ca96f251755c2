"""What the charts draw of a stretch of time: the last minutes from the window's own memory, the rest as the daemon told it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as also

import numpy as np

from app.charts.chart_model import scale
from app.charts.history import SECONDS, History
from app.charts.past_curves import PIXELS_A_BIN, Band, LoadPast, Page, Past
from app.charts.scales import round_up
from app.charts.series import Floats
from scheduler.protocol.annotation import Annotation
from scheduler.protocol.fields import HEADLINE

Limits = tuple[float, float]


@dataclass
class ChartContents:
    """What one chart draws, in its unit: for each device times (s) and values, [n] each; behind them bands; of another time, ghosts."""

    lines: dict[str, tuple[Floats, Floats]]
    bands: dict[str, Band] = also(default_factory=dict)
    ghosts: dict[str, tuple[Floats, Floats]] = also(default_factory=dict)
    step: float = 1.0
    """Seconds of a bucket."""
    page: Page | None = None
    """Where the bands come from."""


class ChartSource:
    """Of all charts: they share a time axis."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._shown, self._compared, self._happened = (
            Past("shown"),
            Past("compared"),
            Past("happened"),
        )

    def recent(self, limits: Limits) -> bool:
        """Whether the window itself remembers this stretch."""
        known = self._history.span()
        return known is not None and limits[0] >= known[1] - SECONDS - 1

    def wants(
        self, devices: tuple[str, ...], limits: Limits, beside: float | None, pixels: int
    ) -> list[LoadPast]:
        """What to ask the daemon now. `beside`: begin of the stretch that this one is compared with."""
        known = self._history.span()
        if known is None:
            return []
        newest, length = known[1], limits[1] - limits[0]
        asked = [
            self._happened.want((), (), limits, pixels, newest) if self.recent(limits) else None
        ]
        asked += [
            None
            if self.recent(limits)
            else self._shown.want(devices, HEADLINE, limits, pixels, newest)
        ]
        asked += [
            None
            if beside is None
            else self._compared.want(devices, HEADLINE, (beside, beside + length), pixels, newest)
        ]
        return [request for request in asked if request is not None]

    def take(self, page: Page) -> None:
        """An answer."""
        for past in (self._shown, self._compared, self._happened):
            past.take(page)

    def refused(self, request: LoadPast) -> None:
        for past in (self._shown, self._compared, self._happened):
            past.refused(request)

    def annotations(self, limits: Limits) -> tuple[Annotation, ...]:
        """What happened, as far as it is known."""
        found = (self._happened if self.recent(limits) else self._shown).page
        return found.annotations if found else ()

    def draw(
        self,
        due: Sequence[str],
        devices: Sequence[str],
        limits: Limits,
        beside: float | None,
        widths: Mapping[str, int],
    ) -> dict[str, ChartContents]:
        """For each field of `due` what it shows. `widths`: pixels of all charts."""
        if self.recent(limits):
            found = self._own(due, devices, limits, widths)
        else:
            found = {field: self._told(field, devices, limits) for field in due}
        for field, drawn in found.items() if beside is not None else ():
            drawn.ghosts = self._ghosts(field, devices, limits, beside or 0.0)
        return found

    def _own(
        self, due: Sequence[str], devices: Sequence[str], limits: Limits, widths: Mapping[str, int]
    ) -> dict[str, ChartContents]:
        """Charts of one width are decimated together, where one of them is due."""
        found: dict[str, ChartContents] = {}
        for width in {widths[field] for field in due}:
            fields = [field for field in widths if widths[field] == width]
            step = round_up((limits[1] - limits[0]) / width * PIXELS_A_BIN)
            found |= {field: ChartContents({}, step=step) for field in fields}
            for device in devices:
                times, values = self._history.window(device, fields, *limits, step)
                for field, row in zip(fields, values, strict=True):
                    found[field].lines[device] = times, row / scale(field)
        return found

    def _told(self, field: str, devices: Sequence[str], limits: Limits) -> ChartContents:
        page = self._shown.page
        if page is None:
            return ChartContents({})
        strands = {
            device: _scaled(page.strand(device, field).cut(*limits), field) for device in devices
        }
        return ChartContents(
            {d: (s.times, s.mean) for d, s in strands.items()}, strands, {}, page.step, page
        )

    def _ghosts(
        self, field: str, devices: Sequence[str], limits: Limits, beside: float
    ) -> dict[str, tuple[Floats, Floats]]:
        page, shift = self._compared.page, limits[0] - beside
        if page is None:
            return {}
        cut = {
            d: _scaled(page.strand(d, field).cut(beside, beside + limits[1] - limits[0]), field)
            for d in devices
        }
        return {device: (strand.times + shift, strand.mean) for device, strand in cut.items()}


def _scaled(strand: Band, field: str) -> Band:
    by = scale(field)
    return (
        strand
        if by == 1
        else Band(strand.times, strand.low / by, strand.mean / by, strand.high / by)
    )


def value_at(times: Floats, values: Floats, moment: float, reach: float) -> float | None:
    """The value nearest to a moment; None where there is none within `reach` seconds."""
    near = np.abs(times - moment) <= reach
    read = np.flatnonzero(near & ~np.isnan(values))
    return float(values[read[np.argmin(np.abs(times[read] - moment))]]) if len(read) else None
