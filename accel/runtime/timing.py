"""The one way anything here is timed: warm up, then call after call for a given time, with every call's own duration.

On a GPU calls are launched ahead, so that it never waits for the host, and CUDA events between them give each one's time; a call counts
as finished when its event says so, never when it was launched. On a CPU a call is finished when it returns.

Every call works on the same inputs: what fits into the last-level cache (50 MB on an H100) is read from there, not from memory.
FLOPs are those the mathematics needs, of unmasked elements only (`Problem.flops` for attention, 2n³ for a matrix product).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from accel.result import Timing

Report = Callable[[float, int], None]
"""Told about four times a second: seconds since the start, and calls finished since then."""

REPORT_EVERY_S = 0.25
AHEAD_S = 0.1
"""Work kept launched ahead on a GPU: enough to outlast a pause of the host, short enough to stop soon."""
MAX_AHEAD = 512
_POLL_S = 0.0005


@dataclass(frozen=True)
class Measurement:
    """Every call's duration, and the stretch of time in which they ran."""

    samples_ms: tuple[float, ...]
    started: float
    """Seconds since the epoch."""
    ended: float
    wall_s: float
    """From before the first call to the end of the last, by the monotonic clock."""

    @property
    def timing(self) -> Timing:
        """Percentiles of the calls, interpolated linearly between samples."""
        p50, p95, p99 = (float(x) for x in np.percentile(self.samples_ms, (50, 95, 99)))
        return Timing(p50, p50, p95, p99, min(self.samples_ms), max(self.samples_ms), len(self.samples_ms))


def measure(call: Callable[[], object], seconds: float, device: torch.device, report: Report) -> Measurement:
    """Call again and again for `seconds`, at least once, and until the last call is finished."""
    finished_calls = _on_gpu(call, device, seconds) if device.type == "cuda" else _on_cpu(call, seconds)
    samples: list[float] = []
    started, start = time.time(), time.perf_counter()
    told, told_calls = 0.0, 0
    for new in finished_calls:
        samples += new
        elapsed = time.perf_counter() - start
        if elapsed - told >= REPORT_EVERY_S:
            told, told_calls = elapsed, len(samples)
            report(elapsed, len(samples))
    wall = time.perf_counter() - start
    if len(samples) > told_calls:
        report(wall, len(samples))
    return Measurement(tuple(samples), started, started + wall, wall)


def _on_cpu(call: Callable[[], object], seconds: float) -> Iterator[list[float]]:
    """Milliseconds of each call, as it returns."""
    deadline = time.perf_counter() + seconds
    end = 0.0
    while end < deadline:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        yield [(end - start) * 1e3]


def _on_gpu(call: Callable[[], object], device: torch.device, seconds: float) -> Iterator[list[float]]:
    """Milliseconds of the calls found finished since the last look; none at times.

    A call's time runs from the end of the one before it, so that what little the GPU waits between two calls is counted.
    """
    torch.cuda.synchronize(device)
    deadline = time.perf_counter() + seconds
    last = _mark(device)
    flying: deque[torch.cuda.Event] = deque()
    ahead, open_ = 2, True
    while open_ or flying:
        launch = open_ and len(flying) < ahead
        if launch:
            call()
            flying.append(_mark(device))
        finished: list[float] = []
        # A few at a time: reading the whole queue at once would leave the GPU without work meanwhile.
        while flying and len(finished) < 4 and _reached(flying[0]):
            finished.append(last.elapsed_time(flying[0]))
            last = flying.popleft()
        if finished:
            ahead = min(max(2, round(AHEAD_S * 1e3 / max(finished[-1], 1e-3))), MAX_AHEAD)
        elif not launch:
            time.sleep(_POLL_S)
        yield finished
        open_ = time.perf_counter() < deadline


def _mark(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def _reached(event: torch.cuda.Event) -> bool:
    return bool(event.query())  # type: ignore[no-untyped-call]
