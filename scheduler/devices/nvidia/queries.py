"""The table of NVML queries that return plain numbers, and how often each is made.

A call costs up to 6 ms of CPU time (tests/benchmarks/results/nvml_calls.csv), so the pace of its
fields (`gpudeck.scheduler.protocol.fields`) sets how often it is made: fast with every reading,
slow every SLOW_S and rare every RARE_S, spread over that span, static about once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pynvml as nv

from gpudeck.scheduler.devices.nvidia.errors import RETRY_S, lasting, refusal
from gpudeck.scheduler.protocol.absence import Absence, Refused
from gpudeck.scheduler.protocol.fields import FIELDS

SLOW_S = 5.0
"""Fields that change slowly are read this often and kept in between."""
RARE_S = 30.0
"""The period of fields that hardly ever change, or cost most."""
_STATIC_S = 3600.0
"""Limits and maxima may change when somebody changes the card's settings."""


class NvmlQuery(NamedTuple):
    """Describe one call of NVML and the fields that it answers."""

    fields: tuple[str, ...]
    call: Callable[[Any], Sequence[float]]

    @property
    def period_s(self) -> float:
        """Return the seconds between two calls."""
        return {"fast": 0.0, "slow": SLOW_S, "rare": RARE_S, "static": _STATIC_S}[
            FIELDS[self.fields[0]].pace
        ]


def field_value(value: Any) -> float:
    """Return the number in one answer of `nvmlDeviceGetFieldValues`.

    Raises:
        NVMLError: The answer holds an error instead.
    """
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
    # before version 2 of the struct, `used` includes the driver's reserve from driver 510 on
    memory = nv.nvmlDeviceGetMemoryInfo(handle, nv.nvmlMemory_v2)
    return memory.used, memory.total, memory.free, memory.reserved


def _utilisation(handle: Any) -> Sequence[float]:
    rates = nv.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _bar1(handle: Any) -> Sequence[float]:
    window = nv.nvmlDeviceGetBAR1MemoryInfo(handle)
    return window.bar1Used, window.bar1Total


def _fans(handle: Any) -> range:
    count = nv.nvmlDeviceGetNumFans(handle)
    if not count:
        raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
    return range(count)


def _fan(handle: Any) -> Sequence[float]:
    return (max(nv.nvmlDeviceGetFanSpeed_v2(handle, fan) for fan in _fans(handle)),)


def _fan_rpm(handle: Any) -> Sequence[float]:
    _fans(handle)  # a card without fans answers the next call with "Invalid Argument"
    return (nv.nvmlDeviceGetFanSpeedRPM(handle),)


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


