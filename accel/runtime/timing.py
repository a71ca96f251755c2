"""Time calls: warm up, then call after call for a given time; contenders take turns.

On a GPU calls are launched ahead, so that it never waits for the host, and CUDA events between them
give each one's time; a call is finished when its event is reached, not when it was launched. On a
CPU a call is finished when it returns. Short calls of contenders have an event between several of
them only, and each is assumed to take their mean: an event takes time itself, and a kernel cannot
begin before the end of the one before it if an event is between them.

Inputs that would stay in the last-level cache are several, taken in turn (`copies_beyond_cache`),
as in a program that has more than one layer. FLOPs are those that the mathematics needs, of
unmasked elements only (`Problem.flops` for attention, 2n³ for a matrix product).
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

from gpudeck.accel.result import Timing

Report = Callable[[float, int], None]
"""Called about four times a second with the seconds and the finished calls since the start."""

REPORT_EVERY_S = 0.25
AHEAD_S = 0.1
"""The work that is launched ahead: it outlasts a pause of the host, and still ends soon."""
MAX_AHEAD = 512
_POLL_S = 0.0005
SLICE_S = 0.05
"""The length of a contender's turn, unless two calls take longer."""
_MARKED_MS = 0.2
"""The work between two events while contenders take turns, unless one call takes longer."""
_USUAL_CACHE = 32 << 20
MOST_COPIES = 64

T = TypeVar("T")


@dataclass(frozen=True)
class Measurement:
    """Hold every call's duration, and the time in which they ran."""

    samples_ms: tuple[float, ...]
    started: float
    """Seconds since the epoch."""
    ended: float
    wall_s: float
    """Seconds from before the first call to the end of the last, by the monotonic clock."""

    @property
    def timing(self) -> Timing:
        """Return the percentiles of the calls."""
        return timing_of(self.samples_ms)


def percentiles(samples: Sequence[float], *at: float) -> tuple[float, ...]:
    """Return percentiles, interpolated linearly between samples."""
    return tuple(float(x) for x in np.percentile(samples, at))


def timing_of(samples_ms: Sequence[float]) -> Timing:
    """Return the percentiles of calls' durations, interpolated linearly between samples."""
    p5, p50, p95, p99 = percentiles(samples_ms, 5, 50, 95, 99)
    return Timing(p50, p50, p95, p99, min(samples_ms), max(samples_ms), len(samples_ms), p5)


def measure(
    call: Callable[[], object], seconds: float, device: torch.device, report: Report
) -> Measurement:
    """Time `call` for `seconds`, at least once, and until the last call is finished."""
    finished_calls = (
        _on_gpu(call, device, seconds) if device.type == "cuda" else _on_cpu(call, seconds)
    )
    samples: list[float] = []
    started, start = time.time(), time.perf_counter()
    reported, reported_calls = 0.0, 0
    for new in finished_calls:
        samples += new
        elapsed = time.perf_counter() - start
        if elapsed - reported >= REPORT_EVERY_S:
            reported, reported_calls = elapsed, len(samples)
            report(elapsed, len(samples))
    wall = time.perf_counter() - start
    if len(samples) > reported_calls:
        report(wall, len(samples))
    return Measurement(tuple(samples), started, started + wall, wall)


def measure_in_turn(
    calls: Sequence[Callable[[], object]],
    seconds: float,
    device: torch.device,
    report: Report,
    during: Callable[[int], None],
) -> tuple[Measurement, ...]:
    """Time several calls against each other, in turns, so that any drift affects all alike.

    Each contender follows every other equally often: on a card at its power limit, a contender
    begins at the clock that the one before it left. If calls are too long for that, a turn settles
    the clock itself, and the order of each round is random. The first call of a turn finds the
    caches as another contender left them, and is not counted, nor are those before the next event.
    Call each at least twice before: compiling is not measured.

    Args:
        calls: the contenders.
        seconds: the least time for each contender, over all its turns.
        device: the device that they run on.
        report: see Report.
        during: called with the index of a contender while its calls run.
    """
    samples: list[list[float]] = [[] for _ in calls]
    spent, busy = [0.0] * len(calls), 0
    others = max(1, len(calls) - 1)
    each = seconds / others  # of one turn, if each other contender is followed once
    trials = [_slice(call, 2, 1, device, lambda: None) for call in calls]
    slow = any(sum(trial) / 1e3 > each for trial in trials)
    # a little longer, so that a few missing calls do not begin another circuit
    longest = 1.05 * each / math.ceil(each / SLICE_S)
    steps = [_calls_a_mark(trial, device) for trial in trials]
    counts = [_calls_in(longest, trial, step) for trial, step in zip(trials, steps, strict=True)]
    started, start, reported = time.time(), time.perf_counter(), 0.0
    # without a seed, so that the order is not the same for every shape
    random = np.random.default_rng()
    while min(spent) < seconds:
        for i in map(int, random.permutation(len(calls))) if slow else circuit(len(calls), random):
            begun = time.perf_counter()
            new = _slice(calls[i], counts[i], steps[i], device, lambda i=i: during(i))  # type: ignore[misc]
            spent[i] += time.perf_counter() - begun
            samples[i] += new[steps[i] :]
            busy += counts[i]
            counts[i] = _calls_in(longest, new, steps[i])
            if (elapsed := time.perf_counter() - start) - reported >= REPORT_EVERY_S:
                reported = elapsed
                report(elapsed, busy)
    wall = time.perf_counter() - start
    report(wall, busy)
    return tuple(
        Measurement(tuple(s), started, started + wall, own)
        for s, own in zip(samples, spent, strict=True)
    )


