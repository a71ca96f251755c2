"""Put one value of many devices into common bins, as a heat map shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudeck.app.charts.series import SHORTEST_GAP_S, Floats

PIXELS_A_BIN = 4
"""Pixels of width of a bin: the curves of many devices need fewer details than those of one."""


@dataclass(frozen=True, eq=False)
class FleetCurves:
    """One value of many devices, in the chart's unit."""

    devices: tuple[str, ...]
    start: float
    """Begin of the first bin in seconds since the epoch."""
    step: float
    """Width of a bin in seconds."""
    means: Floats
    """The mean of each device in each bin, [devices, bins], NaN where nothing was read."""

    @cached_property
    def empty(self) -> bool:
        """Report if no device has a value."""
        return bool(np.isnan(self.means).all())

    def extremes(self) -> tuple[tuple[float, str], tuple[float, str]] | None:
        """Return the lowest and the highest value, each with its device; None without values."""
        if self.empty:
            return None
        low, high = int(np.nanargmin(self.means)), int(np.nanargmax(self.means))
        bins = self.means.shape[1]
        return (
            (float(self.means.flat[low]), self.devices[low // bins]),
            (float(self.means.flat[high]), self.devices[high // bins]),
        )

    def values_at(self, moment: float) -> dict[str, float]:
        """Return the value of each device that has one at a moment."""
        at = int((moment - self.start) // self.step)
        if not 0 <= at < self.means.shape[1]:
            return {}
        row = self.means[:, at]
        return {d: float(v) for d, v in zip(self.devices, row, strict=True) if not np.isnan(v)}


def fleet_curves(
    curves: Iterable[tuple[str, Floats, Floats]],
    limits: tuple[float, float],
    step: float,
    interval: float,
) -> FleetCurves:
    """Put the curves of many devices into bins that start at multiples of their width.

    Args:
        curves: The id of each device with its times in rising order and its values, [n] each,
            with NaN at the begin of a gap.
        limits: Both ends of the time axis.
        step: Width of a bin in seconds.
        interval: Seconds between two values at most: a bin in which nothing was read keeps the
            last value that long.
    """
    start = np.floor(limits[0] / step) * step
    bins = max(int(np.ceil((limits[1] - start) / step)), 1)
    ends = start + np.arange(1, bins + 1) * step
    reach = max(interval, SHORTEST_GAP_S)
    rows, devices = [], []
    for device, times, values in curves:
        devices.append(device)
        rows.append(_binned(times, values, start, step, ends, reach))
    means = np.array(rows) if rows else np.empty((0, bins))
    return FleetCurves(tuple(devices), float(start), step, means)


def _binned(
    times: Floats, values: Floats, start: float, step: float, ends: Floats, reach: float
) -> Floats:
    """Return the mean of each bin, [bins]; of an empty one the last value before it."""
    bins = len(ends)
    if not len(times):
        return np.full(bins, np.nan)
    first, last = np.searchsorted(times, (start, ends[-1]))
    inside = ((times[first:last] - start) / step).astype(int)
    part = values[first:last]
    read = ~np.isnan(part)
    count = np.bincount(inside[read], minlength=bins)[:bins]
    sums = np.bincount(inside[read], part[read], minlength=bins)[:bins]
    means = np.divide(sums, count, out=np.full(bins, np.nan), where=count > 0)
    before = np.searchsorted(times, ends) - 1  # also finds the begin of a gap, which is NaN
    near = (count == 0) & (before >= 0) & (ends - times[np.maximum(before, 0)] <= reach + step)
    means[near] = values[before[near]]
    return np.asarray(means, np.float64)
