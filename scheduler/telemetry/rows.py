"""The newest readings of a device, in memory: columns that grow at their end."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np

from scheduler.telemetry.table import Table

MOST = 6000
"""Rows: ten minutes at ten readings a second. Where the disk is full for longer, the oldest go."""
_NAN = float("nan")


class Rows:
    """Readings in the order they came."""

    def __init__(self) -> None:
        self._times = array("d")
        self._counts = array("d")
        self.fields: dict[str, array[float]] = {}
        self.saved = 0
        """So many of the first rows are safe elsewhere, too."""

    def __len__(self) -> int:
        return len(self._times)

    def add(self, time: float, values: Mapping[str, float], count: int = 1) -> None:
        """A reading; with `count` 0: nothing was read from here on."""
        if len(self) >= MOST:
            self.drop(MOST // 2)
        for field in values.keys() - self.fields.keys():
            self.fields[field] = array("d", [_NAN]) * len(self)
        self._times.append(time)
        self._counts.append(count)
        for field, column in self.fields.items():
            column.append(values.get(field, _NAN))

    def drop(self, count: int) -> None:
        """Forget the first `count` rows."""
        for column in (self._times, self._counts, *self.fields.values()):
            del column[:count]
        self.saved = max(self.saved - count, 0)

    def table(self, start: int = 0) -> Table:
        """A copy of the rows from `start` on, in the order of time."""
        fields = {field: np.array(column[start:])[None] for field, column in self.fields.items()}
        return Table(np.array(self._times[start:]), np.array(self._counts[start:]), fields).risen()
