"""Read GPM, the hardware counters that NVML averages over an interval.

They exist on Hopper and later; on GeForce from Blackwell on.

The share of cycles in which a pipe was busy, times what the pipe does in a cycle, is the FLOP/s of
whatever runs, ours or not:

    FLOP/s = (tensor share x 4096 + FP32 share x 256) x SMs x SM clock   (Hopper: FLOP/cycle/SM)

A share is busy cycles / elapsed cycles of the SMs, so share x clock is the number of cycles that
the pipe was busy. The clock must therefore be its mean over the whole interval, idle moments
included; one instantaneous sample each 200 ms made the sum 11 % too high on a card at its power
limit. A load that was busy every other 0.5 s showed that the share is one of cycles, and not of
time (which would need the clock while busy): its share over 0.5 s is 11 % under the mean of the
shares over the 0.1 s within, as it must be where the idle card runs faster, while the share of the
memory, whose clock is fixed, equals that mean (tests/benchmarks/log/telemetry.md, 2026-11-22).

The clock is NVML's, which is the one that the driver requests, times a correction: on an H200 the
SMs run up to 10 % slower while the tensor cores work. `gpudeck calibrate` measures the correction
of a card (`gpudeck.scheduler.protocol.calibration`); without one the figure is up to 19 % too high
there, and that is stated with it. The driver renews its clock when it is asked, 0.1 s after the
last time, so a load with pauses must not be asked in step with them
(`gpudeck.scheduler.devices.probe`).

The counters do not tell data types and instructions apart: FP8 uses the same pipe as BF16 (the
pipe for INT8 stays at 0) and does twice as much in a cycle, so the figure for FP8 is half of the
truth. TF32 reads double, and kernels built on the older mma.sync 1.5 to 2 times. A job of ours that
counts its FLOPs takes precedence over the counters (`gpudeck.scheduler.telemetry.monitor`).
"""

from __future__ import annotations

from time import monotonic
from typing import Any, NamedTuple, TypeVar

import pynvml as nv

from gpudeck.language.text import Message, Number, Text, phrase
from gpudeck.scheduler.devices.nvidia.errors import refusal
from gpudeck.scheduler.devices.nvidia.queries import SLOW_S
from gpudeck.scheduler.protocol import calibration
from gpudeck.scheduler.protocol.absence import (
    Absence,
    NoCounters,
    RateUnknown,
    Refused,
    Unavailable,
)
from gpudeck.scheduler.protocol.fields import FIELDS

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
"""By field. `graphics` takes 1.8 ms of CPU time, each other metric 0.02 to 0.04 ms
(tests/benchmarks/log/telemetry.md), so `graphics` is read less often."""
T = TypeVar("T")
_IN_MIB = frozenset({"pcie_tx", "pcie_rx", "nvlink_rx", "nvlink_tx"})
_RATES = ("tflops", "tflops_gpm")
_ERRORS = ("tflops_error", "tflops_gpm_error")
_DERIVED = (*_RATES, *_ERRORS, "bandwidth")
MIN_INTERVAL_S = 0.09
"""Two samples must be about 0.1 s apart; at ten readings a second the interval varies a little."""
CALIBRATED = phrase("The clock is corrected by a calibration of this card")
NOT_CALIBRATED = phrase(
    "The clock is NVML's own; to measure this card's, run: {command}", command="gpudeck calibrate"
)


def describe_method(calibrated: bool) -> Text:
    """Return how TFLOP/s are counted."""
    return phrase(
        "hardware counters (GPM): busy share of the tensor and FP32 pipes x SMs x mean clock. "
        "FP64 and FP16 without tensor cores are not in the sum. The counters cannot tell the data "
        "type: the figure is right for FP16 and BF16; FP8 is twice and TF32 half of it, and older "
        "(mma.sync) kernels are up to half of it. {sub}",
        sub=CALIBRATED if calibrated else NOT_CALIBRATED,
    )


class FlopPerCycle(NamedTuple):
    """Give the dense FLOP per cycle and SM of pipes that are always busy."""

    tensor: float
    fp32: float


_FLOP_PER_CYCLE: dict[tuple[int, int], FlopPerCycle] = {(9, 0): FlopPerCycle(4096.0, 256.0)}
"""By compute capability. Measured values only; elsewhere TFLOP/s is N/A rather than a guess."""


def flops(values: dict[str, float], capability: tuple[int, int], sms: int) -> float | Absence:
    """Return FLOP/s by the counters, or why they are not known.

    Args:
        values: The counters in percent, and `clock_sm`, the mean SM clock, in MHz.
        capability: The compute capability of the GPU.
        sms: The number of its multiprocessors; 0 where it is not known.
    """
    rates = _FLOP_PER_CYCLE.get(capability)
    if rates is None:
        return RateUnknown(capability)
    if not sms or not {"tensor_hmma", "fp32", "clock_sm"} <= values.keys():
        return Unavailable("counters")
    per_cycle = (values["tensor_hmma"] * rates.tensor + values["fp32"] * rates.fp32) / 100
    return per_cycle * sms * values["clock_sm"] * 1e6


