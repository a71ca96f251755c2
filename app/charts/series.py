"""Store time series in rings, with gaps as NaN, and decimate them to what a screen can show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GAP_INTERVALS = 2.5
"""Readings that are more intervals apart have a gap between them."""
SHORTEST_GAP_S = 3.0
"""Readings that are closer have no gap: without an open window they come every two seconds."""


class Ring:
    """Keep the newest `capacity` rows of a time and one value a column, in rising order of time.

    The block of memory is twice as long as needed, so that a reader always gets contiguous
    views, and rows are moved only once in `capacity` rows.
    """

    def __init__(self, columns: int, capacity: int) -> None:
        self._rows = np.full((columns + 1, 2 * capacity), np.nan)
        self._capacity = capacity
        self._end = 0
        self.rewound = 0
        """The number of times that the clock was set back, which removed rows."""

    def __len__(self) -> int:
        return min(self._end, self._capacity)

    @property
    def span(self) -> tuple[float, float]:
        """Return the oldest and the newest time; there must be a row."""
        times = self._rows[0]
        return float(times[self._end - len(self)]), float(times[self._end - 1])

    @property
    def times(self) -> Floats:
        """Return a view of all times in seconds, [n], valid until the next append."""
        return self._rows[0, self._end - len(self) : self._end]

    @property
    def values(self) -> Floats:
        """Return a view of all values, [columns, n], NaN for none, valid until the next append."""
        return self._rows[1:, self._end - len(self) : self._end]

    def append(self, time: float, values: Floats, interval: float) -> None:
        """Add a row.

        A time that is known already is ignored. After a gap a row of NaN is added first. When the
        clock was set back, rows in its future are removed.

        Args:
            time: Seconds since the epoch.
            values: One value a column.
            interval: Seconds between two rows, as they should come.
        """
        if self._end:
            last = self._rows[0, self._end - 1]
            if time == last:
                return
            if time < last:
                self.rewound += 1
                self._end = int(np.searchsorted(self._rows[0, : self._end], time))
            elif time - last > max(GAP_INTERVALS * interval, SHORTEST_GAP_S):
                self._push(last + interval, np.full(len(values), np.nan))
        self._push(time, values)

    def _push(self, time: float, values: Floats) -> None:
        if self._end == self._rows.shape[1]:
            self._rows[:, : self._capacity] = self._rows[:, self._capacity :]
            self._end = self._capacity
        self._rows[0, self._end] = time
        self._rows[1:, self._end] = values
        self._end += 1


def decimate(times: Floats, values: Floats, bin_width: float) -> tuple[Floats, Floats]:
    """Reduce each bin of `bin_width` seconds to its minimum and maximum, and NaN if it has one.

    Bins start at multiples of the width, so that a scrolling chart does not shimmer.

    Shapes:
        times [n] in rising order, values [k, n]; returns times [m], values [k, m].
    """
    if not len(times):
        return times, values
    bins = np.floor(times / bin_width)
    starts = np.concatenate(([0], np.flatnonzero(bins[1:] != bins[:-1]) + 1))
    ends = np.concatenate((starts[1:], [len(times)])) - 1
    low, high = np.fmin.reduceat(values, starts, axis=1), np.fmax.reduceat(values, starts, axis=1)
    rising = values[:, starts] <= values[:, ends]
    left, marks = bins[starts] * bin_width, np.array([0.25, 0.75, 0.875]) * bin_width
    missing = np.isnan(values)
    gaps = bool(missing.any())
    x = left[:, None] + marks[: 2 + gaps]
    y = np.empty((len(values), *x.shape))
    y[:, :, 0], y[:, :, 1] = np.where(rising, low, high), np.where(rising, high, low)
    if not gaps:
        return x.ravel(), y.reshape(len(values), -1)
    broken = np.logical_or.reduceat(missing, starts, axis=1)
    y[:, :, 2] = np.where(broken, np.nan, y[:, :, 1])
    keep = np.ones(x.shape, dtype=bool)
    keep[:, 2] = broken.any(axis=0)
    return x[keep], y[:, keep]


class Decimated:
    """Keep the stretch of a ring that a chart shows, decimated; compute only what is new.

    Complete bins never change, since they start at multiples of their width.
    """

    def __init__(self, ring: Ring, columns: Sequence[int]) -> None:
        self.ring = ring
        self._columns = list(columns)
        self._start = self._bin_width = self._open = 0.0
        """`_open` is the time of the first row of the newest bin, which may still grow."""
        self._rewound = 0
        self._times, self._values = np.empty(0), np.empty((len(self._columns), 0))

    def window(self, start: float, end: float, bin_width: float) -> tuple[Floats, Floats]:
        """Return times and values from `start` to `end`, and one more bin on each side.

        Shapes:
            times [m] in seconds since the epoch, values [columns, m]; read-only views.
        """
        if (
            bin_width != self._bin_width
            or start < self._start
            or self.ring.rewound != self._rewound
        ):
            self._forget(start, bin_width)
        self._start = start
        self._extend(end + bin_width)
        first, last = np.searchsorted(self._times, (start - bin_width, end + bin_width))
        return self._times[first:last], self._values[:, first:last]

    def _forget(self, start: float, bin_width: float) -> None:
        self._start, self._bin_width, self._rewound = start, bin_width, self.ring.rewound
        self._open = start - bin_width
        self._times, self._values = np.empty(0), np.empty((len(self._columns), 0))

    def _extend(self, end: float) -> None:
        width = self._bin_width
        first, last = np.searchsorted(self.ring.times, (self._open, end))
        times = self.ring.times[first:last]
        if not len(times):
            return
        x, y = decimate(times, self.ring.values[self._columns, first:last], width)
        begin = np.searchsorted(self._times, self._start - width)
        stays = np.searchsorted(self._times, np.floor(times[0] / width) * width)
        self._times = np.concatenate((self._times[begin:stays], x))
        self._values = np.concatenate((self._values[:, begin:stays], y), axis=1)
        bins = np.floor(times / width)
        self._open = float(times[np.searchsorted(bins, bins[-1])])
