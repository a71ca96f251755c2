"""NVML at the hardware's edge: answers as an H200 (driver 580.159.04) gave them, in place of the
driver this machine lacks.

Everything above is real: pynvml's constants, errors and structures, and our own code. The answers
are in nvml_h200.json, which `tests.gpu.record_nvml` wrote beside a matrix product: by call and
argument. Where the card gave one number for two questions, or zero, DISTINCT holds numbers that
differ, so that no field can be mistaken for another. A call that has no answer fails the test.
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

from gpudeck.scheduler.devices.nvidia.source import NvmlSource
from gpudeck.scheduler.protocol.devices import Reading

RECORDING: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("nvml_h200.json").read_text()
)
UUID = RECORDING["nvmlDeviceGetUUID"]["[]"]
NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
DISTINCT: dict[str, dict[str, Any]] = {
    "nvmlDeviceGetClockInfo": {"[0]": 1485, "[1]": 1500, "[2]": 2619, "[3]": 1515},
    "nvmlDeviceGetMaxClockInfo": {"[0]": 1995, "[1]": 1980, "[2]": 3201, "[3]": 1545},
    "nvmlDeviceGetTemperatureThreshold": {"[0]": 95, "[1]": 89, "[2]": 97, "[3]": 87},
    "nvmlDeviceGetTotalEccErrors": {"[0, 0]": 21, "[0, 1]": 34, "[1, 0]": 2, "[1, 1]": 6},
    "nvmlDeviceGetRemappedRows": {"[]": [5, 3, 1, 0]},
    "nvmlDeviceGetPcieReplayCounter": {"[]": 7},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"[]": 4},
    "nvmlDeviceGetCurrPcieLinkWidth": {"[]": 8},
    "nvmlDeviceGetEnforcedPowerLimit": {"[]": 650000},
    "nvmlDeviceGetPowerManagementLimitConstraints": {"[]": [200000, 710000]},
    "nvmlDeviceGetEccMode": {"[]": [1, 0]},
    "nvmlDeviceGetMigMode": {"[]": [0, 1]},
    "nvmlDeviceGetEncoderUtilization": {"[]": [11, 100000]},
    "nvmlDeviceGetDecoderUtilization": {"[]": [12, 100000]},
    "nvmlDeviceGetJpgUtilization": {"[]": [13, 100000]},
    "nvmlDeviceGetOfaUtilization": {"[]": [14, 100000]},
}
FAULTS = ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows")
"""Of these, those that raise alerts."""
_GPM = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 99.999,
    pynvml.NVML_GPM_METRIC_SM_UTIL: 96.657,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: 14.284,
    pynvml.NVML_GPM_METRIC_INTEGER_UTIL: 1.363,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 93.812,  # 93.81, as the next
    pynvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL: 93.81,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 16.991,
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: 18.464,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 28.864,
    # this load leaves these at 0
    pynvml.NVML_GPM_METRIC_IMMA_TENSOR_UTIL: 3.25,
    pynvml.NVML_GPM_METRIC_DFMA_TENSOR_UTIL: 2.25,
    pynvml.NVML_GPM_METRIC_FP64_UTIL: 6.25,
    pynvml.NVML_GPM_METRIC_FP16_UTIL: 5.25,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: 40.5,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: 50.5,
}
_LINKS = 18
_TOTALS = ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")


class RecordedNvml:
    """`answers[name]` may be replaced by another answer, or by an error to raise; `fields`
    likewise, by id or (id, scope)."""

    def __init__(self, gpus: int = 1, healthy: bool = True) -> None:
        """Answer for so many GPUs; one that is not healthy has counted errors of its memory."""
        self.gpus = gpus
        self.now = 0.0
        """The clock by which the source measures intervals, in seconds."""
        self.calls: list[str] = []
        self.clocks: list[int] = []
        """SM clocks to answer one after the other; the recorded one when they are used up."""
        self.events: list[tuple[int, int]] = []
        """(GPU, Xid) to tell."""
        self._script: Path | None = None
        self._told_xids = 0
        self._as_recorded: dict[str, Any] = {}
        self.gpm_returns: dict[int, int] = {}
        self.gpm_values = dict(_GPM)
        recorded = RECORDING["nvmlDeviceGetFieldValues"]
        self.fields: dict[Any, float | Exception] = {
            pynvml.NVML_FI_DEV_POWER_INSTANT: recorded["186"]["value"],
            pynvml.NVML_FI_DEV_MEMORY_TEMP: recorded["82"]["value"],
            # as documented: the recorded card has no link
            pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: _LINKS,
            **{
                getattr(pynvml, f"NVML_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL"): 0
                for kind in _TOTALS
            },
        }
        kept = {
            name: answers for name, answers in DISTINCT.items() if not healthy or name not in FAULTS
        }
        self.answers: dict[str, Any] = {
            **{name: by_argument(answers) for name, answers in (RECORDING | kept).items()},
            **self._own(),
        }

    def _own(self) -> dict[str, Any]:
        """Return the answers that depend on what a test sets, and those that were not recorded."""
        return {
            "nvmlDeviceGetCount": lambda: self.gpus,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: UUID if handle == 0 else f"{UUID[:-2]}f{handle}",
            "nvmlDeviceGetClockInfo": self._clock,
            "nvmlDeviceGetFieldValues": self._field_values,
            "nvmlGpmQueryDeviceSupport": Answer(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
            "nvmlGpmSampleGet": None,
            "nvmlGpmSampleFree": None,
            "nvmlGpmMetricsGet": self._metrics,
            "nvmlEventSetCreate": "events",
            "nvmlDeviceRegisterEvents": None,
            "nvmlEventSetFree": None,
            "nvmlEventSetWait": self._event,
            "nvmlDeviceGetProcessUtilization": pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND),
            # as documented
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            "nvmlDeviceGetNvLinkState": 1,
            "nvmlDeviceGetNvLinkVersion": 4,
            "nvmlDeviceGetNvLinkErrorCounter": 0,
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

    def divide(self, count: int) -> None:
        """Divide the GPUs into so many MIG instances, as the NVML API Reference describes them.

        Their handles are 100, 101 and so on.
        """

        def handle(gpu: int, index: int) -> int:
            if index >= count:
                raise error(pynvml.NVML_ERROR_NOT_FOUND)
            return 100 + index

        whole = dict(self.answers)
        self.answers |= {
            "nvmlDeviceGetMigMode": [1, 1],
            "nvmlDeviceGetMaxMigDeviceCount": 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": handle,
            "nvmlDeviceGetGpuInstanceId": lambda handle: handle - 93,
            "nvmlDeviceGetUUID": lambda handle: (
                f"MIG-{handle}" if handle >= 100 else whole["nvmlDeviceGetUUID"](handle)
            ),
            "nvmlDeviceGetName": lambda handle: (
                "NVIDIA H200 MIG 1g.18gb" if handle >= 100 else "NVIDIA H200"
            ),
            "nvmlDeviceGetAttributes": lambda handle: Answer(
                multiprocessorCount=16 if handle >= 100 else 132, memorySizeMB=9856
            ),
            "nvmlDeviceGetUtilizationRates": NOT_SUPPORTED,
            "nvmlGpmMigSampleGet": None,
        }

    def follow(self, script: Path) -> None:
        """Before every call, do what the file says: {"gpus": 2, "errors": {"nvmlDeviceGetName":
        15}, "processes": [[PID, BYTES]], "xids": [[GPU, XID]], "fields": {"230": 1},
        "instances": 2}.

        "hangs" names a call that never comes back, as one does that blocks in the kernel.
        """
        self._script, self._as_recorded = script, dict(self.answers)

    def _obey(self, script: Path) -> None:
        told = json.loads(script.read_text())
        xids = [(gpu, number) for gpu, number in told.get("xids", [])]
        self.events += xids[self._told_xids :]
        self._told_xids = len(xids)
        self.gpus = told.get("gpus", 1)
        self.fields |= {int(number): value for number, value in told.get("fields", {}).items()}
        running = [
            Answer(pid=pid, usedGpuMemory=used, gpuInstanceId=2**32 - 1)
            for pid, used in told.get("processes", [])
        ]
        errors = {name: error(code) for name, code in told.get("errors", {}).items()}
        hangs = {told["hangs"]: lambda *_: time.sleep(3600)} if "hangs" in told else {}
        self.answers = dict(self._as_recorded)
        if "instances" in told:
            self.divide(told["instances"])
        self.answers |= {"nvmlDeviceGetComputeRunningProcesses": running, **errors, **hangs}

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
        if kind == pynvml.NVML_CLOCK_SM and self.clocks:
            return self.clocks.pop(0)
        return int(DISTINCT["nvmlDeviceGetClockInfo"][f"[{kind}]"])

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


def by_argument(answers: dict[str, Any]) -> Any:
    """Return a function that answers as recorded: by what is asked besides the handle.

    A call without such arguments has one answer, which is returned itself.
    """
    if set(answers) == {"[]"}:
        return alike(answers["[]"])

    def answer(handle: object, *asked: Any) -> Any:
        found = alike(answers[json.dumps(list(asked))])
        if isinstance(found, Exception):
            raise found
        return found

    return answer


def alike(recorded: Any) -> Any:
    """Return an answer as pynvml gives it: attributes for a struct, an exception for an error."""
    if isinstance(recorded, list):
        return [alike(r) for r in recorded]
    if not isinstance(recorded, dict):
        return recorded
    if set(recorded) == {"error"}:
        return error(recorded["error"])
    return Answer(**{name: alike(value) for name, value in recorded.items()})


def error(code: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(code)


def one(
    source: NvmlSource, recorded: RecordedNvml, now: float = 100.0, pause: float = 0.5
) -> Reading:
    """The source's reading `pause` seconds after the last."""
    recorded.now += pause
    reading, *_ = source.read(now)  # the others are of MIG instances
    return reading