class GpmSampler:
    """Read the counters of one GPU between two calls of `read`."""

    def __init__(self, handle: Any, part: int | None = None) -> None:
        """Take the first sample. Raises NVMLError where the GPU or driver has no GPM.

        Args:
            handle: The NVML handle of the GPU.
            part: The GPU instance of MIG to read; None: the whole GPU.
        """
        if not nv.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
        self._handle, self._part = handle, part
        self._before = nv.nvmlGpmSampleAlloc()
        self._after = nv.nvmlGpmSampleAlloc()
        self._slow_at = 0.0
        self._kept: tuple[dict[str, float], dict[str, Absence]] = {}, {}
        """The last means of the slow metrics, and why some of them are missing."""
        self._sample(self._before)

    def _sample(self, sample: Any) -> None:
        if self._part is None:
            nv.nvmlGpmSampleGet(self._handle, sample)
        else:
            nv.nvmlGpmMigSampleGet(self._handle, self._part, sample)

    def read(self) -> tuple[dict[str, float], dict[str, Absence]]:
        """Return the means since the last call, and why some are missing.

        At least MIN_INTERVAL_S must have passed.
        """
        now = monotonic()
        slowly = now >= self._slow_at
        fields = [field for field in METRICS if slowly or FIELDS[field].pace == "fast"]
        self._sample(self._after)
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
                absent[field] = Refused("GPM", str(nv.NVMLError(metric.nvmlReturn)))
            elif metric.value == metric.value:  # NaN while nothing was counted
                values[field] = metric.value * 2**20 if field in _IN_MIB else metric.value
            else:
                absent[field] = Unavailable("nothing counted")
        if slowly:
            self._slow_at, self._kept = now + SLOW_S, (_slow(values), _slow(absent))
        return values, absent

    def close(self) -> None:
        """Free both samples."""
        for sample in (self._before, self._after):
            nv.nvmlGpmSampleFree(sample)


def _slow(found: dict[str, T]) -> dict[str, T]:
    return {field: value for field, value in found.items() if FIELDS[field].pace != "fast"}


class HardwareCounters:
    """Read the counters of one GPU, and derive TFLOP/s and memory traffic from them."""

    def __init__(
        self,
        handle: Any,
        capability: tuple[int, int],
        sms: int,
        peak_bandwidth: float,
        calibrated: calibration.ClockCalibration = calibration.UNCALIBRATED,
        part: int | None = None,
    ) -> None:
        """Open the counters, where the GPU has them.

        Args:
            handle: The NVML handle of the GPU.
            capability: Its compute capability.
            sms: The number of its multiprocessors; 0 where it is not known.
            peak_bandwidth: Bytes a second; 0 where it is not known.
            calibrated: The correction of its clock.
            part: The GPU instance of MIG to read; None: the whole GPU.
        """
        self._capability, self._sms, self._peak = capability, sms, peak_bandwidth
        self._clock = calibrated
        self._method = describe_method(calibrated.made > 0)
        self._gpm: GpmSampler | NoCounters
        try:
            self._gpm = GpmSampler(handle, part)
        except nv.NVMLError as e:
            self._gpm = NoCounters(str(e))
        self._time = monotonic()

    @property
    def available(self) -> bool:
        """Return True if this card has counters."""
        return isinstance(self._gpm, GpmSampler)

    def read(
        self, values: dict[str, float], absent: dict[str, Absence], methods: dict[str, Message]
    ) -> None:
        """Add the means since the last call.

        Args:
            values: Holds the mean SM clock of the same interval, and receives the fields.
            absent: Receives the causes of missing fields.
            methods: Receives how derived fields were computed.
        """
        if isinstance(self._gpm, NoCounters):
            absent.update(dict.fromkeys((*METRICS.keys() - _IN_MIB, *_DERIVED), self._gpm))
            return
        now = monotonic()
        if now - self._time < MIN_INTERVAL_S:
            absent.update(dict.fromkeys((*METRICS, *_DERIVED), Unavailable("short interval")))
            return
        self._time = now
        try:
            counted, missing = self._gpm.read()
        except nv.NVMLError as e:
            counted, missing = {}, dict.fromkeys(METRICS, Refused("GPM", refusal(e).message))
        values.update(counted)
        absent.update(missing)
        self._add_flops(values, absent, methods)
        if "dram" in values and self._peak:
            values["bandwidth"] = values["dram"] / 100 * self._peak
            methods["bandwidth"] = phrase(
                "hardware counters (GPM): DRAM busy share x {rate} TB/s",
                rate=Number(self._peak / 1e12, ".2f"),
            )
        else:
            absent["bandwidth"] = absent.get("dram", Unavailable("peak bandwidth"))

    def _add_flops(
        self, values: dict[str, float], absent: dict[str, Absence], methods: dict[str, Message]
    ) -> None:
        found = flops(values, self._capability, self._sms)
        activity = calibration.tensor_activity(values)
        if not isinstance(found, float) or activity is None:
            why = Unavailable("counters") if isinstance(found, float) else found
            absent.update(dict.fromkeys((*_RATES, *_ERRORS), why))
            return
        values.update(dict.fromkeys(_RATES, found / 1e12 * self._clock.ratio(activity)))
        values.update(dict.fromkeys(_ERRORS, self._clock.error(activity)))
        methods.update(dict.fromkeys(_RATES, self._method))

    def close(self) -> None:
        """Free the samples of the counters."""
        if isinstance(self._gpm, GpmSampler):
            self._gpm.close()
