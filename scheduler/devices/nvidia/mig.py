"""MIG instances: parts of the GPU they are cut from. Which there are is told with the device; a change opens the source anew.

An instance is no device of its own: NVML tells neither its utilisation nor its temperature, power and clocks, and the queue gives
out whole GPUs. It has memory, multiprocessors and processes, and those are told.
"""

from __future__ import annotations

from typing import Any

import pynvml as nv

from scheduler.devices.nvidia.errors import optional, text, why
from scheduler.protocol.devices import Instance, Part


class Mig:
    """The instances of one GPU."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.on, self._found = self._look()
        """Whether the GPU is in MIG mode."""

    @property
    def instances(self) -> tuple[Instance, ...]:
        return tuple(instance for _, instance in self._found)

    def _look(self) -> tuple[bool, list[tuple[Any, Instance]]]:
        try:
            if nv.nvmlDeviceGetMigMode(self._handle)[0] != nv.NVML_DEVICE_MIG_ENABLE:
                return False, []
            most = nv.nvmlDeviceGetMaxMigDeviceCount(self._handle)
        except nv.NVMLError as e:
            why(e)
            return False, []
        handles = [
            optional(nv.nvmlDeviceGetMigDeviceHandleByIndex, self._handle, i) for i in range(most)
        ]
        return True, [(h, _describe(h)) for h in handles if h is not None]

    def changed(self) -> bool:
        """Whether the mode is another than when this was opened, or instances came or went."""
        on, found = self._look()
        return on != self.on or [instance.uuid for _, instance in found] != [
            i.uuid for i in self.instances
        ]

    def parts(self) -> list[Part]:
        """Each instance, with the memory that is used of it."""
        return [self._part(handle, instance) for handle, instance in self._found]

    def _part(self, handle: Any, instance: Instance) -> Part:
        try:
            memory = nv.nvmlDeviceGetMemoryInfo(handle)
        except nv.NVMLError as e:
            return Part(
                "instance", instance.name, {}, {"mem_used": why(e)}, {"uuid": instance.uuid}
            )
        values = {"mem_used": float(memory.used), "mem_total": float(memory.total)}
        return Part("instance", instance.name, values, {}, {"uuid": instance.uuid})


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
