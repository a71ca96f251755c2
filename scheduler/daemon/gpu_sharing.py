"""GPUs that the queues of other users hold, want or release."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gpudeck.scheduler.daemon.state import State
from gpudeck.scheduler.executors.gpu_lock_watch import GpuLockWatch
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.wait_reasons import Holder
from gpudeck.scheduler.telemetry.monitor import Monitor


class GpuSharing:
    """Apply the locks of GPUs to the devices that there are."""

    def __init__(self, state: State, monitor: Monitor, locks: GpuLockWatch) -> None:
        self._state, self._monitor, self._locks = state, monitor, locks

    def memory_of(self, device: str) -> float | None:
        """Return the bytes of a GPU that all users share; None for any other device."""
        if not any(d.id == device and d.kind == "nvidia" for d in self._monitor.devices):
            return None
        found = self._state.latest.get(device)
        return math.inf if found is None else found.values.get("mem_total", math.inf)

    def read(self, running: Sequence[Job]) -> Mapping[str, float]:
        """Return the bytes of GPUs that queues of other users hold, as they are now."""
        held = self._locks.read(self._gpus(), running)
        self._monitor.held_by_others = self._locks.wanted.union(held)
        return held

    @property
    def holders(self) -> Mapping[str, Holder]:
        """Return the processes that hold GPUs for others, as they were known last."""
        return self._locks.holders

    def follow(self, leased: str | None, waits: bool, running: Sequence[Job]) -> bool:
        """Tell other queues what this one lends and wants, and return whether they released a GPU.

        Readings may be rare, so that this is called between them. Assistants leave the GPUs that
        jobs wait for: ours, and those of other queues.

        Args:
            leased: the GPU that our assistant has.
            waits: True while one of our jobs waits for devices.
            running: our jobs that run.
        """
        self._locks.lend(() if leased is None else (leased,))
        self._locks.want(self._gpus() if waits else ())
        before = self._locks.held
        if leased is None and not (before and waits):
            return False
        return self.read(running) != before and waits

    def _gpus(self) -> list[str]:
        return [device.id for device in self._monitor.devices if device.kind == "nvidia"]