def circuit(n: int, random: np.random.Generator) -> list[int]:
    """Return n (n - 1) turns in which each of 0 to n - 1 follows each other once, in a circle.

    It begins with 0, and is a single turn if n is 1.

    Source: Hierholzer (1873): a random Eulerian circuit of the complete directed graph.
    """
    ahead = [[int(j) for j in random.permutation(n) if j != i] for i in range(n)]
    trail, circuit = [0], []
    while trail:
        if ahead[trail[-1]]:
            trail.append(ahead[trail[-1]].pop())
        else:
            circuit.append(trail.pop())
    return circuit[:0:-1] or [0]


def _calls_a_mark(ms: Sequence[float], device: torch.device) -> int:
    """Return the number of calls like these between two events."""
    return max(1, round(_MARKED_MS / max(min(ms), 1e-3))) if device.type == "cuda" else 1


def _calls_in(seconds: float, ms: Sequence[float], step: int) -> int:
    """Return the number of calls that fill the time: at least two samples, as the first is
    dropped."""
    return step * max(
        2, min(MAX_AHEAD, round(seconds * 1e3 / max(float(np.median(ms)), 1e-3))) // step
    )


def time_call(call: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """Return the answer of one call on an idle device, and its milliseconds including the
    launch."""
    if device.type != "cuda":
        start = time.perf_counter()
        answer = call()
        return answer, (time.perf_counter() - start) * 1e3
    torch.cuda.synchronize(device)
    before = _mark(device)
    answer = call()
    after = _mark(device)
    after.synchronize()
    return answer, before.elapsed_time(after)


def copies_beyond_cache(size: float, device: torch.device) -> int:
    """Return the number of inputs to take in turn so that none stays in the last-level cache.

    Args:
        size: the bytes of one input.
        device: the device that reads them.
    """
    if device.type == "cuda":
        cache = torch.cuda.get_device_properties(device).L2_cache_size
    else:
        cache = (
            os.sysconf("SC_LEVEL3_CACHE_SIZE") if "SC_LEVEL3_CACHE_SIZE" in os.sysconf_names else 0
        )
    return min(math.ceil(2 * (cache if cache > 0 else _USUAL_CACHE) / size), MOST_COPIES)


def _slice(
    call: Callable[[], object],
    count: int,
    step: int,
    device: torch.device,
    during: Callable[[], None],
) -> list[float]:
    """Return the milliseconds of `count` calls; on a GPU, means over every `step` of them."""
    if device.type != "cuda":
        during()
        return [time_call(call, device)[1] for _ in range(count)]
    marks = [_mark(device)]
    for number in range(1, count + 1):
        call()
        if number % step == 0:
            marks.append(_mark(device))
    during()
    marks[-1].synchronize()
    return [
        before.elapsed_time(after) / step for before, after in pairwise(marks) for _ in range(step)
    ]


def _on_cpu(call: Callable[[], object], seconds: float) -> Iterator[list[float]]:
    """Yield the milliseconds of each call as it returns."""
    deadline = time.perf_counter() + seconds
    end = 0.0
    while end < deadline:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        yield [(end - start) * 1e3]


def _on_gpu(
    call: Callable[[], object], device: torch.device, seconds: float
) -> Iterator[list[float]]:
    """Yield the milliseconds of calls that have finished, which may be none.

    A call's time runs from the end of the one before it, and so includes short waits between calls.
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
        # A few at a time: reading the whole queue at once would leave the GPU without work.
        while flying and len(finished) < 4 and _is_reached(flying[0]):
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


def _is_reached(event: torch.cuda.Event) -> bool:
    return bool(event.query())  # type: ignore[no-untyped-call]
