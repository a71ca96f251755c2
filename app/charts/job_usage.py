"""What the processes of running jobs have of their devices, where the driver tells it of each process: since the window was opened."""

from __future__ import annotations

import numpy as np

from app.charts.history import SECONDS
from app.charts.series import Floats, Ring
from scheduler.protocol.devices import Reading
from scheduler.protocol.snapshot import Snapshot

FIELDS = ("util", "mem_used")
"""The fields of a reading of which a process may have a share."""
_CAPACITY = int(SECONDS * 10)  # as the history: ten minutes at the highest telemetry rate


class JobUsage:
    """One ring for each job and device that it holds; forgotten with the job."""

    def __init__(self) -> None:
        self._rings: dict[tuple[int, str], Ring] = {}

    def update(self, snapshot: Snapshot) -> None:
        """Take in the newest readings."""
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
        """Times [n] (s since the epoch) and values [2, n] of FIELDS; None where nothing of the job's own was ever told."""
        ring = self._rings.get((job, device))
        if ring is None:
            return None
        inside = (ring.times >= start) & (ring.times <= end)
        times, values = ring.times[inside], ring.values[:, inside]
        return None if np.isnan(values).all() else (times, values)


def _share(reading: Reading, job: int) -> Floats:
    """Percent of the multiprocessors, and bytes; NaN where no process of the job tells."""
    own = [process for process in reading.processes if process.job == job]
    told = (
        [p.sm for p in own if p.sm is not None],
        [p.memory for p in own if p.memory is not None],
    )
    return np.array([sum(values) if values else np.nan for values in told])
