"""Record the raw counters of the first GPU, as often as possible, for later analysis.

    python -m tests.benchmarks.raw_counters FILE SMS

Reads until standard input is closed, then writes FILE (JSON, gzip): the SM clock about every
millisecond, two other calls that report a clock every 5 ms (to see whether they are updated more
often), power and throttle reasons every 20 ms, and the GPM metrics over each 0.1 s and each 0.5 s.
A metric or call that this driver refuses is recorded once with its reason.
"""

from __future__ import annotations

import gzip
import select
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pynvml as nv

METRICS = {
    name.removeprefix("NVML_GPM_METRIC_").lower(): number
    for name, number in vars(nv).items()
    if name.startswith("NVML_GPM_METRIC_") and (number <= 13 or 248 <= number <= 260)
}
"""The utilisation of every pipe, and the counts of cycles that the driver of our H100 refused."""
T = TypeVar("T", bound=msgspec.Struct)
LOOK_S, OTHERS_S, SLOW_S, GPM_S, LONG = 0.001, 0.005, 0.02, 0.1, 5


class Interval(msgspec.Struct, frozen=True):
    """Hold the GPM metrics between two samples, in percent or cycles."""

    start: float
    end: float
    long: bool
    """The metrics over LONG samples instead of one."""
    values: dict[str, float]


class Raw(msgspec.Struct):
    """Hold all that was recorded. Times are seconds since the epoch."""

    sms: int = 0
    capability: tuple[int, int] = (0, 0)
    clock_max: float = 0.0
    clocks: list[tuple[float, float]] = []
    """Pairs of time and MHz."""
    others: dict[str, list[tuple[float, float]]] = {}
    """The same from other calls: the graphics clock, and NVML's current SM clock."""
    slow: list[tuple[float, float, int]] = []
    """Time, watts (instantaneous), and the bits of the throttle reasons."""
    intervals: list[Interval] = []
    refused: dict[str, str] = {}
    """Metrics and calls that fail, and why."""


class Recorder:
    """Read everything that is due, and keep it in `raw`."""

    def __init__(self, sms: int) -> None:
        self._handle = nv.nvmlDeviceGetHandleByIndex(0)
        self.raw = Raw(sms, tuple(nv.nvmlDeviceGetCudaComputeCapability(self._handle)))
        self.raw.clock_max = (
            self._told("clock_max", nv.nvmlDeviceGetMaxClockInfo, self._handle, nv.NVML_CLOCK_SM)
            or 0.0
        )
        self._samples: deque[tuple[float, Any]] = deque()
        self._spare = [nv.nvmlGpmSampleAlloc() for _ in range(LONG + 1)]
        self._due = {"others": 0.0, "slow": 0.0, "gpm": 0.0}

    def look(self, now: float) -> None:
        """Read what is due at `now` (seconds since the epoch)."""
        if (
            clock := self._told("clock", nv.nvmlDeviceGetClockInfo, self._handle, nv.NVML_CLOCK_SM)
        ) is not None:
            self.raw.clocks.append((now, clock))
        if now >= self._due["others"]:
            self._due["others"] = now + OTHERS_S
            self._look_elsewhere(now)
        if now >= self._due["slow"]:
            self._due["slow"] = now + SLOW_S
            watts = self._told("power", _watts, self._handle)
            mask = self._told("reasons", nv.nvmlDeviceGetCurrentClocksEventReasons, self._handle)
            if watts is not None and mask is not None:
                self.raw.slow.append((now, watts, int(mask)))
        if now >= self._due["gpm"]:
            self._due["gpm"] = now + GPM_S
            self._sample(now)

    def _look_elsewhere(self, now: float) -> None:
        for name, ask, *which in (
            ("graphics", nv.nvmlDeviceGetClockInfo, nv.NVML_CLOCK_GRAPHICS),
            ("current", nv.nvmlDeviceGetClock, nv.NVML_CLOCK_SM, nv.NVML_CLOCK_ID_CURRENT),
        ):
            if (clock := self._told(f"clock, {name}", ask, self._handle, *which)) is not None:
                self.raw.others.setdefault(name, []).append((now, clock))

    def _sample(self, now: float) -> None:
        sample = self._spare.pop()
        nv.nvmlGpmSampleGet(self._handle, sample)
        self._samples.append((now, sample))
        for back, long in ((1, False), (LONG, True)):
            if len(self._samples) > back:
                begin, before = self._samples[-1 - back]
                self.raw.intervals.append(Interval(begin, now, long, self._metrics(before, sample)))
        if len(self._samples) > LONG:
            self._spare.append(self._samples.popleft()[1])

    def _metrics(self, before: Any, after: Any) -> dict[str, float]:
        request = nv.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nv.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        request.sample1, request.sample2 = before, after
        for i, number in enumerate(METRICS.values()):
            request.metrics[i].metricId = number
        nv.nvmlGpmMetricsGet(request)
        found = {}
        for i, name in enumerate(METRICS):
            metric = request.metrics[i]
            if metric.nvmlReturn != nv.NVML_SUCCESS:
                self.raw.refused[name] = str(nv.NVMLError(metric.nvmlReturn))
            elif metric.value == metric.value:  # NaN if nothing was counted
                found[name] = metric.value
        return found

    def _told(self, what: str, ask: Any, *values: Any) -> float | None:
        try:
            return float(ask(*values))
        except nv.NVMLError as e:
            self.raw.refused[what] = str(e)
            return None


def _watts(handle: Any) -> float:
    (field,) = nv.nvmlDeviceGetFieldValues(handle, [nv.NVML_FI_DEV_POWER_INSTANT])
    if field.nvmlReturn != nv.NVML_SUCCESS:
        raise nv.NVMLError(field.nvmlReturn)
    return float(field.value.uiVal) / 1e3


def write(value: msgspec.Struct, file: Path) -> None:
    file.write_bytes(gzip.compress(msgspec.json.encode(value), mtime=0))


def read(file: Path, kind: type[T]) -> T:
    return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=kind)


class Recording:
    """Run the recorder in a process of its own, so that it and the load do not delay each other."""

    def __init__(self, file: Path, sms: int) -> None:
        self._file = file
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.raw_counters", str(file), str(sms)],
            stdin=subprocess.PIPE,
        )

    def end(self) -> Raw:
        """End the recording.

        Raises CalledProcessError if the process failed; its error is on standard error.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        if status := self._process.wait(60):
            raise subprocess.CalledProcessError(status, "the recorder")
        return read(self._file, Raw)


def main() -> None:
    nv.nvmlInit()
    recorder = Recorder(int(sys.argv[2]))
    while not select.select([0], [], [], LOOK_S)[0]:
        recorder.look(time.time())
    write(recorder.raw, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
