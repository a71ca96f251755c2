"""The charts' time axis: local time of day at round moments."""

from __future__ import annotations

import time

import pyqtgraph as pg

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300)
_LABEL_WIDTH = 70  # pixels a label needs, with the space around it


class ClockAxis(pg.AxisItem):  # type: ignore[misc]
    """Labels as HH:MM, with seconds where labels are less than a minute apart."""

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        step = next((s for s in _STEPS if (high - low) / s * _LABEL_WIDTH <= size), _STEPS[-1])
        shift = time.localtime(high).tm_gmtoff % step  # round in local time, also where the zone is off by half an hour
        first = -(-(low + shift) // step) * step - shift
        count = int((high - first) // step) + 1
        return [(float(step), [first + i * step for i in range(max(count, 0))])]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        form = "%H:%M:%S" if spacing < 60 else "%H:%M"
        return [time.strftime(form, time.localtime(v)) for v in values]
