"""The NVIDIA GPUs of this machine as a source of readings.

Every error either makes one field N/A, or opens the source anew.
"""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic

import pynvml as nv

from gpudeck.language.text import phrase
from gpudeck.scheduler.devices.nvidia.errors import RETRY_S, unreachable
from gpudeck.scheduler.devices.nvidia.events import XidEvents
from gpudeck.scheduler.devices.nvidia.gpu import Gpu
from gpudeck.scheduler.protocol.devices import (
    Detail,
    Device,
    DevicesChanged,
    NoGpu,
    Reading,
    Source,
)
from gpudeck.scheduler.protocol.errors import UserError


class NvmlSource(Source):
    """Read all GPUs. One that does not answer keeps its place, and is tried again now and then."""

    def __init__(self, closed: Collection[int] = ()) -> None:
        """Open every GPU that answers.

        Args:
            closed: Indices of GPUs that are left alone, as they sleep.

        Raises:
            NoGpu: There is neither driver nor GPU.
            UserError: There are GPUs, and none can be read.
        """
        try:
            nv.nvmlInit()
        except nv.NVMLError as e:
            raise unreachable(e) from e
        self._gpus: list[Gpu] = []
        self._silent: dict[int, str] = {}
        """The error of each GPU that does not answer, by index."""
        self._retried = monotonic()
        self._left_alone = frozenset(closed)
        try:
            self._count = nv.nvmlDeviceGetCount()
            self._open()
            self._events = XidEvents({gpu.device.id: gpu.handle for gpu in self._gpus})
        except (nv.NVMLError, UserError, DevicesChanged) as e:
            for gpu in self._gpus:
                gpu.close()
            nv.nvmlShutdown()
            if isinstance(e, DevicesChanged):
                raise UserError(str(e)) from e
            raise e if isinstance(e, UserError) else unreachable(e) from e

    def _open(self) -> None:
        for index in set(range(self._count)) - self._left_alone:
            try:
                self._gpus.append(Gpu(index))
            except (nv.NVMLError, DevicesChanged) as e:
                self._silent[index] = str(e)
        if not self._count:
            raise NoGpu(phrase("the NVIDIA driver is loaded, but finds no GPU"))
        if not self._gpus:
            why = next(iter(self._silent.values()), phrase("all are left alone"))
            raise UserError(
                phrase("the NVIDIA GPUs cannot be read: {why}. See: nvidia-smi", why=why)
            )

    def devices(self) -> list[Device]:
        """Return all GPUs by index, each before its MIG instances, and those that do not
        answer."""
        return sorted(
            [device for gpu in self._gpus for device in gpu.devices]
            + [_silent(i, why) for i, why in self._silent.items()],
            key=lambda d: (d.index, d.instance),
        )

    def sample(self) -> None:
        """Take one sample of what is averaged over the interval."""
        for gpu in self._gpus:
            gpu.sample()

    def read(self, now: float) -> list[Reading]:
        """Return one reading of each device. Raises DevicesChanged where one came or went."""
        try:
            self._events.collect()
            if nv.nvmlDeviceGetCount() != self._count:
                raise DevicesChanged("the number of GPUs changed")
            self._retry_silent()
            return [r for gpu in self._gpus for r in gpu.read_all(now, self._events)]
        except (nv.NVMLError, DevicesChanged) as e:
            # an Xid explains more than the fact that the GPU is gone
            xids = self._events.recent()
            raise DevicesChanged(f"{e} ({xids})" if xids else str(e)) from e

    def occupancy(self, now: float) -> list[Reading]:
        """Return memory and processes of each device."""
        return [reading for gpu in self._gpus for reading in gpu.occupancy(now)]

    def details(self, now: float) -> list[Detail]:
        """Return the details of each device."""
        return [detail for gpu in self._gpus for detail in gpu.details(now)]

    def _retry_silent(self) -> None:
        """Raise DevicesChanged where a GPU that did not answer does again."""
        if not self._silent or monotonic() - self._retried < RETRY_S:
            return
        self._retried = monotonic()
        for index in self._silent:
            try:
                Gpu(index).close()
            except (nv.NVMLError, DevicesChanged):
                continue
            raise DevicesChanged(f"GPU {index} answers again")

    def close(self) -> None:
        """Close every GPU and NVML itself."""
        for gpu in self._gpus:
            gpu.close()
        self._events.close()
        nv.nvmlShutdown()


def _silent(index: int, why: str) -> Device:
    return Device(
        f"silent-{index}",
        index,
        "NVIDIA GPU",
        "nvidia",
        f"GPU {index} does not answer: {why}",
        silent=why,
    )
