"""What NVML is asked for one GPU and answers with plain numbers: the calls, and how often each is made.

Calls cost up to 6 ms of CPU each (tests/benchmarks/results/nvml_calls.csv), so each is made as often as the pace of its fields says
(`scheduler.protocol.fields`): fast with every reading, slow every SLOW_S and rare every RARE_S, spread over that span, static once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pynvml as nv

from scheduler.devices.nvidia.errors import RETRY_S, lasting, why
from scheduler.protocol.fields import FIELDS

SLOW_S = 5.0
"""What changes slowly is read this often and kept in between."""
RARE_S = 30.0
"""What hardly ever changes, or costs most."""
_STATIC_S = 3600.0
"""Limits and maxima may change when somebody changes the card's settings."""


class Call(NamedTuple):
    """One call of NVML, and the fields it answers."""

    fields: tuple[str, ...]
    ask: Callable[[Any], Sequence[float]]

    @property
    def period_s(self) -> float:
        return {"fast": 0.0, "slow": SLOW_S, "rare": RARE_S, "static": _STATIC_S}[
            FIELDS[self.fields[0]].pace
        ]


def field_value(value: Any) -> float:
    """The number in one answer of `nvmlDeviceGetFieldValues`. Raises NVMLError where it holds an error instead."""
    if value.nvmlReturn != nv.NVML_SUCCESS:
        raise nv.NVMLError(value.nvmlReturn)
    name = {
        nv.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nv.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nv.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }.get(value.valueType, "uiVal")
    return float(getattr(value.value, name))


def _field(field_id: int, scale: float = 1.0) -> Callable[[Any], Sequence[float]]:
    return lambda h: (field_value(nv.nvmlDeviceGetFieldValues(h, [field_id])[0]) * scale,)


def _memory(handle: Any) -> Sequence[float]:
    """Version 2 of the struct: without it, `used` includes the driver's reserve from driver 510 on."""
    memory = nv.nvmlDeviceGetMemoryInfo(handle, nv.nvmlMemory_v2)
    return memory.used, memory.total, memory.free, memory.reserved


def _utilisation(handle: Any) -> Sequence[float]:
    rates = nv.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _bar1(handle: Any) -> Sequence[float]:
    window = nv.nvmlDeviceGetBAR1MemoryInfo(handle)
    return window.bar1Used, window.bar1Total


def _fan(handle: Any) -> Sequence[float]:
    count = nv.nvmlDeviceGetNumFans(handle)
    if not count:
        raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
    return (max(nv.nvmlDeviceGetFanSpeed_v2(handle, fan) for fan in range(count)),)


def _limits(handle: Any) -> Sequence[float]:
    low, high = nv.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    return low / 1e3, high / 1e3


def _threshold(kind: int) -> Callable[[Any], Sequence[float]]:
    return lambda h: (nv.nvmlDeviceGetTemperatureThreshold(h, kind),)


def _clock(kind: int) -> Callable[[Any], Sequence[float]]:
    return lambda h: (nv.nvmlDeviceGetClockInfo(h, kind),)


def _max_clock(kind: int) -> Callable[[Any], Sequence[float]]:
    return lambda h: (nv.nvmlDeviceGetMaxClockInfo(h, kind),)


def _ecc(error: int, span: int) -> Callable[[Any], Sequence[float]]:
    return lambda h: (nv.nvmlDeviceGetTotalEccErrors(h, error, span),)


def _pages(cause: int) -> Callable[[Any], Sequence[float]]:
    return lambda h: (len(nv.nvmlDeviceGetRetiredPages(h, cause)),)


