"""Time a few calls of several contenders within some milliseconds, beside a program that runs.

On a GPU the calls of a round are launched while it waits, so that the host's time is not counted,
with an event between contenders. On a CPU a call is finished when it returns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

MOST_MS = 30.0
MOST_CALLS = 20
HOPELESS = (2.0, 1.3)
"""A contender that is slower than the fastest by the first factor, after two rounds that count
by the second, is left out; after a round that does not, only if the launches cannot explain it."""
_MARKED_MS = 0.8
"""The work between two events, unless one call takes longer: an event takes some microseconds
itself, which make unequal calls look alike."""
_AT_ONCE = 4
"""The most calls between two events."""
_MARGIN = 1.2
"""How much longer than the last round the next one may take."""
_WAIT_MS = (0.2, 5.0)
"""The least and the longest time for which a GPU waits for the launches of a round."""
_CYCLES_A_MS = 2_000_000

Call = Callable[[], object]


def medians(
    calls: Mapping[str, Call],
    device: torch.device,
    most_ms: float = MOST_MS,
    *,
    cold: bool = False,
) -> tuple[dict[str, float], dict[str, str], int]:
    """Return the median microseconds of each contender, why others failed, and the timed calls.

    Each contender is called once before, to compile and to load. Rounds in which all take turns, in
    both orders alternately, go on as long as another one ends within `most_ms` of the beginning and
    until each has had MOST_CALLS calls. The first round only shows how long the launches take. A
    round in which they took longer than the GPU waited does not count either, because the last
    contenders then waited for the host. The latest such time stands in where no round counts. A
    contender that raises an exception takes no further part. With `cold` a GPU's last-level cache
    is emptied before each timed call, as other layers of a model do.
    """
    failed: dict[str, str] = {}
    left: dict[str, Call] = {}
    for name, call in calls.items():
        try:
            call()
            left[name] = call
        except Exception as e:  # noqa: BLE001 - a kernel that fails must not end the caller's work
            failed[name] = f"{type(e).__name__}: {str(e).partition(chr(10))[0]}"
    samples: dict[str, list[float]] = {name: [] for name in left}
    found: dict[str, float] = {}
    last = dict[str, float]()
    counts, done, wait = dict.fromkeys(left, 1), dict.fromkeys(left, 0), _WAIT_MS[0]
    at_once = 1 if cold else _AT_ONCE
    other = _beyond_cache(device) if cold and device.type == "cuda" else None
    if device.type == "cuda":
        _mark(device).synchronize()  # what the caller launched before is not counted
    begun, rounds, fair_rounds = time.perf_counter(), 0, 0
    while left:
        order = list(left) if rounds % 2 == 0 else list(left)[::-1]
        turns = [(left[name], counts[name]) for name in order]
        times, host_ms = _round(turns, device, wait, other)
        is_fair = rounds > 0 and host_ms <= wait
        rounds, fair_rounds = rounds + 1, fair_rounds + is_fair
        grown = 1.0
        for name, ms in zip(order, times, strict=True):
            last[name] = ms * 1e3
            if is_fair:
                samples[name].append(last[name])
            done[name] += counts[name]
            most = min(at_once, MOST_CALLS - done[name])
            fitting = max(1, min(most, int(_MARKED_MS / max(ms, 1e-4))))
            grown, counts[name] = max(grown, fitting / counts[name]), fitting
        wait = min(max(_WAIT_MS[0], 1.3 * host_ms * grown), _WAIT_MS[1])
        found = {name: statistics.median(of or [last[name]]) for name, of in samples.items()}
        slow = min(found[name] for name in left) * HOPELESS[fair_rounds > 1]
        slow += 0.0 if is_fair else 1e3 * host_ms
        left = {
            name: call
            for name, call in left.items()
            if done[name] + counts[name] <= MOST_CALLS and found[name] <= slow
        }
        next_us = sum(counts[name] * last[name] for name in left)
        if time.perf_counter() - begun + _MARGIN * next_us / 1e6 > most_ms / 1e3:
            break
    return found, failed, sum(done.values())


def _round(
    turns: list[tuple[Call, int]],
    device: torch.device,
    wait_ms: float,
    other: torch.Tensor | None,
) -> tuple[list[float], float]:
    """Return the milliseconds of a call of each, and those that the host took to launch them all.

    `other` is read before each turn, if it is given.
    """
    if device.type != "cuda":
        times = []
        for call, count in turns:
            start = time.perf_counter()
            for _ in range(count):
                call()
            times.append((time.perf_counter() - start) * 1e3 / count)
        return times, 0.0
    torch.cuda._sleep(int(wait_ms * _CYCLES_A_MS))  # type: ignore[no-untyped-call]
    start = time.perf_counter()
    spans = []
    before = _mark(device)
    for call, count in turns:
        if other is not None:
            other.sum()
            before = _mark(device)
        for _ in range(count):
            call()
        after = _mark(device)
        spans.append((before, after, count))
        before = after
    host_ms = (time.perf_counter() - start) * 1e3
    before.synchronize()
    times = [first.elapsed_time(last) / count for first, last, count in spans]
    return times, host_ms


def _beyond_cache(device: torch.device) -> torch.Tensor:
    """Return a tensor whose reading leaves nothing else in a GPU's last-level cache."""
    size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    return torch.zeros(size // 4, dtype=torch.float32, device=device)


def _mark(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event
