"""NVML at the hardware's edge: answers as an H100 (driver 580.159.04) gave them, in place of the driver this machine lacks.

Everything above is real: pynvml's constants, errors and structures, and our own code. A call that was not recorded fails the test.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Answer
from typing import Any

import pynvml

UUID = "GPU-07310d02-5a07-b366-b9c8-dda734271cd2"
_FIELDS = {pynvml.NVML_FI_DEV_POWER_INSTANT: 146275, pynvml.NVML_FI_DEV_MEMORY_TEMP: 54}
_CLOCKS = {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619, pynvml.NVML_CLOCK_VIDEO: 1545}
_GPM = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: 96.629,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: 14.28,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 93.801,
    pynvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL: 93.801,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 25.22,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 16.831,
}


class RecordedNvml:
    """Stands where `import pynvml` stands. `answers[name]` may be replaced by another answer, or by an error to raise."""

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.now = 0.0
        """The clock by which the source measures intervals, in seconds."""
        self.calls: list[str] = []
        self.clocks: list[int] = []
        """SM clocks to answer one after the other; the recorded one when they are used up."""
        self.gpm_returns: dict[int, int] = {}
        self.gpm_values = dict(_GPM)
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "580.159.04",
            "nvmlDeviceGetCount": lambda: self.gpus,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: UUID if handle == 0 else f"{UUID[:-1]}{handle}",
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetVbiosVersion": "96.00.DA.00.0C",
            "nvmlDeviceGetAttributes": Answer(multiprocessorCount=132),
            "nvmlDeviceGetMemoryBusWidth": 5120,
            "nvmlDeviceGetUtilizationRates": Answer(gpu=100, memory=31),
            "nvmlDeviceGetMemoryInfo": Answer(used=6692864000, total=85520809984, free=78324629504, reserved=503316480),
            "nvmlDeviceGetBAR1MemoryInfo": Answer(bar1Used=6694633472),
            "nvmlDeviceGetTemperature": 54,
            "nvmlDeviceGetTemperatureThreshold": 89,
            "nvmlDeviceGetPowerUsage": 146305,
            "nvmlDeviceGetEnforcedPowerLimit": 700000,
            "nvmlDeviceGetTotalEnergyConsumption": 51699022,
            "nvmlDeviceGetClockInfo": self._clock,
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: _CLOCKS[kind],
            "nvmlDeviceGetFanSpeed": pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED),
            "nvmlDeviceGetCurrentClocksEventReasons": pynvml.nvmlClocksEventReasonSwPowerCap,
            "nvmlDeviceGetPerformanceState": 0,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetPcieReplayCounter": 0,
            "nvmlDeviceGetTotalEccErrors": 0,
            "nvmlDeviceGetEncoderUtilization": [0, 166666],
            "nvmlDeviceGetDecoderUtilization": [0, 166666],
            "nvmlDeviceGetJpgUtilization": [0, 166666],
            "nvmlDeviceGetOfaUtilization": [0, 166666],
            "nvmlDeviceGetFieldValues": self._fields,
            "nvmlDeviceGetComputeRunningProcesses": [Answer(pid=2**22 + 5, usedGpuMemory=6683623424)],
            "nvmlGpmQueryDeviceSupport": Answer(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
            "nvmlGpmSampleGet": None,
            "nvmlGpmSampleFree": None,
            "nvmlGpmMetricsGet": self._metrics,
        }

    def __getattr__(self, name: str) -> Any:
        if name in self.answers:
            return self._call(name)
        found = getattr(pynvml, name)
        assert not (name.startswith("nvml") and callable(found) and not isinstance(found, type) and name != "nvmlErrorString"), (
            f"{name} was not recorded"
        )
        return found

    def _call(self, name: str) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            self.calls.append(name)
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*values) if callable(answer) else answer

        return call

    def _clock(self, handle: int, kind: int) -> int:
        return self.clocks.pop(0) if kind == pynvml.NVML_CLOCK_SM and self.clocks else _CLOCKS[kind]

    def _fields(self, handle: int, ids: list[int]) -> list[Any]:
        kind = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        value = Answer(dVal=0.0, uiVal=_FIELDS[ids[0]], ulVal=0, ullVal=0, sllVal=0)
        return [Answer(nvmlReturn=pynvml.NVML_SUCCESS, valueType=kind, value=value)]

    def _metrics(self, request: Any) -> None:
        for i in range(request.numMetrics):
            metric = request.metrics[i]
            metric.nvmlReturn = self.gpm_returns.get(metric.metricId, pynvml.NVML_SUCCESS)
            metric.value = self.gpm_values.get(metric.metricId, 0.0)


def error(code: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(code)
