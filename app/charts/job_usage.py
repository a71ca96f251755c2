"""Remember the share that running jobs have of their devices, as far as the driver reports it."""

from __future__ import annotations

import numpy as np

from gpudeck.app.charts.history import SECONDS
from gpudeck.app.charts.series import Floats, Ring
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.snapshot import Snapshot

FIELDS = ("util", "mem_used")
"""The fields of a reading that a process may have a share of."""
_CAPACITY = int(SECONDS * 10)
"""Ten minutes at the highest telemetry rate, as in the history."""


class JobUsage:
    """Keep one ring for each job and device that it holds, until the job is forgotten."""

    def __init__(self) -> None:
        self._rings: dict[tuple[int, str], Ring] = {}

    def update(self, snapshot: Snapshot) -> None:
        """Add the newest readings."""
        known = {job.id for job in snapshot.jobs}
        self._rings = {key: ring for key, ring in self._rings.items() if key[0] in known}
        for state in snapshot.devices:
            for job in state.holders if state.reading is not None else ():
                assert state.reading is not None
                ring = self._rings.setdefault((job, state.device.id), Ring(len(FIELDS), _CAPACITY))
                ring.append(
                    state.reading.time,
                    _share(state.reading, job),
                    1 / snapshot.settings.telemetry_hz,
                )

    def window(
        self, job: int, device: str, start: float, end: float
    ) -> tuple[Floats, Floats] | None:
        """Return the job's share of `FIELDS` over time; None if it was never reported.

        Shapes:
            times [n] in seconds since the epoch, values [2, n].
        """
        ring = self._rings.get((job, device))
        if ring is None:
            return None
        inside = (ring.times >= start) & (ring.times <= end)
        times, values = ring.times[inside], ring.values[:, inside]
        return None if np.isnan(values).all() else (times, values)


def _share(reading: Reading, job: int) -> Floats:
    """Return percent of the multiprocessors, and bytes; NaN if the driver reports none."""
    own = [process for process in reading.processes if process.job == job]
    reported = (
        [p.sm for p in own if p.sm is not None],
        [p.memory for p in own if p.memory is not None],
    )
    return np.array([sum(values) if values else np.nan for values in reported])
