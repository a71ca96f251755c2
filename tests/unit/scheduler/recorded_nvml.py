"""NVML at the hardware's edge: answers as an H100 (driver 580.159.04) gave them, in place of the
driver this machine lacks.

Everything above is real: pynvml's constants, errors and structures, and our own code. A call that
has no answer fails the test. Answers under "as documented" were not recorded: their form is
pynvml's, their figures those of NVIDIA's documents for this card.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from types import SimpleNamespace as Answer
from typing import Any

import pynvml

from scheduler.devices.nvidia.source import NvmlSource
from scheduler.protocol.devices import Reading

UUID = "GPU-07310d02-5a07-b366-b9c8-dda734271cd2"
NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
_CLOCKS = {
    pynvml.NVML_CLOCK_GRAPHICS: 1980,
    pynvml.NVML_CLOCK_SM: 1980,
    pynvml.NVML_CLOCK_MEM: 2619,
    pynvml.NVML_CLOCK_VIDEO: 1545,
}
_GPM = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: 96.629,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: 14.28,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 93.801,
    pynvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL: 93.801,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 25.22,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 16.831,
}
_LINKS = 18
_TOTALS = ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")


class RecordedNvml:
    """`answers[name]` may be replaced by another answer, or by an error to raise; `fields`
    likewise, by id or (id, scope)."""

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.now = 0.0
        """The clock by which the source measures intervals, in seconds."""
        self.calls: list[str] = []
        self.clocks: list[int] = []
        """SM clocks to answer one after the other; the recorded one when they are used up."""
        self.events: list[tuple[int, int]] = []
        """(GPU, Xid) to tell."""
        self._script: Path | None = None
        self._as_recorded: dict[str, Any] = {}
        self.gpm_returns: dict[int, int] = {}
        self.gpm_values = dict(_GPM)
        self.fields: dict[Any, float | Exception] = {
            pynvml.NVML_FI_DEV_POWER_INSTANT: 146275,
            pynvml.NVML_FI_DEV_MEMORY_TEMP: 54,
            # as documented
            pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: _LINKS,
            **{
                getattr(pynvml, f"NVML_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL"): 0
                for kind in _TOTALS
            },
        }
        self.answers: dict[str, Any] = self._recorded() | self._documented()

    def _recorded(self) -> dict[str, Any]:
        return {
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
            "nvmlDeviceGetMemoryInfo": Answer(
                used=6692864000, total=85520809984, free=78324629504, reserved=503316480
            ),
            "nvmlDeviceGetTemperature": 54,
            "nvmlDeviceGetTemperatureThreshold": 89,
            "nvmlDeviceGetPowerUsage": 146305,
            "nvmlDeviceGetEnforcedPowerLimit": 700000,
            "nvmlDeviceGetTotalEnergyConsumption": 51699022,
            "nvmlDeviceGetClockInfo": self._clock,
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: _CLOCKS[kind],
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
            "nvmlDeviceGetFieldValues": self._field_values,
            "nvmlDeviceGetComputeRunningProcesses": [
                Answer(pid=2**22 + 5, usedGpuMemory=6683623424, gpuInstanceId=2**32 - 1)
            ],
            "nvmlGpmQueryDeviceSupport": Answer(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
            "nvmlGpmSampleGet": None,
            "nvmlGpmSampleFree": None,
            "nvmlGpmMetricsGet": self._metrics,
        }

    def _documented(self) -> dict[str, Any]:
        return {
            "nvmlDeviceGetBAR1MemoryInfo": Answer(
                bar1Used=6694633472, bar1Total=137438953472
            ),  # the first was recorded
            "nvmlDeviceGetClock": NOT_SUPPORTED,
            "nvmlDeviceGetNumFans": 0,
            "nvmlDeviceGetFanSpeedRPM": NOT_SUPPORTED,
            "nvmlDeviceGetMarginTemperature": 33,
            "nvmlDeviceGetPowerManagementDefaultLimit": 700000,
            "nvmlDeviceGetPowerManagementLimitConstraints": [200000, 700000],
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
            "nvmlDeviceGetRetiredPages": NOT_SUPPORTED,
            "nvmlDeviceGetRetiredPagesPendingStatus": NOT_SUPPORTED,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetNvLinkState": 1,
            "nvmlDeviceGetNvLinkVersion": 4,
            "nvmlDeviceGetNvLinkErrorCounter": 0,
            "nvmlDeviceGetGraphicsRunningProcesses": [],
            "nvmlDeviceGetProcessUtilization": pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND),
            "nvmlEventSetCreate": "events",
            "nvmlEventSetFree": None,
            "nvmlDeviceRegisterEvents": None,
            "nvmlEventSetWait": self._event,
        }

    def install(self) -> None:
        """Stand in place of every function of pynvml that would need the driver."""
        for name, found in vars(pynvml).copy().items():
            if (
                name.startswith("nvml")
                and isinstance(found, FunctionType)
                and name not in ("nvmlErrorString", "nvmlStructToFriendlyObject")
            ):
                setattr(pynvml, name, self._call(name))

    def follow(self, script: Path) -> None:
        """Before every call, do what the file says: {"gpus": 2, "errors": {"nvmlDeviceGetName":
        15}, "processes": [[PID, BYTES]]}.

        "hangs" names a call that never comes back, as one does that blocks in the kernel.
        """
        self._script, self._as_recorded = script, dict(self.answers)

    def _obey(self, script: Path) -> None:
        told = json.loads(script.read_text())
        self.gpus = told.get("gpus", 1)
        running = [
            Answer(pid=pid, usedGpuMemory=used, gpuInstanceId=2**32 - 1)
            for pid, used in told.get("processes", [])
        ]
        errors = {name: error(code) for name, code in told.get("errors", {}).items()}
        hangs = {told["hangs"]: lambda *_: time.sleep(3600)} if "hangs" in told else {}
        self.answers = {
            **self._as_recorded,
            "nvmlDeviceGetComputeRunningProcesses": running,
            **errors,
            **hangs,
        }

    def _call(self, name: str) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            if self._script is not None:
                self._obey(self._script)
            assert name in self.answers, f"{name} was not recorded"
            self.calls.append(name)
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*values) if callable(answer) else answer

        return call

    def _clock(self, handle: int, kind: int) -> int:
        return self.clocks.pop(0) if kind == pynvml.NVML_CLOCK_SM and self.clocks else _CLOCKS[kind]

    def _field_values(self, handle: int, ids: list[Any]) -> list[Any]:
        return [
            self._field_value(i if i in self.fields or not isinstance(i, tuple) else i[0])
            for i in ids
        ]

    def _field_value(self, name: Any) -> Any:
        answer = self.fields.get(name, NOT_SUPPORTED)
        code = answer.value if isinstance(answer, Exception) else pynvml.NVML_SUCCESS  # type: ignore[attr-defined]
        count = 0 if isinstance(answer, Exception) else int(answer)
        value = Answer(dVal=0.0, uiVal=count % 2**32, ulVal=0, ullVal=count, sllVal=0)
        kind = (
            pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            if count >= 2**32
            else pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        )
        return Answer(nvmlReturn=code, valueType=kind, value=value)

    def _metrics(self, request: Any) -> None:
        for i in range(request.numMetrics):
            metric = request.metrics[i]
            self.calls.append(f"GPM metric {metric.metricId}")
            metric.nvmlReturn = self.gpm_returns.get(metric.metricId, pynvml.NVML_SUCCESS)
            metric.value = self.gpm_values.get(metric.metricId, 0.0)

    def _event(self, events: str, milliseconds: int) -> Any:
        assert milliseconds == 0, "the probe waits for nothing"
        if not self.events:
            raise error(pynvml.NVML_ERROR_TIMEOUT)
        gpu, xid = self.events.pop(0)
        return Answer(device=gpu, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=xid)


def error(code: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(code)


def one(
    source: NvmlSource, recorded: RecordedNvml, now: float = 100.0, pause: float = 0.5
) -> Reading:
    """The source's reading `pause` seconds after the last."""
    recorded.now += pause
    (reading,) = source.read(now)
    return reading
