"""Find out whether a session is used: by a person, its processes or its GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import held_devices

BUSY_CPU = 0.1
"""The share of one processor from which on the session's processes compute."""
PAUSE_S = 60.0
"""A longer time between two checks means that the session was suspended: it was not idle then."""
_ANSWER_S = 5.0


class Seen(NamedTuple):
    """Hold what the daemon tells of a session."""

    gpu_busy: bool
    """Whether the job's GPUs compute."""
    most: float
    """Seconds without use after which any session is over (the setting `session_idle`); 0: any."""


class IdleClock:
    """Remember when a session was last used.

    Args:
        limit: Seconds without use after which it is over; 0: never.
        look: Returns what the daemon tells.
        cpu_seconds: Returns the processor time of the session's processes.
    """

    def __init__(
        self,
        limit: float,
        look: Callable[[], Seen],
        cpu_seconds: Callable[[], float],
    ) -> None:
        self.limit = self._own = limit
        self._look, self._cpu_seconds = look, cpu_seconds
        self.active = self._checked = time.time()
        self._used = cpu_seconds()

    def check(self, active: float) -> bool:
        """Return whether the session is over.

        Args:
            active: When a person or a kernel was last active, in seconds since the epoch.
        """
        now, used = time.time(), self._cpu_seconds()
        if (gap := now - self._checked) > PAUSE_S:
            self.active = min(self.active + gap, now)
        computed = used - self._used > BUSY_CPU * (now - self._checked)
        self._used, self._checked = used, now
        self.active = max(self.active, min(active, now))
        seen = self._look()
        self.limit = min(filter(None, (self._own, seen.most)), default=0.0)
        if computed or seen.gpu_busy:
            self.active = now
        return 0 < self.limit <= now - self.active


def look() -> Seen:
    """Return what the daemon tells of this process's job; it is busy where nobody can tell."""
    try:
        with Client(start=False, timeout=_ANSWER_S) as daemon:
            snapshot = daemon.snapshot(live=False)
            job = daemon.job(int(os.environ["GPUDECK_JOB"]))
    except UserError:
        return Seen(True, 0.0)
    held, least = held_devices(job), snapshot.settings.idle_util_percent
    minutes, busy = snapshot.settings.session_idle, False
    most = 0.0 if minutes == "off" else 60.0 * minutes
    for state in snapshot.devices:
        if state.device.id in held and state.device.kind != "cpu" and state.reading is not None:
            util = state.reading.get("util")
            if isinstance(util, int | float) and util > least:
                busy = True
    return Seen(busy, most)


def cpu_seconds() -> float:
    """Return the processor time of all processes that this one started and that live."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue  # it has just ended
        total += times.user + times.system
    return total
