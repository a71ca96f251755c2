"""A recorded trace played back as if it were live, in a loop. Labelled REPLAY wherever it is shown; runs no jobs."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import msgspec

from scheduler.devices import trace
from scheduler.protocol.devices import Detail, Device, Reading


class ReplaySource:
    """Plays a trace from the moment it is opened, at the speed at which it was recorded."""

    def __init__(self, file: Path, copies: int = 1, start: float | None = None) -> None:
        """`copies`: plays each device this many times, shifted in time, as a machine with more GPUs.

        `start`: the time (seconds since the epoch) that plays the first moment; the first read where None.
        Raises what `trace.read` raises.
        """
        header, self._moments = trace.read(file)
        self._file, self._copies, self._start = file, copies, start
        first = self._moments[0].time
        self._offsets = [m.time - first for m in self._moments]
        step = self._offsets[-1] / max(len(self._offsets) - 1, 1) or 0.5
        self._length = self._offsets[-1] + step
        self._recorded = header.devices

    def devices(self) -> list[Device]:
        return [
            msgspec.structs.replace(
                d,
                id=f"REPLAY-{copy * len(self._recorded) + i}",
                index=copy * len(self._recorded) + i,
                name=f"REPLAY {d.name}",
                kind="replay",
                note=f"REPLAY of {self._file.name}: recorded, not live",
            )
            for copy in range(self._copies)
            for i, d in enumerate(self._recorded)
        ]

    def tick(self) -> None:
        """Nothing to average: the recorded readings are averages already."""

    def glance(self, now: float) -> list[Reading]:
        """Nothing: what was recorded is on no device now."""
        return []

    def read(self, now: float) -> list[Reading]:
        if self._start is None:
            self._start = now
        readings: list[Reading] = []
        for copy in range(self._copies):
            played = (now - self._start + copy * self._length / self._copies) % self._length
            moment = self._moments[max(bisect_right(self._offsets, played) - 1, 0)]
            by_id = {r.device: r for r in moment.readings}
            for i, device in enumerate(self._recorded):
                if (recorded := by_id.get(device.id)) is not None:
                    new = f"REPLAY-{copy * len(self._recorded) + i}"
                    readings.append(
                        msgspec.structs.replace(
                            recorded, device=new, time=now, processes=(), otherwise="not recorded"
                        )
                    )
        return readings

    def details(self, now: float) -> list[Detail]:
        """Nothing: a trace holds readings alone."""
        return []

    def close(self) -> None:
        pass
