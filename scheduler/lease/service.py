"""Who may have a GPU as a tenant, and until when: what the monitor sees, put to the one lease there is (see `tenancy`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from scheduler.lease.lease import LeaseSlot, end_stray
from scheduler.protocol import busy_causes
from scheduler.protocol.devices import Reading
from scheduler.protocol.errors import UserError
from scheduler.protocol.settings import Settings
from scheduler.protocol.snapshot import DeviceState, Idle
from scheduler.telemetry.monitor import Monitor

Latest = Mapping[str, Reading]
"""What was read of each device last."""


class LeaseService:
    """`glance` asks for a reading that is then given to `look`; `left` is called once a tenant has left, `changed` when that is decided."""

    def __init__(
        self,
        monitor: Monitor,
        glance: Callable[[], None],
        left: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._monitor, self._changed = monitor, changed
        self._slot = LeaseSlot(glance, left)

    @property
    def device(self) -> str | None:
        """Id of the device that the tenant has, or has not quite left yet."""
        return self._slot.device

    @property
    def trouble(self) -> str:
        """A tenant that ended and still has its memory; empty where all is well."""
        return self._slot.trouble

    def lease(
        self,
        states: Sequence[DeviceState],
        latest: Latest,
        memory: int,
        pid: int,
        evict: Callable[[str], None],
    ) -> str:
        """Let the process have an idle GPU with so many bytes free: the last one, as jobs get the first. Returns its id.

        Raises UserError, saying why, where there is none.
        """
        if self.device is not None:
            raise UserError("the assistant has a GPU already, or is just leaving it")
        gpus = [state for state in states if state.device.kind == "nvidia"]
        if not gpus:
            raise UserError("no NVIDIA GPU is watched here. Set the model device to cpu")
        why_not = []
        for state in reversed(gpus):
            reading = latest.get(state.device.id)
            if not isinstance(state.use, Idle):
                why_not.append(f"{state.device.name}: {state.use.reason}")
            elif reading is None:
                why_not.append(f"{state.device.name}: no current reading")
            elif reading.values.get("mem_free", float(memory)) < memory:
                why_not.append(f"{state.device.name}: not enough memory is free")
            else:
                self._slot.grant(reading, pid, evict)
                self._changed()
                return state.device.id
        raise UserError("; ".join(reversed(why_not)))

    def look(self, readings: Sequence[Reading], latest: Latest, settings: Settings) -> None:
        """Have the tenant leave where anybody else came, and see whether it is gone. One without a lease has no business on a GPU."""
        for reading in readings:
            if reading.device == self.device:
                self._slot.see(reading)
            else:
                for process in reading.processes:
                    if process.assistant:
                        end_stray(process.pid)
        self.review(latest, settings)

    def review(self, latest: Latest, settings: Settings) -> None:
        """Have the tenant leave where it may not stay, also by the clock, or as nothing can be read."""
        if self.device is not None and self._slot.stays:
            why = self._monitor.eviction_cause(
                self.device, latest.get(self.device), settings, time.time()
            )
            if why is not None:
                self.evict(self.device, busy_causes.explain(why))

    def evict(self, device: str, why: str) -> None:
        """Have the tenant leave the device at once, where it has it."""
        if device == self.device and self._slot.evict(why):
            self._monitor.record_eviction(device, time.time())
            self._changed()
