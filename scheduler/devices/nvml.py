"""NVIDIA GPUs through NVML. With `gpm` and `nvml_fields` the one place that knows pynvml. Every error becomes N/A of one field.

Used by the probe process alone: NVML can hang in the kernel when a GPU falls off the bus.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pynvml as nv

from scheduler.devices.gpm import METHOD, METRICS, MIN_INTERVAL_S, Gpm, flops
from scheduler.devices.model import Device, DevicesChanged, NoGpu, Process, Reading
from scheduler.devices.nvml_fields import SCALARS, SLOW, SLOW_S, THROTTLE, Getter
from scheduler.devices.processes import describe
from scheduler.errors import UserError

_LOST = (nv.NVML_ERROR_GPU_IS_LOST, nv.NVML_ERROR_UNINITIALIZED, nv.NVML_ERROR_DRIVER_NOT_LOADED, nv.NVML_ERROR_RESET_REQUIRED)
_DRIVER = Path("/proc/driver/nvidia")
"""There while the kernel has the driver."""
_LASTING = (nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.NVML_ERROR_NO_PERMISSION)
_RETRY_S = 60.0
"""What will not work soon (a field that is not supported, a GPU that does not answer) is asked for again after this long."""
_COUNTED = (*METRICS, "tflops", "tflops_gpm", "bandwidth")
"""Fields that need the counters."""


class _Gpu:
    """One GPU: its handle, its counters, and which fields it is known not to have."""

    def __init__(self, index: int) -> None:
        self.handle = nv.nvmlDeviceGetHandleByIndex(index)
        self.capability: tuple[int, int] = tuple(nv.nvmlDeviceGetCudaComputeCapability(self.handle))
        self.sms = _optional(lambda: _sm_count(self.handle, self.capability))
        self.peak_bandwidth = _optional(lambda: _peak_bandwidth(self.handle))
        self.device = self._describe(index)
        self._memory({}, {})  # a GPU that is lost may still tell its name
        self._clocks: list[int] = []
        self._unsupported: dict[str, tuple[float, str]] = {}
        self._kept: dict[str, tuple[float, float]] = {}
        self._gpm, self._gpm_absent = self._open_gpm()
        self._gpm_time = monotonic()

    def _describe(self, index: int) -> Device:
        facts = {"driver": _text(nv.nvmlSystemGetDriverVersion()), "compute capability": "{}.{}".format(*self.capability)}
        if self.sms:
            facts["SMs"] = str(self.sms)
        if vbios := _optional(lambda: _text(nv.nvmlDeviceGetVbiosVersion(self.handle))):
            facts["VBIOS"] = vbios
        return Device(_text(nv.nvmlDeviceGetUUID(self.handle)), index, _text(nv.nvmlDeviceGetName(self.handle)), "nvidia", "", facts)

    def _open_gpm(self) -> tuple[Gpm | None, str]:
        try:
            return Gpm(self.handle), ""
        except nv.NVMLError as e:
            return None, f"no hardware counters: GPM needs Hopper or later (driver says: {e})"

    def tick(self) -> None:
        try:
            self._clocks.append(nv.nvmlDeviceGetClockInfo(self.handle, nv.NVML_CLOCK_SM))
        except nv.NVMLError:
            self._clocks.clear()  # then the reading has no clock, and says so

    def read(self, now: float) -> Reading:
        values: dict[str, float] = {}
        absent: dict[str, str] = {}
        methods: dict[str, str] = {}
        self._memory(values, absent)
        for field, getter in SCALARS.items():
            self._scalar(field, getter, now, values, absent)
        self._clock(values, absent)
        self._counters(values, absent, methods)
        texts = {}
        if (mask := values.get("throttle")) is not None:
            texts["throttle"] = ", ".join(name for bit, name in THROTTLE.items() if int(mask) & bit) or "none"
        return Reading(self.device.id, now, values, absent, methods, texts, self._processes())

    def _scalar(self, field: str, getter: Getter, now: float, values: dict[str, float], absent: dict[str, str]) -> None:
        known = self._unsupported.get(field)
        if known and now < known[0]:
            absent[field] = known[1]
            return
        if field in SLOW and (kept := self._kept.get(field)) is not None and now < kept[0]:
            values[field] = kept[1]
            return
        try:
            values[field] = float(getter(self.handle))
            self._kept[field] = (now + SLOW_S, values[field])
        except nv.NVMLError as e:
            absent[field] = f"NVML: {_unless_lost(e)}"
            if e.value in _LASTING:
                self._unsupported[field] = (now + _RETRY_S, absent[field])

    def _memory(self, values: dict[str, float], absent: dict[str, str]) -> None:
        """Version 2 of the struct: without it, `used` includes the driver's reserve from driver 510 on."""
        try:
            memory = nv.nvmlDeviceGetMemoryInfo(self.handle, nv.nvmlMemory_v2)
        except nv.NVMLError as e:
            absent.update(dict.fromkeys(("mem_used", "mem_total", "mem_free", "mem_reserved"), f"NVML: {_unless_lost(e)}"))
            return
        values.update(mem_used=memory.used, mem_total=memory.total, mem_free=memory.free, mem_reserved=memory.reserved)

    def _clock(self, values: dict[str, float], absent: dict[str, str]) -> None:
        self.tick()
        if self._clocks:
            values["clock_sm"] = sum(self._clocks) / len(self._clocks)
        else:
            absent["clock_sm"] = "NVML does not tell the SM clock"
        self._clocks.clear()

    def _counters(self, values: dict[str, float], absent: dict[str, str], methods: dict[str, str]) -> None:
        if self._gpm is None:
            absent.update(dict.fromkeys(_COUNTED, self._gpm_absent))
            return
        now = monotonic()
        if now - self._gpm_time < MIN_INTERVAL_S:
            absent.update(dict.fromkeys(_COUNTED, "read too soon after the last reading"))
            return
        self._gpm_time = now
        try:
            counted, missing = self._gpm.read()
        except nv.NVMLError as e:
            counted, missing = {}, dict.fromkeys(METRICS, f"GPM: {_unless_lost(e)}")
        values.update(counted)
        absent.update(missing)
        self._tflops(values, absent, methods)
        if "dram" in values and self.peak_bandwidth:
            values["bandwidth"] = values["dram"] / 100 * self.peak_bandwidth
            methods["bandwidth"] = f"GPM: DRAM busy share x {self.peak_bandwidth / 1e12:.2f} TB/s"
        else:
            absent["bandwidth"] = absent.get("dram", "the peak bandwidth of this card is not known")

    def _tflops(self, values: dict[str, float], absent: dict[str, str], methods: dict[str, str]) -> None:
        found = flops(values, self.capability, self.sms or 0)
        for field in ("tflops", "tflops_gpm"):
            if isinstance(found, str):
                absent[field] = found
            else:
                values[field] = found / 1e12
                methods[field] = METHOD

    def _processes(self) -> tuple[Process, ...]:
        try:
            running = nv.nvmlDeviceGetComputeRunningProcesses(self.handle)
        except nv.NVMLError:
            return ()
        return tuple(describe(p.pid, None if p.usedGpuMemory is None else float(p.usedGpuMemory)) for p in running)

    def close(self) -> None:
        if self._gpm is not None:
            self._gpm.close()


