"""GPM: the hardware counters NVML averages over an interval (Hopper and later; GeForce from Blackwell on).

The share of cycles in which a pipe was busy, times what the pipe does in a cycle, is the FLOP/s of whatever runs, ours or not:

    FLOP/s = (tensor share x 4096 + FP32 share x 256) x SMs x SM clock          (Hopper: FLOP per cycle and SM)

A share is busy cycles / elapsed cycles of the SMs, so share x clock is the cycles that the pipe was busy, and the clock's mean over the
whole interval is wanted, its idle moments included; one instantaneous reading each 200 ms made the sum 11 % too high on a card at its
power limit. That it is so, and no mean over time (which would want the clock while busy), a load that was busy every other 0.5 s has
shown: its share over 0.5 s is 11 % under the mean of the shares over 0.1 s in it, as it must be where the idle card runs faster, while the
share of the memory, whose clock is fixed, is that mean (tests/benchmarks/LOG.md, 2026-11-22).

Measured against counted FLOPs on an H100: at full load within 3 % for FP16, BF16 and FP32 matrix products and for attention kernels built
on wgmma. Loads with pauses at the power limit read too high, by 0 to 10 %: when work begins the SMs run at some 1500 MHz at once, and the
clock that NVML tells stays at up to 1980 for another 50 ms. What counts is how much of the time is such a beginning: busy for 60 % of 0.037
or 0.13 s 8 to 10 %, for 30 % of 0.37 s 4 %, for half of 1 s 2 %. What comes once in 0.1 s, as often as the driver renews the clock, is seen
in one moment of its course only, and read 2 to 21 % too high.

The counters cannot tell data types and instructions apart: FP8 goes through the same pipe as BF16 (the pipe for INT8 stays at 0) and does
twice as much in a cycle, so what is shown for FP8 is a lower bound, half of the truth. TF32 reads double, and kernels built on the older
mma.sync 1.5 to 2 times. A job of ours that counts its FLOPs is believed before the counters (`scheduler.telemetry.monitor`).
"""

from __future__ import annotations

from time import monotonic
from typing import Any, NamedTuple, TypeVar

import pynvml as nv

from scheduler.devices.nvidia.errors import why
from scheduler.devices.nvidia.scalars import SLOW_S
from scheduler.protocol.fields import FIELDS

METRICS: dict[str, int] = {
    "graphics": nv.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_active": nv.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy": nv.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor": nv.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "tensor_hmma": nv.NVML_GPM_METRIC_HMMA_TENSOR_UTIL,
    "tensor_imma": nv.NVML_GPM_METRIC_IMMA_TENSOR_UTIL,
    "tensor_dfma": nv.NVML_GPM_METRIC_DFMA_TENSOR_UTIL,
    "dram": nv.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "fp64": nv.NVML_GPM_METRIC_FP64_UTIL,
    "fp32": nv.NVML_GPM_METRIC_FP32_UTIL,
    "fp16": nv.NVML_GPM_METRIC_FP16_UTIL,
    "integer": nv.NVML_GPM_METRIC_INTEGER_UTIL,
    "pcie_tx": nv.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "pcie_rx": nv.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    "nvlink_rx": nv.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    "nvlink_tx": nv.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
}
"""By field. One of them, `graphics`, takes 1.8 ms of CPU time, each other 0.02 to 0.04 (tests/benchmarks/LOG.md): so it is slow."""
T = TypeVar("T")
_IN_MIB = frozenset({"pcie_tx", "pcie_rx", "nvlink_rx", "nvlink_tx"})
_DERIVED = ("tflops", "tflops_gpm", "bandwidth")
MIN_INTERVAL_S = 0.09
"""Two samples must be about 0.1 s apart; ten readings a second come a little sooner or later than that."""
METHOD = (
    "hardware counters (GPM): busy share of the tensor and FP32 pipes x SMs x mean clock. "
    "FP64 and FP16 without tensor cores are not in the sum. "
    "FP16, BF16 and FP32 at full load: within 3 %. With pauses, at the card's power limit: up to 10 % too high, as the driver tells 50 ms "
    "late that the clock has fallen; up to 21 % where they come every 0.1 s, as often as it tells the clock. "
    "The counters cannot tell FP8: for FP8 this is a lower bound, half of the truth. TF32 and older (mma.sync) kernels read up to double"
)


class Rates(NamedTuple):
    """Dense FLOP per cycle and SM of a pipe that is always busy."""

    tensor: float
    fp32: float


_RATES: dict[tuple[int, int], Rates] = {(9, 0): Rates(4096.0, 256.0)}
"""By compute capability. Only what was measured; elsewhere TFLOP/s from counters is N/A rather than a guess."""


def flops(values: dict[str, float], capability: tuple[int, int], sms: int) -> float | str:
    """FLOP/s by the counters in `values` (percent) and the mean SM clock (MHz), or why that cannot be told."""
    rates = _RATES.get(capability)
    if rates is None:
        return "the FLOP per cycle of compute capability {}.{} was not measured yet".format(
            *capability
        )
    if not sms or not {"tensor_hmma", "fp32", "clock_sm"} <= values.keys():
        return "the counters or the clock cannot be read"
    per_cycle = (values["tensor_hmma"] * rates.tensor + values["fp32"] * rates.fp32) / 100
    return per_cycle * sms * values["clock_sm"] * 1e6


