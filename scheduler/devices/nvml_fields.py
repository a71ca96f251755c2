"""What NVML is asked for one GPU, field by field: a name, and the call that answers with a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml as nv

Getter = Callable[[Any], float]


def _field(field_id: int, scale: float) -> Getter:
    def get(handle: Any) -> float:
        value = nv.nvmlDeviceGetFieldValues(handle, [field_id])[0]
        if value.nvmlReturn != nv.NVML_SUCCESS:
            raise nv.NVMLError(value.nvmlReturn)
        raw = {
            nv.NVML_VALUE_TYPE_DOUBLE: value.value.dVal,
            nv.NVML_VALUE_TYPE_UNSIGNED_INT: value.value.uiVal,
            nv.NVML_VALUE_TYPE_UNSIGNED_LONG: value.value.ulVal,
            nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: value.value.ullVal,
            nv.NVML_VALUE_TYPE_SIGNED_LONG_LONG: value.value.sllVal,
        }.get(value.valueType, value.value.uiVal)
        return float(raw) * scale

    return get


def _power(handle: Any) -> float:
    """The instantaneous reading; the plain one is an average over a second from Ampere on."""
    try:
        return _field(nv.NVML_FI_DEV_POWER_INSTANT, 1e-3)(handle)
    except nv.NVMLError:
        return float(nv.nvmlDeviceGetPowerUsage(handle)) / 1e3


SCALARS: dict[str, Getter] = {
    "util": lambda h: nv.nvmlDeviceGetUtilizationRates(h).gpu,
    "mem_util": lambda h: nv.nvmlDeviceGetUtilizationRates(h).memory,
    "bar1_used": lambda h: nv.nvmlDeviceGetBAR1MemoryInfo(h).bar1Used,
    "temp": lambda h: nv.nvmlDeviceGetTemperature(h, nv.NVML_TEMPERATURE_GPU),
    "temp_mem": _field(nv.NVML_FI_DEV_MEMORY_TEMP, 1.0),
    "temp_limit": lambda h: nv.nvmlDeviceGetTemperatureThreshold(h, nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    "power": _power,
    "power_avg": lambda h: nv.nvmlDeviceGetPowerUsage(h) / 1e3,
    "power_limit": lambda h: nv.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,
    "energy": lambda h: nv.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3,
    "clock_mem": lambda h: nv.nvmlDeviceGetClockInfo(h, nv.NVML_CLOCK_MEM),
    "clock_video": lambda h: nv.nvmlDeviceGetClockInfo(h, nv.NVML_CLOCK_VIDEO),
    "clock_sm_max": lambda h: nv.nvmlDeviceGetMaxClockInfo(h, nv.NVML_CLOCK_SM),
    "fan": nv.nvmlDeviceGetFanSpeed,
    "throttle": nv.nvmlDeviceGetCurrentClocksEventReasons,
    "pstate": nv.nvmlDeviceGetPerformanceState,
    "pcie_gen": nv.nvmlDeviceGetCurrPcieLinkGeneration,
    "pcie_width": nv.nvmlDeviceGetCurrPcieLinkWidth,
    "pcie_replays": nv.nvmlDeviceGetPcieReplayCounter,
    "ecc_corrected": lambda h: nv.nvmlDeviceGetTotalEccErrors(h, nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_VOLATILE_ECC),
    "ecc_uncorrected": lambda h: nv.nvmlDeviceGetTotalEccErrors(h, nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC),
    "encoder": lambda h: nv.nvmlDeviceGetEncoderUtilization(h)[0],
    "decoder": lambda h: nv.nvmlDeviceGetDecoderUtilization(h)[0],
    "jpeg": lambda h: nv.nvmlDeviceGetJpgUtilization(h)[0],
    "ofa": lambda h: nv.nvmlDeviceGetOfaUtilization(h)[0],
}

THROTTLE = {
    nv.nvmlClocksEventReasonGpuIdle: "idle",
    nv.nvmlClocksEventReasonApplicationsClocksSetting: "application clocks",
    nv.nvmlClocksEventReasonSwPowerCap: "power limit",
    nv.nvmlClocksEventReasonHwSlowdown: "hardware slow-down",
    nv.nvmlClocksEventReasonSyncBoost: "sync boost",
    nv.nvmlClocksEventReasonSwThermalSlowdown: "too hot (software)",
    nv.nvmlClocksEventReasonHwThermalSlowdown: "too hot (hardware)",
    nv.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
    nv.nvmlClocksEventReasonDisplayClockSetting: "display clocks",
}

SLOW = frozenset(
    {
        "energy",
        "clock_sm_max",
        "temp_limit",
        "power_limit",
        "bar1_used",
        "pcie_replays",
        "pcie_gen",
        "pcie_width",
        "ecc_corrected",
        "ecc_uncorrected",
    }
)
SLOW_S = 5.0
"""What changes slowly, and takes 0.1 to 4 ms of CPU a call (LOG.md), is read this often and kept in between."""
