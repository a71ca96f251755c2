"""List MIG instances as parts of the GPU they are cut from; a change of them opens the source anew.

An instance is no device of its own: NVML reports neither its utilisation nor its temperature, power
and clocks, and the queue gives out whole GPUs. Its memory, multiprocessors and processes are known.
"""

from __future__ import annotations

from typing import Any

import pynvml as nv

from gpudeck.scheduler.devices.nvidia.errors import optional, refusal, text
from gpudeck.scheduler.protocol.devices import Instance, Part


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
        texts = {"uuid": instance.uuid}
        try:
            memory = nv.nvmlDeviceGetMemoryInfo(handle)
        except nv.NVMLError as e:
            return Part("instance", instance.name, {}, {"mem_used": refusal(e)}, texts)
        values = {"mem_used": float(memory.used), "mem_total": float(memory.total)}
        return Part("instance", instance.name, values, {}, texts)


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