CALLS: tuple[Call, ...] = (
    Call(("mem_used", "mem_total", "mem_free", "mem_reserved"), _memory),
    Call(("util", "mem_util"), _utilisation),
    Call(("temp",), lambda h: (nv.nvmlDeviceGetTemperature(h, nv.NVML_TEMPERATURE_GPU),)),
    Call(("temp_mem",), _field(nv.NVML_FI_DEV_MEMORY_TEMP)),
    Call(("power",), _field(nv.NVML_FI_DEV_POWER_INSTANT, 1e-3)),
    Call(("power_avg",), lambda h: (nv.nvmlDeviceGetPowerUsage(h) / 1e3,)),
    Call(("clock_mem",), _clock(nv.NVML_CLOCK_MEM)),
    Call(("clock_video",), _clock(nv.NVML_CLOCK_VIDEO)),
    Call(("pstate",), lambda h: (nv.nvmlDeviceGetPerformanceState(h),)),
    Call(("encoder",), lambda h: (nv.nvmlDeviceGetEncoderUtilization(h)[0],)),
    Call(("decoder",), lambda h: (nv.nvmlDeviceGetDecoderUtilization(h)[0],)),
    Call(("jpeg",), lambda h: (nv.nvmlDeviceGetJpgUtilization(h)[0],)),
    Call(("ofa",), lambda h: (nv.nvmlDeviceGetOfaUtilization(h)[0],)),
    Call(("bar1_used", "bar1_total"), _bar1),
    Call(("temp_margin",), lambda h: (nv.nvmlDeviceGetMarginTemperature(h),)),
    Call(("power_limit",), lambda h: (nv.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,)),
    Call(("energy",), lambda h: (nv.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3,)),
    Call(("fan",), _fan),
    Call(("fan_rpm",), lambda h: (nv.nvmlDeviceGetFanSpeedRPM(h),)),
    Call(("pcie_gen",), lambda h: (nv.nvmlDeviceGetCurrPcieLinkGeneration(h),)),
    Call(("pcie_width",), lambda h: (nv.nvmlDeviceGetCurrPcieLinkWidth(h),)),
    Call(("pcie_replays",), lambda h: (nv.nvmlDeviceGetPcieReplayCounter(h),)),
    Call(("ecc",), lambda h: (nv.nvmlDeviceGetEccMode(h)[0],)),
    Call(("ecc_corrected",), _ecc(nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_VOLATILE_ECC)),
    Call(("ecc_uncorrected",), _ecc(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC)),
    Call(
        ("ecc_corrected_total",), _ecc(nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_AGGREGATE_ECC)
    ),
    Call(
        ("ecc_uncorrected_total",),
        _ecc(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_AGGREGATE_ECC),
    ),
    Call(
        ("rows_corrected", "rows_uncorrected", "rows_pending", "rows_failure"),
        lambda h: tuple(nv.nvmlDeviceGetRemappedRows(h)),
    ),
    Call(
        ("pages_corrected",), _pages(nv.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
    ),
    Call(("pages_uncorrected",), _pages(nv.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)),
    Call(("pages_pending",), lambda h: (nv.nvmlDeviceGetRetiredPagesPendingStatus(h),)),
    Call(("mig",), lambda h: (nv.nvmlDeviceGetMigMode(h)[0],)),
    Call(("clock_sm_max",), _max_clock(nv.NVML_CLOCK_SM)),
    Call(("clock_mem_max",), _max_clock(nv.NVML_CLOCK_MEM)),
    Call(("clock_video_max",), _max_clock(nv.NVML_CLOCK_VIDEO)),
    Call(
        ("power_limit_default",), lambda h: (nv.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1e3,)
    ),
    Call(("power_limit_min", "power_limit_max"), _limits),
    Call(("temp_limit",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)),
    Call(("temp_shutdown",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)),
    Call(("temp_max",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_GPU_MAX)),
    Call(("temp_mem_max",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_MEM_MAX)),
    Call(("pcie_gen_max",), lambda h: (nv.nvmlDeviceGetMaxPcieLinkGeneration(h),)),
    Call(("pcie_width_max",), lambda h: (nv.nvmlDeviceGetMaxPcieLinkWidth(h),)),
)


class Scalars:
    """The plain numbers of one GPU, each as fresh as its pace wants."""

    def __init__(self, handle: Any, calls: tuple[Call, ...] = CALLS) -> None:
        self._handle, self._calls = handle, calls
        self._due = [0.0] * len(calls)
        self._kept: list[Sequence[float] | str] = [""] * len(calls)
        """What each call answered last: numbers, or why there are none."""

    def read(self, now: float, values: dict[str, float], absent: dict[str, str]) -> None:
        """`now`: seconds of a clock that nobody sets. Raises DevicesChanged where the GPU is gone."""
        for i, call in enumerate(self._calls):
            if now >= self._due[i]:
                self._ask(i, now)
            kept = self._kept[i]
            if isinstance(kept, str):
                absent.update(dict.fromkeys(call.fields, kept))
            else:
                values.update(zip(call.fields, map(float, kept), strict=True))

    def _ask(self, i: int, now: float) -> None:
        call, first = self._calls[i], not self._due[i]
        try:
            self._kept[i] = call.ask(self._handle)
            self._due[i] = now + call.period_s
        except nv.NVMLError as e:
            self._kept[i] = why(e)
            self._due[i] = now + (RETRY_S if lasting(e) else 0.0)
        if first and self._due[i] > now:  # all were read at once: from now on they take turns
            self._due[i] += min(call.period_s, RARE_S) * i / len(self._calls)