class Gpm:
    """The counters of one GPU between two calls of `read`."""

    def __init__(self, handle: Any) -> None:
        """Raises NVMLError where the GPU or driver has no GPM."""
        if not nv.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
        self._handle = handle
        self._before = nv.nvmlGpmSampleAlloc()
        self._after = nv.nvmlGpmSampleAlloc()
        self._slow_due = 0.0
        self._kept: tuple[dict[str, float], dict[str, str]] = {}, {}
        """What is read slowly, as it was last (the mean of one interval), and why some of it is missing."""
        nv.nvmlGpmSampleGet(handle, self._before)

    def read(self) -> tuple[dict[str, float], dict[str, str]]:
        """Averages since the last call: (values, reasons for those that are missing). At least MIN_INTERVAL_S must have passed."""
        now = monotonic()
        slowly = now >= self._slow_due
        fields = [field for field in METRICS if slowly or FIELDS[field].pace == "fast"]
        nv.nvmlGpmSampleGet(self._handle, self._after)
        request = nv.c_nvmlGpmMetricsGet_t()
        request.version = nv.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(fields)
        request.sample1, request.sample2 = self._before, self._after
        for i, field in enumerate(fields):
            request.metrics[i].metricId = METRICS[field]
        nv.nvmlGpmMetricsGet(request)
        self._before, self._after = self._after, self._before
        values, absent = ({}, {}) if slowly else (self._kept[0].copy(), self._kept[1].copy())
        for i, field in enumerate(fields):
            metric = request.metrics[i]
            if metric.nvmlReturn != nv.NVML_SUCCESS:
                absent[field] = f"GPM: {nv.NVMLError(metric.nvmlReturn)}"
            elif metric.value == metric.value:  # NaN while nothing was counted
                values[field] = metric.value * 2**20 if field in _IN_MIB else metric.value
            else:
                absent[field] = "GPM counted nothing in this interval"
        if slowly:
            self._slow_due, self._kept = now + SLOW_S, (_slow(values), _slow(absent))
        return values, absent

    def close(self) -> None:
        for sample in (self._before, self._after):
            nv.nvmlGpmSampleFree(sample)


def _slow(found: dict[str, T]) -> dict[str, T]:
    return {field: value for field, value in found.items() if FIELDS[field].pace != "fast"}


class Counters:
    """What the hardware counters of one GPU tell, and what follows from it: TFLOP/s and memory traffic; or why they tell nothing."""

    def __init__(
        self, handle: Any, capability: tuple[int, int], sms: int, peak_bandwidth: float
    ) -> None:
        """`peak_bandwidth`: bytes a second; 0 where it is not known."""
        self._capability, self._sms, self._peak = capability, sms, peak_bandwidth
        self._absent = ""
        self._gpm: Gpm | None = None
        try:
            self._gpm = Gpm(handle)
        except nv.NVMLError as e:
            self._absent = f"no hardware counters: GPM needs Hopper or later (driver says: {e})"
        self._time = monotonic()

    @property
    def there(self) -> bool:
        """Whether this card has counters."""
        return self._gpm is not None

    def read(
        self, values: dict[str, float], absent: dict[str, str], methods: dict[str, str]
    ) -> None:
        """Means since the last call. `values` holds the mean SM clock of the same interval."""
        if self._gpm is None:
            absent.update(dict.fromkeys((*METRICS.keys() - _IN_MIB, *_DERIVED), self._absent))
            return
        now = monotonic()
        if now - self._time < MIN_INTERVAL_S:
            absent.update(
                dict.fromkeys((*METRICS, *_DERIVED), "read too soon after the last reading")
            )
            return
        self._time = now
        try:
            counted, missing = self._gpm.read()
        except nv.NVMLError as e:
            counted, missing = {}, dict.fromkeys(METRICS, why(e).replace("NVML", "GPM"))
        values.update(counted)
        absent.update(missing)
        self._tflops(values, absent, methods)
        if "dram" in values and self._peak:
            values["bandwidth"] = values["dram"] / 100 * self._peak
            methods["bandwidth"] = (
                f"hardware counters (GPM): DRAM busy share x {self._peak / 1e12:.2f} TB/s"
            )
        else:
            absent["bandwidth"] = absent.get("dram", "the peak bandwidth of this card is not known")

    def _tflops(
        self, values: dict[str, float], absent: dict[str, str], methods: dict[str, str]
    ) -> None:
        found = flops(values, self._capability, self._sms)
        for field in ("tflops", "tflops_gpm"):
            if isinstance(found, str):
                absent[field] = found
            else:
                values[field] = found / 1e12
                methods[field] = METHOD

    def close(self) -> None:
        if self._gpm is not None:
            self._gpm.close()
