"""The recent past of every device, in memory: a ring of readings, bounded in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from scheduler.devices.model import Reading
from scheduler.telemetry.snapshot import Columns

SPAN_S = 600.0
"""Ten minutes: what the dashboard shows."""


class History:
    """Readings of one device, oldest first."""

    def __init__(self, span_s: float = SPAN_S) -> None:
        self._span = span_s
        self._readings: deque[Reading] = deque()

    def add(self, reading: Reading) -> None:
        self._readings.append(reading)
        while self._readings[0].time < reading.time - self._span:
            self._readings.popleft()

    def latest(self, seconds: float, now: float) -> list[Reading]:
        """The readings of the last `seconds`, oldest first."""
        found: list[Reading] = []
        for reading in reversed(self._readings):
            if reading.time < now - seconds:
                break
            found.append(reading)
        found.reverse()
        return found

    def columns(self, fields: Sequence[str], since: float, until: float) -> Columns:
        chosen = [r for r in self._readings if since <= r.time <= until]
        return Columns([r.time for r in chosen], {f: [r.values.get(f) for r in chosen] for f in fields})
