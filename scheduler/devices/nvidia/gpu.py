"""Read one GPU: put the answers of all its meters together to readings."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pynvml as nv

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.devices.nvidia import unified
from gpudeck.scheduler.devices.nvidia.clocks import SmClock, Throttle
from gpudeck.scheduler.devices.nvidia.errors import optional, text
from gpudeck.scheduler.devices.nvidia.events import XidEvents
from gpudeck.scheduler.devices.nvidia.gpm import HardwareCounters
from gpudeck.scheduler.devices.nvidia.gpu_processes import GpuProcesses
from gpudeck.scheduler.devices.nvidia.links import NvLinks, PcieMeter
from gpudeck.scheduler.devices.nvidia.mig import MigInstances
from gpudeck.scheduler.devices.nvidia.queries import SLOW_S, Scalars
from gpudeck.scheduler.protocol import calibration
from gpudeck.scheduler.protocol.absence import Absence, explain
from gpudeck.scheduler.protocol.devices import Detail, Device, DevicesChanged, Reading
from gpudeck.scheduler.protocol.recovery import recovery_text

_VITAL = ("mem_used", "util", "temp", "power", "pstate")
"""A GPU that answers none of these has a stale handle, as after a reload of the driver or a
suspend."""


class Gpu:
    """Read a GPU by its index."""

    def __init__(self, index: int) -> None:
        """Open the GPU. Raises NVMLError or DevicesChanged where that fails."""
        self.handle = nv.nvmlDeviceGetHandleByIndex(index)
        capability: tuple[int, int] = tuple(nv.nvmlDeviceGetCudaComputeCapability(self.handle))
        sms = optional(_sm_count, self.handle, capability) or 0
        self._scalars = Scalars(self.handle)
        self._sm_clock, self._throttle = SmClock(self.handle), Throttle(self.handle)
        self._mig, self._mig_check = MigInstances(self.handle), monotonic() + SLOW_S
        self._links, self._pcie = NvLinks(self.handle), PcieMeter(self.handle)
        self._processes = GpuProcesses(self.handle)
        self._unified = not unified.has_own_memory(self.handle)
        self.device = self._describe(index, capability, sms)
        # a GPU that is lost may still answer its name, but not this
        optional(nv.nvmlDeviceGetMemoryInfo, self.handle, nv.nvmlMemory_v2)
        self._instances = self._mig.open(self.device)
        self._counters = HardwareCounters(
            self.handle,
            capability,
            sms,
            optional(_peak_bandwidth, self.handle) or 0.0,
            calibration.in_force(
                self.device.id,
                self.device.name,
                str(self.device.facts.get("VBIOS", "")),
                str(self.device.facts["driver"]),
            ),
        )

    def _describe(self, index: int, capability: tuple[int, int], sms: int) -> Device:
        facts = {
            "driver": text(nv.nvmlSystemGetDriverVersion()),
            "compute capability": "{}.{}".format(*capability),
        }
        if cuda := optional(nv.nvmlSystemGetCudaDriverVersion_v2):
            facts["CUDA"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
        if sms:
            facts["SMs"] = str(sms)
        if self._unified:
            facts["memory"] = "shared with the CPU"
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

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return the GPU, and its MIG instances."""
        return self.device, *(instance.device for instance in self._instances)

    def sample(self) -> None:
        """Take one sample of what is averaged over the interval."""
        self._sm_clock.sample()

    def read_all(self, now: float, events: XidEvents) -> list[Reading]:
        """Return one reading of the GPU and of each MIG instance. Raises as `read` does."""
        return [self.read(now, events), *(instance.read(now) for instance in self._instances)]

    def read(self, now: float, events: XidEvents) -> Reading:
        """Return one reading of everything.

        Args:
            now: Seconds since the epoch.
            events: The Xids of all GPUs.

        Raises:
            DevicesChanged: The GPU is gone, or its MIG instances changed.
        """
        values: dict[str, float] = {}
        absent: dict[str, Absence] = {}
        methods: dict[str, Message] = {}
        texts: dict[str, str] = {}
        steady = monotonic()
        self._scalars.read(steady, values, absent)
        if not any(field in values for field in _VITAL):
            why = explain(absent["mem_used"])
            raise DevicesChanged(f"GPU {self.device.index} no longer answers ({why})")
        if unified.is_unified(absent):
            unified.add_memory(values, absent, methods)
        if "power" not in values and "power_avg" in values:
            del absent["power"]
            values["power"] = values["power_avg"]
            methods["power"] = phrase(
                "averaged by the card over a second: it reports no instantaneous power"
            )
        if (action := values.get("recovery_action")) is not None:
            texts["recovery_action"] = recovery_text(action)
        self._sm_clock.read(values, absent)
        since = self._throttle.read(now, values, absent)
        if "throttle" in values:
            texts["throttle"] = ", ".join(since) or "none"
        self._counters.read(values, absent, methods)
        if not self._counters.available:
            self._pcie.read(steady, values, absent, methods)
        self._links.read(steady, values, absent, self._counters.available)
        events.read(self.device.id, values, absent, texts)
        self._check_instances(steady)
        self._processes.follow(steady)
        processes, drawing = self._processes.current()
        return Reading(
            self.device.id, now, values, absent, methods, texts, processes, since, drawing=drawing
        )

    def occupancy(self, now: float) -> list[Reading]:
        """Return readings with memory and processes only, of the GPU and of its instances."""
        memory = optional(nv.nvmlDeviceGetMemoryInfo, self.handle, nv.nvmlMemory_v2)
        values = {}
        if memory is not None:
            values = {"mem_used": float(memory.used), "mem_free": float(memory.free)}
        elif self._unified:
            values = unified.machine_memory()
        processes, drawing = self._processes.current()
        own = Reading(self.device.id, now, values, processes=processes, drawing=drawing)
        return [own, *(instance.occupancy(now) for instance in self._instances)]

    def _check_instances(self, steady: float) -> None:
        if steady >= self._mig_check:
            self._mig_check = steady + SLOW_S
            if self._mig.changed():
                raise DevicesChanged(f"the MIG instances of GPU {self.device.index} changed")

    def details(self, now: float) -> list[Detail]:
        """Return what is read on request only: links, MIG instances, and details of the
        processes, each on the instance that it uses."""
        parts = (*self._mig.parts(), *self._links.parts(monotonic()))
        processes = () if self._instances else self._processes.detailed()
        own = Detail(self.device.id, now, parts, processes)
        return [own, *(instance.detail(now) for instance in self._instances)]

    def close(self) -> None:
        """Free what the meters hold."""
        self._counters.close()
        for instance in self._instances:
            instance.close()


def _sm_count(handle: Any, capability: tuple[int, int]) -> int:
    try:
        return int(nv.nvmlDeviceGetAttributes(handle).multiprocessorCount)
    except nv.NVMLError:
        # older cards and drivers have no attributes: divide cores by cores of one SM
        per_sm = {7: 64, 8: 64 if capability == (8, 0) else 128}.get(capability[0], 128)
        return int(nv.nvmlDeviceGetNumGpuCores(handle)) // per_sm


def _peak_bandwidth(handle: Any) -> float:
    """Return bytes a second: bus width x 2 transfers per memory clock."""
    clock = nv.nvmlDeviceGetMaxClockInfo(handle, nv.NVML_CLOCK_MEM) * 1e6
    return float(nv.nvmlDeviceGetMemoryBusWidth(handle) / 8 * clock * 2)
