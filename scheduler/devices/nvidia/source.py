"""The NVIDIA GPUs of this machine as a source of readings. Every error becomes N/A of one field, or opens the source anew."""

from __future__ import annotations

from time import monotonic

import pynvml as nv

from scheduler.devices.nvidia.errors import RETRY_S, unreachable
from scheduler.devices.nvidia.events import XidEvents
from scheduler.devices.nvidia.gpu import Gpu
from scheduler.protocol.devices import Detail, Device, DevicesChanged, NoGpu, Reading
from scheduler.protocol.errors import UserError


class NvmlSource:
    """The GPUs. One that does not answer keeps its place as long as another does, and is looked for now and then."""

    def __init__(self) -> None:
        """Raises NoGpu where there is neither driver nor GPU, UserError where there are GPUs and none can be read."""
        try:
            nv.nvmlInit()
        except nv.NVMLError as e:
            raise unreachable(e) from e
        self._gpus: list[Gpu] = []
        self._silent: dict[int, str] = {}
        """Why, by index."""
        self._looked = monotonic()
        try:
            self._count = nv.nvmlDeviceGetCount()
            self._open()
            self._events = XidEvents({gpu.device.id: gpu.handle for gpu in self._gpus})
        except (nv.NVMLError, UserError, DevicesChanged) as e:
            for gpu in self._gpus:
                gpu.close()
            nv.nvmlShutdown()
            raise (
                e
                if isinstance(e, UserError)
                else UserError(str(e))
                if isinstance(e, DevicesChanged)
                else unreachable(e)
            ) from e

    def _open(self) -> None:
        for index in range(self._count):
            try:
                self._gpus.append(Gpu(index))
            except (nv.NVMLError, DevicesChanged) as e:
                self._silent[index] = str(e)
        if not self._count:
            raise NoGpu("the NVIDIA driver is loaded, and finds no GPU")
        if not self._gpus:
            raise UserError(f"the NVIDIA GPUs cannot be read: {self._silent[0]}. See: nvidia-smi")

    def devices(self) -> list[Device]:
        """By index; those that do not answer among them."""
        return sorted(
            [gpu.device for gpu in self._gpus]
            + [_silent(i, why) for i, why in self._silent.items()],
            key=lambda d: d.index,
        )

    def tick(self) -> None:
        for gpu in self._gpus:
            gpu.tick()

    def read(self, now: float) -> list[Reading]:
        try:
            self._events.hear()
            if nv.nvmlDeviceGetCount() != self._count:
                raise DevicesChanged("the number of GPUs changed")
            self._hear_silent()
            return [g.read(now, self._events) for g in self._gpus]
        except (nv.NVMLError, DevicesChanged) as e:
            told = (
                self._events.told()
            )  # what the driver said of it is worth more than that it is gone
            raise DevicesChanged(f"{e} ({told})" if told else str(e)) from e

    def glance(self, now: float) -> list[Reading]:
        return [gpu.glance(now) for gpu in self._gpus]

    def details(self, now: float) -> list[Detail]:
        return [gpu.detail(now) for gpu in self._gpus]

    def _hear_silent(self) -> None:
        """Raises DevicesChanged where a GPU that did not answer does again."""
        if not self._silent or monotonic() - self._looked < RETRY_S:
            return
        self._looked = monotonic()
        for index in self._silent:
            try:
                Gpu(index).close()
            except (nv.NVMLError, DevicesChanged):
                continue
            raise DevicesChanged(f"GPU {index} answers again")

    def close(self) -> None:
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
