"""Remember the last minutes of every device for the charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpudeck.app.charts.series import Decimated, Floats, Ring
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.snapshot import Snapshot

SECONDS = 600.0
"""Seconds that are remembered."""
_CAPACITY = int(SECONDS * 10)  # ten minutes at the highest telemetry rate
_COLUMNS = {field: i for i, field in enumerate(HEADLINE)}


class History:
    """Keep one ring of the headline fields a device."""

    def __init__(self) -> None:
        self._rings: dict[str, Ring] = {}
        self.loads = 0
        """The number of times that the past of a device was replaced."""
        self._shown: dict[tuple[str, tuple[str, ...]], Decimated] = {}
        self._span: tuple[float, float] | None = None

    def update(self, snapshot: Snapshot) -> None:
        """Add the newest readings, and forget devices that are gone."""
        interval = 1 / snapshot.settings.telemetry_hz
        here = {state.device.id for state in snapshot.devices}
        self._rings = {device: ring for device, ring in self._rings.items() if device in here}
        self._shown = {key: shown for key, shown in self._shown.items() if key[0] in here}
        for state in snapshot.devices:
            if state.reading is not None:
                self._ring(state.device.id).append(
                    state.reading.time, _row(state.reading), interval
                )
        self._span = self._filled()

    def load(
        self, device: str, times: Sequence[float], columns: Mapping[str, Sequence[float | None]]
    ) -> None:
        """Replace what is known of a device by what the daemon remembers.

        Args:
            times: Seconds since the epoch, [n].
            columns: The values of each field, [n] with None for none.
        """
        self.loads += 1
        ring = self._rings[device] = Ring(len(HEADLINE), _CAPACITY)
        rows = np.full((len(times), len(HEADLINE)), np.nan)
        for field, values in columns.items():
            if field in _COLUMNS:
                rows[:, _COLUMNS[field]] = np.array(
                    [np.nan if v is None else v for v in values], dtype=np.float64
                )
        interval = float(np.sort(np.diff(times))[(len(times) - 1) // 2]) if len(times) > 1 else 1.0
        for time, row in zip(times, rows, strict=True):
            ring.append(time, row, interval)
        self._span = self._filled()

    def window(
        self, device: str, fields: Sequence[str], start: float, end: float, bin_width: float
    ) -> tuple[Floats, Floats]:
        """Return a stretch of time, decimated to bins of `bin_width` seconds.

        Shapes:
            times [m] in seconds since the epoch, values [fields, m].
        """
        ring, key = self._ring(device), (device, tuple(fields))
        shown = self._shown.get(key)
        if shown is None or shown.ring is not ring:
            shown = self._shown[key] = Decimated(ring, [_COLUMNS[f] for f in fields])
        return shown.window(start, end, bin_width)

    def curve(self, device: str, field: str) -> tuple[Floats, Floats]:
        """Return all times and values of a field, [n] each, valid until the next reading."""
        ring = self._ring(device)
        return ring.times, ring.values[_COLUMNS[field]]

    def recent(self, device: str, field: str, seconds: float, bins: int) -> Floats:
        """Return the highest value of each of the last bins, NaN where there is none.

        Shapes:
            [bins], in order of time.
        """
        found, ring = np.full(bins, np.nan), self._ring(device)
        if len(ring) and self._span is not None:
            width = seconds / bins
            end = np.floor(self._span[1] / width) + 1  # whole bins, so that they do not shimmer
            first = int(np.searchsorted(ring.times, (end - bins) * width))
            at = np.floor(ring.times[first:] / width).astype(int) - int(end - bins)
            inside = at < bins
            np.fmax.at(found, at[inside], ring.values[_COLUMNS[field], first:][inside])
        return found

    def summary(
        self, device: str, field: str, start: float, end: float
    ) -> tuple[float, float, float] | None:
        """Return the lowest, mean and highest value of a stretch of time; None without values."""
        ring = self._ring(device)
        first, last = np.searchsorted(ring.times, (start, end))
        row = ring.values[_COLUMNS[field], first:last]
        row = row[~np.isnan(row)]
        return (float(row.min()), float(row.mean()), float(row.max())) if len(row) else None

    def span(self) -> tuple[float, float] | None:
        """Return the oldest and newest time of all devices; None before the first reading."""
        return self._span

    def _filled(self) -> tuple[float, float] | None:
        spans = [ring.span for ring in self._rings.values() if len(ring)]
        if not spans:
            return None
        newest = max(last for _, last in spans)
        return max(min(first for first, _ in spans), newest - SECONDS), newest

    def rows(self) -> int:
        """Return the number of rows of all devices."""
        return sum(len(ring) for ring in self._rings.values())

    def _ring(self, device: str) -> Ring:
        if device not in self._rings:
            self._rings[device] = Ring(len(HEADLINE), _CAPACITY)
        return self._rings[device]


def _row(reading: Reading) -> Floats:
    return np.array([reading.values.get(field, np.nan) for field in HEADLINE])