class NvmlSource:
    """The NVIDIA GPUs of this machine that answer."""

    def __init__(self) -> None:
        """Raises NoGpu where there is neither driver nor GPU, UserError where there are GPUs and none can be read."""
        try:
            nv.nvmlInit()
        except nv.NVMLError as e:
            raise _unreachable(e) from e
        self._gpus: list[_Gpu] = []
        self._silent: dict[int, str] = {}
        """Why, by index."""
        self._looked = monotonic()
        try:
            self._count = nv.nvmlDeviceGetCount()
            self._open()
        except (nv.NVMLError, UserError) as e:
            nv.nvmlShutdown()
            raise e if isinstance(e, UserError) else _unreachable(e) from e

    def _open(self) -> None:
        for index in range(self._count):
            try:
                self._gpus.append(_Gpu(index))
            except (nv.NVMLError, DevicesChanged) as e:
                self._silent[index] = str(e)
        if not self._count:
            raise NoGpu("the NVIDIA driver is loaded, and finds no GPU")
        if not self._gpus:
            raise UserError(f"the NVIDIA GPUs cannot be read: {self._silent[0]}. See: nvidia-smi")

    def devices(self) -> list[Device]:
        """Each says which other GPU does not answer, so that nobody takes what is listed for all there is."""
        note = ", ".join(f"GPU {index} does not answer: {why}" for index, why in self._silent.items())
        return [msgspec.structs.replace(g.device, note=note) for g in self._gpus]

    def tick(self) -> None:
        for gpu in self._gpus:
            gpu.tick()

    def read(self, now: float) -> list[Reading]:
        try:
            count = nv.nvmlDeviceGetCount()
        except nv.NVMLError as e:
            raise DevicesChanged(str(e)) from e
        if count != self._count:
            raise DevicesChanged("the number of GPUs changed")
        self._hear_silent()
        return [g.read(now) for g in self._gpus]

    def _hear_silent(self) -> None:
        """Raises DevicesChanged where a GPU that did not answer does again."""
        if not self._silent or monotonic() - self._looked < _RETRY_S:
            return
        self._looked = monotonic()
        for index in self._silent:
            try:
                _Gpu(index).close()
            except (nv.NVMLError, DevicesChanged):
                continue
            raise DevicesChanged(f"GPU {index} answers again")

    def close(self) -> None:
        for gpu in self._gpus:
            gpu.close()
        nv.nvmlShutdown()


def _unreachable(error: Any) -> UserError:
    """What NVML's refusal to start means: no GPU here, or one that somebody must look after."""
    # a container that was given no GPU sees its host's /proc/driver/nvidia, but has no library
    if error.value == nv.NVML_ERROR_LIBRARY_NOT_FOUND or (error.value == nv.NVML_ERROR_DRIVER_NOT_LOADED and not _DRIVER.exists()):
        return NoGpu(f"no NVIDIA GPU can be reached: {error}")
    if error.value == nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return UserError(
            "the NVIDIA driver and its library differ in version, as after an update. Restart the machine, or reload the driver."
        )
    return UserError(f"the NVIDIA GPUs cannot be reached: {error}. See: nvidia-smi. To watch the CPU, set the source to cpu.")


def _unless_lost(error: Any) -> str:
    """The error in words. Raises DevicesChanged where the GPU or its driver is gone."""
    if error.value in _LOST:
        raise DevicesChanged(str(error)) from error
    return str(error)


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


def _optional(get: Callable[[], Any]) -> Any:
    try:
        return get()
    except nv.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
