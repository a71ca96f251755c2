"""Time series for the charts: a ring of rows, gaps as NaN, and decimation to what a screen can show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GAP_INTERVALS = 2.5
"""Readings further apart than this many intervals have a gap between them."""
SHORTEST_GAP_S = 3.0
"""But not those that are closer: while nobody looks, readings come every two seconds."""


class Ring:
    """The newest `capacity` rows of (time, one value a column), times strictly rising, in one block of memory.

    The block is twice as long as needed, so that a reader always gets contiguous views and a move happens once in `capacity` rows.
    """

    def __init__(self, columns: int, capacity: int) -> None:
        self._rows = np.full((columns + 1, 2 * capacity), np.nan)
        self._capacity = capacity
        self._end = 0
        self.rewound = 0
        """How often the clock was set back, and rows went."""

    def __len__(self) -> int:
        return min(self._end, self._capacity)

    @property
    def span(self) -> tuple[float, float]:
        """Oldest and newest time. There must be a row."""
        times = self._rows[0]
        return float(times[self._end - len(self)]), float(times[self._end - 1])

    @property
    def times(self) -> Floats:
        """Seconds since the epoch, [n]. A view: valid until the next append."""
        return self._rows[0, self._end - len(self) : self._end]

    @property
    def values(self) -> Floats:
        """One row a column, [columns, n], NaN where there was none. A view: valid until the next append."""
        return self._rows[1:, self._end - len(self) : self._end]

    def append(self, time: float, values: Floats, interval: float) -> None:
        """Add a row of [columns] values at `time`; `interval` (s) is how often rows should come.

        A row that is missing becomes a row of NaN. A time already there is ignored; when the clock was set back, what lies in its
        future goes.
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
    """The minimum and maximum of every `bin_width` seconds, and a NaN wherever the values have one.

    `times` [n] rise, `values` is [k, n]; gives times [m] and values [k, m]. Bins start at whole multiples of the width, so that a
    scrolling chart does not shimmer.
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
