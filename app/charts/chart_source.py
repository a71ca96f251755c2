"""Choose the curves of a stretch of time: from the window's memory, or as the daemon sent them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as struct_field

import numpy as np

from gpudeck.app.charts.chart_model import scale
from gpudeck.app.charts.fleet_curves import PIXELS_A_BIN as FLEET_PIXELS_A_BIN
from gpudeck.app.charts.fleet_curves import FleetCurves, fleet_curves
from gpudeck.app.charts.history import SECONDS, History
from gpudeck.app.charts.past_curves import PIXELS_A_BIN, Band, LoadPast, PastCurves, PastLoader
from gpudeck.app.charts.scales import round_up
from gpudeck.app.charts.series import Floats
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.fields import HEADLINE

Limits = tuple[float, float]
Curve = tuple[Floats, Floats]
"""Times in seconds and values in the chart's unit, [n] each."""


@dataclass
class ChartContents:
    """The curves, bands and ghosts of one chart, by device."""

    lines: dict[str, Curve]
    bands: dict[str, Band] = struct_field(default_factory=dict)
    """From the lowest to the highest value of each bin."""
    ghosts: dict[str, Curve] = struct_field(default_factory=dict)
    """The curves of another time, for comparison."""
    step: float = 1.0
    """Width of a bin in seconds."""
    past: PastCurves | None = None
    """The curves that the bands come from."""


class ChartSource:
    """Provide the curves of all charts, which share one time axis."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._shown = PastLoader("shown")
        self._compared = PastLoader("compared")
        self._events = PastLoader("events")

    def recent(self, limits: Limits) -> bool:
        """Report if the window itself remembers this stretch of time."""
        known = self._history.span()
        return known is not None and limits[0] >= known[1] - SECONDS - 1

    def next_requests(
        self, devices: tuple[str, ...], limits: Limits, compared: float | None, pixels: int
    ) -> list[LoadPast]:
        """Return the requests to send to the daemon now.

        Args:
            compared: Begin of the stretch of time that this one is compared with.
            pixels: Width of a chart.
        """
        known = self._history.span()
        if known is None:
            return []
        newest = known[1]
        if self.recent(limits):
            requests = [self._events.next_request((), (), limits, pixels, newest)]
        else:
            requests = [self._shown.next_request(devices, HEADLINE, limits, pixels, newest)]
        if compared is not None:
            other = compared, compared + limits[1] - limits[0]
            requests.append(self._compared.next_request(devices, HEADLINE, other, pixels, newest))
        return [request for request in requests if request is not None]

    def take(self, curves: PastCurves) -> None:
        """Take the reply to a request."""
        for loader in (self._shown, self._compared, self._events):
            loader.take(curves)

    def fail(self, request: LoadPast) -> None:
        """Note that a request failed."""
        for loader in (self._shown, self._compared, self._events):
            loader.fail(request)

    def annotations(self, limits: Limits) -> tuple[Annotation, ...]:
        """Return what happened in a stretch of time, as far as it is known."""
        curves = (self._events if self.recent(limits) else self._shown).curves
        return curves.annotations if curves else ()

    def contents(
        self,
        fields: Sequence[str],
        devices: Sequence[str],
        limits: Limits,
        compared: float | None,
        widths: Mapping[str, int],
    ) -> dict[str, ChartContents]:
        """Return the contents of the charts of `fields`.

        Args:
            compared: Begin of the stretch of time that this one is compared with.
            widths: Pixels of all charts, by field.
        """
        if self.recent(limits):
            found = self._recent_contents(fields, devices, limits, widths)
        else:
            found = {field: self._past_contents(field, devices, limits) for field in fields}
        if compared is not None and self._compared.curves is not None:
            end = compared + limits[1] - limits[0]
            for field, contents in found.items():
                bands = _cut(self._compared.curves, field, devices, (compared, end))
                contents.ghosts = {
                    d: (band.times + limits[0] - compared, band.mean) for d, band in bands.items()
                }
        return found

    def fleet(
        self, field: str, devices: Sequence[str], limits: Limits, width: int, hz: float
    ) -> FleetCurves:
        """Return a field of many devices in common bins.

        Args:
            width: Pixels of the chart.
            hz: Readings a second.
        """
        step = round_up((limits[1] - limits[0]) / width * FLEET_PIXELS_A_BIN)
        divisor, past = scale(field), self._shown.curves
        if self.recent(limits):
            known = [(d, *self._history.curve(d, field)) for d in devices]
            interval = 1 / hz
        elif past is not None:
            bands = {d: past.band(d, field).cut(*limits) for d in devices}
            known = [(d, band.times, band.mean) for d, band in bands.items()]
            interval, step = past.step, max(step, past.step)
        else:
            known, interval = [], step
        made = fleet_curves(known, limits, step, 2 * interval)
        return replace(made, means=made.means / divisor)

    def summary(
        self, field: str, devices: Sequence[str], limits: Limits
    ) -> tuple[float, float, float] | None:
        """Return the lowest, mean and highest value of devices in a stretch of time.

        The values are in the unit of the readings; None if there are none.
        """
        found = [self._device_summary(field, device, limits) for device in devices]
        known = [summary for summary in found if summary is not None]
        if not known:
            return None
        low, mean, high = zip(*known, strict=True)
        return min(low), sum(mean) / len(mean), max(high)

    def _device_summary(
        self, field: str, device: str, limits: Limits
    ) -> tuple[float, float, float] | None:
        if self.recent(limits):
            return self._history.summary(device, field, *limits)
        if self._shown.curves is None:
            return None
        band = self._shown.curves.band(device, field).cut(*limits)
        read = ~np.isnan(band.mean)
        if not read.any():
            return None
        return (
            float(np.nanmin(band.low)),
            float(band.mean[read].mean()),
            float(np.nanmax(band.high)),
        )

    def _recent_contents(
        self,
        wanted: Sequence[str],
        devices: Sequence[str],
        limits: Limits,
        widths: Mapping[str, int],
    ) -> dict[str, ChartContents]:
        """Decimate charts of the same width together, even if only one of them is wanted."""
        found: dict[str, ChartContents] = {}
        for width in {widths[field] for field in wanted}:
            fields = [field for field in widths if widths[field] == width]
            step = round_up((limits[1] - limits[0]) / width * PIXELS_A_BIN)
            found |= {field: ChartContents({}, step=step) for field in fields}
            for device in devices:
                times, values = self._history.window(device, fields, *limits, step)
                for field, row in zip(fields, values, strict=True):
                    found[field].lines[device] = times, row / scale(field)
        return found

    def _past_contents(self, field: str, devices: Sequence[str], limits: Limits) -> ChartContents:
        curves = self._shown.curves
        if curves is None:
            return ChartContents({})
        bands = _cut(curves, field, devices, limits)
        lines = {device: (band.times, band.mean) for device, band in bands.items()}
        return ChartContents(lines, bands, step=curves.step, past=curves)


def _cut(curves: PastCurves, field: str, devices: Sequence[str], limits: Limits) -> dict[str, Band]:
    """Return a stretch of each device's curve in the chart's unit."""
    return {d: curves.band(d, field).cut(*limits).scaled(scale(field)) for d in devices}


def value_at(times: Floats, values: Floats, moment: float, reach: float) -> float | None:
    """Return the value nearest to a moment; None if there is none within `reach` seconds."""
    near = np.abs(times - moment) <= reach
    read = np.flatnonzero(near & ~np.isnan(values))
    return float(values[read[np.argmin(np.abs(times[read] - moment))]]) if len(read) else None
