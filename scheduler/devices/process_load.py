"""Measure the load that processes put on the CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

LEAST_S, _MOST_S = 0.25, 10.0
"""The span of a load: over a shorter one the kernel's ticks are too coarse, a longer one is old."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessLoad(NamedTuple):
    """Hold what the kernel counts of one process."""

    ticks: int
    """Its start in ticks since boot."""
    resident: float
    """Bytes of the main memory that it occupies."""
    share: float | None
    """Percent of one core since the last reading; None before the second one."""


class LoadMeter:
    """Compute loads from the CPU time between two readings."""

    def __init__(self) -> None:
        self._at = 0.0
        self._seconds: dict[tuple[int, int], float] = {}
        self._shares: dict[tuple[int, int], float] = {}

    def read(self, pids: Iterable[int]) -> dict[int, ProcessLoad]:
        """Return the load of each of these processes that exists."""
        now = time.monotonic()
        found = {pid: stat for pid in pids if (stat := _stat(pid)) is not None}
        seconds = {(pid, stat[0]): stat[1] for pid, stat in found.items()}
        if (span := now - self._at) >= LEAST_S:
            self._shares = {
                key: 100 * max(spent - self._seconds[key], 0.0) / span
                for key, spent in seconds.items()
                if key in self._seconds and span <= _MOST_S
            }
            self._at, self._seconds = now, seconds
        return {
            pid: ProcessLoad(ticks, resident, self._shares.get((pid, ticks)))
            for pid, (ticks, _, resident) in found.items()
        }


def all_pids() -> list[int]:
    """Return the processes that this machine, or this container, shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - fast


def _stat(pid: int) -> tuple[int, float, float] | None:
    """Return the start in ticks, seconds of CPU time and resident bytes of a process.

    Source: proc_pid_stat(5), fields 22, 14, 15 and 24.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - many are read
            stat = file.read()
    except OSError:
        return None  # it ended meanwhile
    fields = stat[stat.rindex(b")") + 2 :].split()
    spent = (int(fields[11]) + int(fields[12])) * _TICK_S
    return int(fields[19]), spent, float(int(fields[21]) * _PAGE)