QUERIES: tuple[NvmlQuery, ...] = (
    NvmlQuery(("mem_used", "mem_total", "mem_free", "mem_reserved"), _memory),
    NvmlQuery(("util", "mem_util"), _utilisation),
    NvmlQuery(("temp",), lambda h: (nv.nvmlDeviceGetTemperature(h, nv.NVML_TEMPERATURE_GPU),)),
    NvmlQuery(("temp_mem",), _field(nv.NVML_FI_DEV_MEMORY_TEMP)),
    NvmlQuery(("power",), _field(nv.NVML_FI_DEV_POWER_INSTANT, 1e-3)),
    NvmlQuery(("power_avg",), lambda h: (nv.nvmlDeviceGetPowerUsage(h) / 1e3,)),
    NvmlQuery(("clock_mem",), _clock(nv.NVML_CLOCK_MEM)),
    NvmlQuery(("clock_video",), _clock(nv.NVML_CLOCK_VIDEO)),
    NvmlQuery(("pstate",), lambda h: (nv.nvmlDeviceGetPerformanceState(h),)),
    NvmlQuery(("encoder",), lambda h: (nv.nvmlDeviceGetEncoderUtilization(h)[0],)),
    NvmlQuery(("decoder",), lambda h: (nv.nvmlDeviceGetDecoderUtilization(h)[0],)),
    NvmlQuery(("jpeg",), lambda h: (nv.nvmlDeviceGetJpgUtilization(h)[0],)),
    NvmlQuery(("ofa",), lambda h: (nv.nvmlDeviceGetOfaUtilization(h)[0],)),
    NvmlQuery(("bar1_used", "bar1_total"), _bar1),
    NvmlQuery(("temp_margin",), lambda h: (nv.nvmlDeviceGetMarginTemperature(h),)),
    NvmlQuery(("power_limit",), lambda h: (nv.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,)),
    NvmlQuery(("energy",), lambda h: (nv.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3,)),
    NvmlQuery(("fan",), _fan),
    NvmlQuery(("fan_rpm",), _fan_rpm),
    NvmlQuery(("pcie_gen",), lambda h: (nv.nvmlDeviceGetCurrPcieLinkGeneration(h),)),
    NvmlQuery(("pcie_width",), lambda h: (nv.nvmlDeviceGetCurrPcieLinkWidth(h),)),
    NvmlQuery(("pcie_replays",), lambda h: (nv.nvmlDeviceGetPcieReplayCounter(h),)),
    NvmlQuery(("ecc",), lambda h: (nv.nvmlDeviceGetEccMode(h)[0],)),
    NvmlQuery(("ecc_corrected",), _ecc(nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_VOLATILE_ECC)),
    NvmlQuery(
        ("ecc_uncorrected",), _ecc(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC)
    ),
    NvmlQuery(
        ("ecc_corrected_total",), _ecc(nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_AGGREGATE_ECC)
    ),
    NvmlQuery(
        ("ecc_uncorrected_total",),
        _ecc(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_AGGREGATE_ECC),
    ),
    NvmlQuery(
        ("rows_corrected", "rows_uncorrected", "rows_pending", "rows_failure"),
        lambda h: tuple(nv.nvmlDeviceGetRemappedRows(h)),
    ),
    NvmlQuery(("recovery_action",), _field(nv.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)),
    NvmlQuery(
        ("pages_corrected",), _pages(nv.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
    ),
    NvmlQuery(("pages_uncorrected",), _pages(nv.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)),
    NvmlQuery(("pages_pending",), lambda h: (nv.nvmlDeviceGetRetiredPagesPendingStatus(h),)),
    NvmlQuery(("mig",), lambda h: (nv.nvmlDeviceGetMigMode(h)[0],)),
    NvmlQuery(("clock_sm_max",), _max_clock(nv.NVML_CLOCK_SM)),
    NvmlQuery(("clock_mem_max",), _max_clock(nv.NVML_CLOCK_MEM)),
    NvmlQuery(("clock_video_max",), _max_clock(nv.NVML_CLOCK_VIDEO)),
    NvmlQuery(
        ("power_limit_default",), lambda h: (nv.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1e3,)
    ),
    NvmlQuery(("power_limit_min", "power_limit_max"), _limits),
    NvmlQuery(("temp_limit",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)),
    NvmlQuery(("temp_shutdown",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)),
    NvmlQuery(("temp_max",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_GPU_MAX)),
    NvmlQuery(("temp_mem_max",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_MEM_MAX)),
    NvmlQuery(("pcie_gen_max",), lambda h: (nv.nvmlDeviceGetMaxPcieLinkGeneration(h),)),
    NvmlQuery(("pcie_width_max",), lambda h: (nv.nvmlDeviceGetMaxPcieLinkWidth(h),)),
)


class Scalars:
    """Read the plain numbers of one GPU, each as often as its pace asks for."""

    def __init__(self, handle: Any, queries: tuple[NvmlQuery, ...] = QUERIES) -> None:
        self._handle, self._queries = handle, queries
        self._next = [0.0] * len(queries)
        self._kept: list[Sequence[float] | Refused] = [()] * len(queries)
        """The last answer of each query: numbers, or the error."""

    def read(self, now: float, values: dict[str, float], absent: dict[str, Absence]) -> None:
        """Add the fields of all queries.

        Args:
            now: Seconds of a monotonic clock.
            values: Receives the numbers.
            absent: Receives the causes of missing fields.

        Raises:
            DevicesChanged: The GPU is gone.
        """
        for i, query in enumerate(self._queries):
            if now >= self._next[i]:
                self._query(i, now)
            kept = self._kept[i]
            if isinstance(kept, Refused):
                absent.update(dict.fromkeys(query.fields, kept))
            else:
                values.update(zip(query.fields, map(float, kept), strict=True))

    def _query(self, i: int, now: float) -> None:
        query, first = self._queries[i], not self._next[i]
        try:
            self._kept[i] = query.call(self._handle)
            self._next[i] = now + query.period_s
        except nv.NVMLError as e:
            self._kept[i] = refusal(e)
            self._next[i] = now + (RETRY_S if lasting(e) else 0.0)
        # all were read at once the first time; spread them from now on
        if first and self._next[i] > now:
            self._next[i] += min(query.period_s, RARE_S) * i / len(self._queries)
