"""Read MIG instances: each is a device with its own memory, counters and processes.

NVML reports neither temperature, power nor clocks of an instance, and its utilisation only by the
hardware counters (GPM). A change of the instances opens the source anew.

Source: NVML API Reference, "Multi Instance GPU Management" and "GPM Functions".
"""

from __future__ import annotations

from typing import Any

import msgspec
import pynvml as nv

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.devices.nvidia.errors import optional, refusal, text
from gpudeck.scheduler.devices.nvidia.gpm import HardwareCounters
from gpudeck.scheduler.devices.nvidia.gpu_processes import GpuProcesses
from gpudeck.scheduler.protocol.absence import Absence, Unavailable
from gpudeck.scheduler.protocol.devices import Detail, Device, Instance, Part, Reading


class MigInstances:
    """Hold the MIG instances of one GPU, as they were when this was created."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.on, self._found = self._list()
        """`on` is True in MIG mode, with or without instances."""

    @property
    def instances(self) -> tuple[Instance, ...]:
        """Return the instances in the order of NVML."""
        return tuple(instance for _, instance in self._found)

    def open(self, gpu: Device) -> tuple[MigDevice, ...]:
        """Return the instances as devices.

        Args:
            gpu: The GPU that they are parts of.
        """
        return tuple(
            MigDevice(self._handle, handle, number, instance, gpu)
            for number, (handle, instance) in enumerate(self._found)
        )

    def _list(self) -> tuple[bool, list[tuple[Any, Instance]]]:
        try:
            if nv.nvmlDeviceGetMigMode(self._handle)[0] != nv.NVML_DEVICE_MIG_ENABLE:
                return False, []
            most = nv.nvmlDeviceGetMaxMigDeviceCount(self._handle)
        except nv.NVMLError as e:
            refusal(e)
            return False, []
        handles = [
            optional(nv.nvmlDeviceGetMigDeviceHandleByIndex, self._handle, i) for i in range(most)
        ]
        return True, [(h, _describe(h)) for h in handles if h is not None]

    def changed(self) -> bool:
        """Return True if the mode changed, or instances came or went."""
        on, found = self._list()
        return on != self.on or [instance.uuid for _, instance in found] != [
            i.uuid for i in self.instances
        ]

    def parts(self) -> list[Part]:
        """Return each instance with the memory in use."""
        return [self._part(handle, instance) for handle, instance in self._found]

    def _part(self, handle: Any, instance: Instance) -> Part:
        texts, values, absent = {"uuid": instance.uuid}, dict[str, float](), dict[str, Absence]()
        _read_memory(handle, values, absent)
        values.pop("mem_free", None)
        return Part("instance", instance.name, values, absent, texts)


class MigDevice:
    """Read one MIG instance."""

    def __init__(
        self, gpu_handle: Any, handle: Any, number: int, instance: Instance, gpu: Device
    ) -> None:
        """Open the counters of the instance, where the card has them.

        Args:
            gpu_handle: The NVML handle of the GPU.
            handle: That of the instance.
            number: The number of the instance on its GPU.
            instance: What is known of it.
            gpu: The GPU that it is a part of.
        """
        self._handle, self._processes = handle, GpuProcesses(handle)
        facts = {name: gpu.facts[name] for name in ("driver", "CUDA", "VBIOS") if name in gpu.facts}
        if instance.sms:
            facts["SMs"] = str(instance.sms)
        self.device = Device(
            instance.uuid,
            gpu.index,
            instance.name,
            "nvidia",
            facts=facts,
            instance=f"{gpu.index}:{number}",
        )
        # without a number of SMs the counters give no TFLOP/s: those of instances were not checked
        self._counters = HardwareCounters(gpu_handle, (0, 0), 0, 0.0, part=instance.gpu_instance)

    def read(self, now: float) -> Reading:
        """Return one reading of memory, counters and processes."""
        values: dict[str, float] = {}
        absent: dict[str, Absence] = {}
        methods: dict[str, Message] = {}
        self._counters.read(values, absent, methods)
        if "graphics" in values:
            values["util"] = values["graphics"]
            methods["util"] = phrase("hardware counters (GPM) of the MIG instance")
        else:
            absent["util"] = absent.get("graphics", Unavailable("counters"))
        reading = self.occupancy(now)
        return msgspec.structs.replace(
            reading,
            values=values | reading.values,
            absent={**absent, **reading.absent},
            methods=methods,
        )

    def occupancy(self, now: float) -> Reading:
        """Return a reading with memory and processes only."""
        values: dict[str, float] = {}
        absent: dict[str, Absence] = {}
        _read_memory(self._handle, values, absent)
        processes, drawing = self._processes.current()
        return Reading(self.device.id, now, values, absent, processes=processes, drawing=drawing)

    def detail(self, now: float) -> Detail:
        """Return the details of its processes."""
        return Detail(self.device.id, now, (), self._processes.detailed())

    def close(self) -> None:
        """Free the counters."""
        self._counters.close()


def _read_memory(handle: Any, values: dict[str, float], absent: dict[str, Absence]) -> None:
    try:
        memory = nv.nvmlDeviceGetMemoryInfo(handle)
    except nv.NVMLError as e:
        absent["mem_used"] = refusal(e)
        return
    values.update(
        mem_used=float(memory.used), mem_total=float(memory.total), mem_free=float(memory.free)
    )


def _describe(handle: Any) -> Instance:
    attributes = optional(nv.nvmlDeviceGetAttributes, handle)
    name = text(optional(nv.nvmlDeviceGetName, handle) or "MIG instance")
    return Instance(
        uuid=text(nv.nvmlDeviceGetUUID(handle)),
        name=name,
        gpu_instance=optional(nv.nvmlDeviceGetGpuInstanceId, handle),
        sms=attributes.multiprocessorCount if attributes else None,
        memory=float(attributes.memorySizeMB) * 2**20 if attributes else None,
    )
