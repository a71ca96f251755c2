"""Measure the SM clock from within: a kernel of one warp counts cycles over a span of the GPU's
timer.

NVML reports the clock that the driver requests. The clock at which the multiprocessors run can be
lower (tests/benchmarks/log/telemetry.md), and only a kernel sees it.
"""

from __future__ import annotations

import random
import statistics
import threading
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
import triton
import triton.language as tl

from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare
from gpudeck.language.text import Message, phrase

SPAN_NS = 200_000
"""The timer advances in steps of up to 1 us; the kernel starts and ends at such a step."""
WITH_COUNTERS = (9, 0)
"""The compute capability whose hardware counters the daemon turns into TFLOP/s."""
_WATCHED_EVERY_S, _MOST_WATCHED = 0.1, 2000
_ROW = 4
_LANES = 32


class ClockSample(NamedTuple):
    """Hold the clock of one multiprocessor over SPAN_NS."""

    time: float
    """Its middle, in seconds since the epoch."""
    mhz: float
    sm: int
    """The number of the multiprocessor."""


@triton.jit  # type: ignore[untyped-decorator]
def _count_cycles(out, span_ns: tl.constexpr, lanes: tl.constexpr):  # type: ignore # noqa
    """Write cycles, nanoseconds, the time of the start and the multiprocessor to out[0:4]."""
    lane = tl.arange(0, lanes)
    span = tl.full((lanes,), span_ns, tl.int64)
    cycles, nanoseconds, start, sm = tl.inline_asm_elementwise(
        """
        {
            .reg .pred again;
            .reg .u64 tick, first, last;
            .reg .u32 number;
            mov.u32 number, %smid;
            cvt.u64.u32 $3, number;
            mov.u64 tick, %globaltimer;
        begin:
            mov.u64 first, %globaltimer;
            setp.eq.u64 again, first, tick;
            @again bra begin;
            mov.u64 $0, %clock64;
            add.u64 tick, first, $4;
        wait:
            mov.u64 last, %globaltimer;
            setp.lt.u64 again, last, tick;
            @again bra wait;
            mov.u64 tick, %clock64;
            sub.u64 $0, tick, $0;
            sub.u64 $1, last, first;
            mov.u64 $2, first;
        }
        """,
        "=&l,=&l,=&l,=&l,l",
        [span],
        dtype=(tl.int64, tl.int64, tl.int64, tl.int64),
        is_pure=False,
        pack=1,
    )
    tl.store(out + lane * 0, cycles, mask=lane == 0)
    tl.store(out + 1 + lane * 0, nanoseconds, mask=lane == 0)
    tl.store(out + 2 + lane * 0, start, mask=lane == 0)
    tl.store(out + 3 + lane * 0, sm, mask=lane == 0)


def clock_call() -> KernelCall:
    """Return the launch of the kernel; its one argument receives four int64."""
    return KernelCall(
        _count_cycles,
        1,
        {"out": Pointer(torch.int64)},
        {"span_ns": SPAN_NS, "lanes": _LANES},
        {"num_warps": 1, "num_stages": 1},
    )


class ClockSampler:
    """Sample the clock beside the work of this process, from a thread and a stream of its own.

    The stream has a high priority, so that a sample begins as soon as one block of the work ends.
    The pauses between samples vary, so that they are not in step with a load.
    """

    def __init__(self, device: torch.device, interval_s: float, most: int) -> None:
        """Compile the kernel.

        Args:
            device: The GPU.
            interval_s: The mean pause between two samples.
            most: The number of samples that are kept; no more are taken.
        """
        self._rows = torch.zeros(most, _ROW, dtype=torch.int64, device=device)
        self._launch = prepare(clock_call(), device)
        self._stream: Any = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._interval = interval_s
        self._taken = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock sampler", daemon=True)

    def start(self) -> None:
        """Take samples from now on."""
        torch.cuda.synchronize(self._rows.device)
        self._thread.start()

    def _run(self) -> None:
        with torch.cuda.stream(self._stream):
            while self._taken < len(self._rows) and not self._end.is_set():
                self._launch(self._rows[self._taken])
                self._taken += 1
                self._end.wait(self._interval * random.uniform(0.5, 1.5))  # noqa: S311 - no secret

    def stop(self) -> list[ClockSample]:
        """Take no more samples, and return all, oldest first."""
        self._end.set()
        self._thread.join()
        self._stream.synchronize()
        return [
            ClockSample((start + nanoseconds / 2) / 1e9, cycles * 1e3 / nanoseconds, sm)
            for cycles, nanoseconds, start, sm in self._rows[: self._taken].tolist()
        ]


class ClockWatch:
    """Measure the mean clock while a `with` block runs on a GPU whose counters give TFLOP/s.

    Ten kernels of 0.2 ms a second, each one warp, take 0.002 % of the GPU.
    """

    def __init__(self, device: torch.device, seconds: float) -> None:
        """Compile the kernel where it is of use; `seconds` is how long the block will run."""
        self._sampler: ClockSampler | None = None
        self.absent: Message = ""
        """Why the clock is not measured, where it should be."""
        if device.type == "cuda" and torch.cuda.get_device_capability(device) == WITH_COUNTERS:
            interval = max(_WATCHED_EVERY_S, seconds / _MOST_WATCHED)
            try:
                self._sampler = ClockSampler(device, interval, _MOST_WATCHED)
            except (RuntimeError, OSError) as e:  # Triton finds no C compiler, for example
                self.absent = phrase("true clock: {problem}", problem=str(e).partition("\n")[0])
        self._samples: list[ClockSample] = []

    def __enter__(self) -> Self:
        if self._sampler:
            self._sampler.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sampler:
            self._samples = self._sampler.stop()

    @property
    def mhz(self) -> float | None:
        """Return the mean, or None where nothing was measured."""
        return statistics.fmean(s.mhz for s in self._samples) if self._samples else None
