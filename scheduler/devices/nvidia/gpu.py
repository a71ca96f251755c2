"""One GPU: everything that is asked of it, put together to readings."""

from __future__ import annotations

from time import monotonic
from typing import Any

import msgspec
import pynvml as nv

from scheduler.devices.nvidia.clocks import SmClock, Throttle
from scheduler.devices.nvidia.errors import optional, text
from scheduler.devices.nvidia.events import XidEvents
from scheduler.devices.nvidia.gpm import Counters
from scheduler.devices.nvidia.links import NvLinks, PcieMeter
from scheduler.devices.nvidia.mig import Mig
from scheduler.devices.nvidia.scalars import SLOW_S, Scalars
from scheduler.devices.nvidia.users import Users
from scheduler.protocol.devices import Detail, Device, DevicesChanged, Reading

_VITAL = ("mem_used", "util", "temp", "power", "pstate")
"""A GPU that answers none of these answers nothing: its handle is stale, as after a reloaded driver or a suspended machine."""


class Gpu:
    """A GPU by its index. Raises NVMLError or DevicesChanged where it cannot be opened."""

    def __init__(self, index: int) -> None:
        self.handle = nv.nvmlDeviceGetHandleByIndex(index)
        capability: tuple[int, int] = tuple(nv.nvmlDeviceGetCudaComputeCapability(self.handle))
        sms = optional(_sm_count, self.handle, capability) or 0
        self._scalars = Scalars(self.handle)
        self._sm_clock, self._throttle = SmClock(self.handle), Throttle(self.handle)
        self._mig, self._mig_due = Mig(self.handle), monotonic() + SLOW_S
        self._links, self._pcie = NvLinks(self.handle), PcieMeter(self.handle)
        self._users = Users(self.handle)
        self.device = self._describe(index, capability, sms)
        optional(
            nv.nvmlDeviceGetMemoryInfo, self.handle, nv.nvmlMemory_v2
        )  # a GPU that is lost may still tell its name
        self._counters = Counters(
            self.handle, capability, sms, optional(_peak_bandwidth, self.handle) or 0.0
        )

    def _describe(self, index: int, capability: tuple[int, int], sms: int) -> Device:
        facts = {
            "driver": text(nv.nvmlSystemGetDriverVersion()),
            "compute capability": "{}.{}".format(*capability),
        }
        if sms:
            facts["SMs"] = str(sms)
        if vbios := optional(nv.nvmlDeviceGetVbiosVersion, self.handle):
            facts["VBIOS"] = text(vbios)
        instances = self._mig.instances
        if self._mig.on:
            facts["MIG"] = (
                ", ".join(instance.name for instance in instances) or "on, without an instance"
            )
        name = text(nv.nvmlDeviceGetName(self.handle))
        return Device(
            text(nv.nvmlDeviceGetUUID(self.handle)),
            index,
            name,
            "nvidia",
            "",
            facts,
            self._mig.on,
            instances,
        )

    def tick(self) -> None:
        self._sm_clock.look()

    def read(self, now: float, events: XidEvents) -> Reading:
        """Raises DevicesChanged where the GPU is gone, or is divided into other MIG instances than before."""
        values: dict[str, float] = {}
        absent: dict[str, str] = {}
        methods: dict[str, str] = {}
        texts: dict[str, str] = {}
        steady = monotonic()
        self._scalars.read(steady, values, absent)
        if not any(field in values for field in _VITAL):
            raise DevicesChanged(
                f"GPU {self.device.index} answers nothing any more ({absent['mem_used']})"
            )
        if "power" not in values and "power_avg" in values:
            del absent["power"]
            values["power"], methods["power"] = (
                values["power_avg"],
                "averaged by the card over a second: it tells no instantaneous power",
            )
        self._sm_clock.read(values, absent)
        since = self._throttle.read(now, values, absent)
        if "throttle" in values:
            texts["throttle"] = ", ".join(since) or "none"
        self._counters.read(values, absent, methods)
        if not self._counters.there:
            self._pcie.read(steady, values, absent, methods)
        self._links.read(steady, values, absent, self._counters.there)
        events.read(self.device.id, values, absent, texts)
        self._look_for_instances(steady)
        processes, drawing = self._users.now()
        return Reading(
            self.device.id, now, values, absent, methods, texts, processes, since, drawing=drawing
        )

    def glance(self, now: float) -> Reading:
        """Memory and processes alone."""
        memory = optional(nv.nvmlDeviceGetMemoryInfo, self.handle, nv.nvmlMemory_v2)
        values = (
            {}
            if memory is None
            else {"mem_used": float(memory.used), "mem_free": float(memory.free)}
        )
        processes, drawing = self._users.now()
        return Reading(self.device.id, now, values, processes=processes, drawing=drawing)

    def _look_for_instances(self, steady: float) -> None:
        if steady >= self._mig_due:
            self._mig_due = steady + SLOW_S
            if self._mig.changed():
                raise DevicesChanged(
                    f"GPU {self.device.index} was divided into other MIG instances"
                )

    def detail(self, now: float) -> Detail:
        """What is read only when somebody asks: each link and MIG instance, and all about the processes."""
        names = {instance.gpu_instance: instance.name for instance in self.device.instances}
        processes = [
            msgspec.structs.replace(p, part=names.get(p.instance, "")) for p in self._users.all()
        ]
        return Detail(
            self.device.id,
            now,
            (*self._mig.parts(), *self._links.parts(monotonic())),
            tuple(processes),
        )

    def close(self) -> None:
        self._counters.close()


def _sm_count(handle: Any, capability: tuple[int, int]) -> int:
    try:
        return int(nv.nvmlDeviceGetAttributes(handle).multiprocessorCount)
    except nv.NVMLError:  # older cards and drivers have no attributes: cores / cores of one SM
        per_sm = {7: 64, 8: 64 if capability == (8, 0) else 128}.get(capability[0], 128)
        return int(nv.nvmlDeviceGetNumGpuCores(handle)) // per_sm


def _peak_bandwidth(handle: Any) -> float:
    """Bytes a second: bus width x 2 transfers a memory clock."""
    clock = nv.nvmlDeviceGetMaxClockInfo(handle, nv.NVML_CLOCK_MEM) * 1e6
    return float(nv.nvmlDeviceGetMemoryBusWidth(handle) / 8 * clock * 2)
