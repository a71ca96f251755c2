"""Follow the processes on each device, for the history."""

from __future__ import annotations

from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.past_processes import LOAD, MEMORY, use_of

STEP_S = 2.0
"""Seconds between two readings of a process that are kept: memory and load seldom change."""


class ProcessUses:
    """Turn what a reading says of processes into readings of these processes."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, float]] = {}
        """When each process was kept last, by device and key."""
        self.ended: set[str] = set()
        """The keys of processes that have left their device; whoever closes them empties this."""

    def add(self, reading: Reading) -> list[Reading]:
        """Return a reading of each process on the device that is due."""
        before = self._last.get(reading.device, {})
        now, due = dict[str, float](), list[Reading]()
        for process in reading.processes:
            values = {MEMORY: process.memory, LOAD: process.sm}
            known = {name: value for name, value in values.items() if value is not None}
            key = use_of(reading.device, process).key
            last = before.get(key)
            if last is not None and 0 <= reading.time - last < STEP_S:
                now[key] = last
            elif known:
                now[key] = reading.time
                due.append(Reading(key, reading.time, known))
        self.ended |= before.keys() - now.keys()
        self.ended -= now.keys()
        self._last[reading.device] = now
        return due

    def forget(self, device: str) -> None:
        """Take note that the device is no longer read: its processes are not known any more."""
        self.ended |= self._last.pop(device, {}).keys()
