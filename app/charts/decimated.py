"""The stretch of a ring that a chart shows, decimated, and kept: a chart that scrolls on computes only what is new."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.charts.series import Floats, Ring, decimate


class Decimated:
    """Some columns of a ring, decimated as asked for last. Complete bins never change, since they start at multiples of their width."""

    def __init__(self, ring: Ring, columns: Sequence[int]) -> None:
        self.ring = ring
        self._columns = list(columns)
        self._start = self._bin_width = self._open = 0.0
        """`_open`: time of the first row of the newest bin, which may grow."""
        self._rewound = 0
        self._times, self._values = np.empty(0), np.empty((len(self._columns), 0))

    def window(self, start: float, end: float, bin_width: float) -> tuple[Floats, Floats]:
        """Times [m] (s since the epoch) and values [columns, m] from `start` to `end`, a bin more at each side. Views: read only."""
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
