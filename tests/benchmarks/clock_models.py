"""Candidates for the clock that GPM's shares are to be multiplied with, each computed from the same raw recording.

A share is the mean over an interval of how busy a pipe was. What the hardware takes the mean over is not told:

- over elapsed cycles: share = busy cycles / elapsed cycles, so FLOP = share x cycles of the interval: the mean clock over time is right;
- over time: share = mean of a(t), so FLOP/s = mean of a(t) f(t) = share x the mean clock weighted with a(t), which is the clock while it
  is busy. Where the card idles at 1980 MHz and works at 1400 the mean clock is then too high.

At full load the two are the same. A load that is busy for a part of the time tells them apart, and so does a share over 0.5 s beside the
mean of the five shares over 0.1 s in it: over time they are equal, over cycles the long one leans towards the moments of high clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from statistics import mean

import pynvml as nv

from tests.benchmarks.raw_counters import Interval, Raw

TENSOR, FP32 = 4096.0, 256.0
"""FLOP per cycle and SM of Hopper's pipes, as `scheduler.devices.nvidia.gpm` has them (BF16, FP16)."""
LOOKS = 8
"""Of the probe an interval."""
Spans = Sequence[tuple[float, float]]


class Case:
    """What was recorded while one load ran. `spans`: when the GPU was given work (s since the epoch)."""

    def __init__(self, raw: Raw, start: float, end: float, spans: Spans) -> None:
        self.raw, self.spans = raw, spans
        inside = [i for i in raw.intervals if start <= i.start and i.end <= end]
        self.short, self.long = [i for i in inside if not i.long], [i for i in inside if i.long]
        self._times = [t for t, _ in raw.clocks]
        self._slow = [t for t, *_ in raw.slow]
        self.rest_watts = min((watts for _, watts, _ in raw.slow), default=0.0)

    def looks(self, interval: Interval) -> list[tuple[float, float]]:
        """Clocks that were looked at within an interval, (time, MHz)."""
        return self.raw.clocks[bisect_left(self._times, interval.start) : bisect_left(self._times, interval.end)]

    def slow_at(self, moment: float) -> tuple[float, float, int]:
        """Power and reasons that were read at that time or before."""
        return self.raw.slow[max(bisect_left(self._slow, moment) - 1, 0)]

    def busy(self, moment: float) -> bool:
        at = bisect_left(self.spans, (moment, float("inf"))) - 1
        return at >= 0 and moment <= self.spans[at][1]


Clock = Callable[[Case, Interval, list[tuple[float, float]]], float]
"""From a case, an interval and the looks within it to MHz."""


def _mean(case: Case, interval: Interval, looks: list[tuple[float, float]]) -> float:
    return mean(clock for _, clock in looks)


def _eight(case: Case, interval: Interval, looks: list[tuple[float, float]]) -> float:
    """As the probe does it."""
    step = len(looks) / LOOKS
    return mean(looks[int(i * step)][1] for i in range(LOOKS))


def _while_busy(case: Case, interval: Interval, looks: list[tuple[float, float]]) -> float:
    """Known to the benchmark alone: what the others are to come near, if shares are means over time."""
    found = [clock for t, clock in looks if case.busy(t)]
    return mean(found) if found else _mean(case, interval, looks)


def _two_states(share: str) -> Clock:
    """Idle at the highest clock seen, busy at one other, of which the mean clock and the share of busy time tell."""

    def clock(case: Case, interval: Interval, looks: list[tuple[float, float]]) -> float:
        clocks, busy = [c for _, c in looks], interval.values.get(share, 0.0) / 100
        rest = max(clocks)
        return max(min(clocks), min(rest, (mean(clocks) - (1 - busy) * rest) / busy)) if busy > 0 else rest

    return clock


def _by_power(case: Case, interval: Interval, looks: list[tuple[float, float]]) -> float:
    """Weighted with the power above that of an idle card."""
    weighed = [(max(case.slow_at(t)[1] - case.rest_watts, 1e-3), clock) for t, clock in looks] if case.raw.slow else [(1.0, looks[0][1])]
    return sum(w * c for w, c in weighed) / sum(w for w, _ in weighed)


def _while_capped(case: Case, interval: Interval, looks: list[tuple[float, float]]) -> float:
    """While the driver says that the power limit holds the clocks down; all looks where it never does."""
    held = nv.nvmlClocksEventReasonSwPowerCap
    found = [clock for t, clock in looks if case.raw.slow and case.slow_at(t)[2] & held]
    return mean(found) if found else _mean(case, interval, looks)


def _lowest(case: Case, interval: Interval, looks: list[tuple[float, float]]) -> float:
    return min(clock for _, clock in looks)


CLOCKS: dict[str, Clock] = {
    "mean": _mean,
    "eight looks": _eight,
    "while busy (known)": _while_busy,
    "two states by graphics": _two_states("graphics_util"),
    "two states by SM": _two_states("sm_util"),
    "by power": _by_power,
    "while capped": _while_capped,
    "lowest": _lowest,
}
LENGTHS = {"0.1 s": False, "0.5 s": True}


def rate(case: Case, name: str, long: bool) -> float | None:
    """FLOP/s by a clock's name and the length of the intervals; None where nothing was recorded."""
    total = seconds = 0.0
    for interval in case.long if long else case.short:
        looks = case.looks(interval)
        if len(looks) < LOOKS or "hmma_tensor_util" not in interval.values:
            continue
        length = interval.end - interval.start
        per_cycle = (interval.values["hmma_tensor_util"] * TENSOR + interval.values.get("fp32_util", 0.0) * FP32) / 100
        total += length * per_cycle * CLOCKS[name](case, interval, looks)
        seconds += length
    return total / seconds * case.raw.sms * 1e6 if seconds else None


def errors(case: Case, counted: float, factor: float) -> dict[str, float | None]:
    """Percent by which every candidate is off the counted FLOP/s. `factor`: what this data type does in a cycle, BF16 being 1."""
    found = {f"{name}, {words}": rate(case, name, long) for words, long in LENGTHS.items() for name in CLOCKS}
    return {name: None if value is None else round((value * factor / counted - 1) * 100, 2) for name, value in found.items()}


def tells(case: Case) -> dict[str, float | None]:
    """Mean of every raw metric, and by how much (percent) the long shares of the tensor pipe are above the short ones in them."""
    names = sorted(set().union(*(i.values for i in case.short)) if case.short else ())
    found: dict[str, float | None] = {name: round(mean(i.values.get(name, 0.0) for i in case.short), 3) for name in names}
    apart = [
        i.values["hmma_tensor_util"] / short - 1
        for i in case.long
        if (inside := [s for s in case.short if i.start <= s.start and s.end <= i.end and "hmma_tensor_util" in s.values])
        and (short := mean(s.values["hmma_tensor_util"] for s in inside)) > 0
        and "hmma_tensor_util" in i.values
    ]
    return {**found, "long_above_short_percent": round(100 * mean(apart), 3) if apart else None}


def best(rows: Sequence[dict[str, float | None]]) -> list[tuple[str, float]]:
    """Candidates by the largest error of any row, the best first; those without a figure for some row are left out."""
    names = [name for name in rows[0] if all(row.get(name) is not None for row in rows)]
    return sorted(((name, max(abs(row[name] or 0.0) for row in rows)) for name in names), key=lambda pair: pair[1])
