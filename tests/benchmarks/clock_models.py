"""Candidates for the clock that GPM's shares are to be multiplied with, each computed from the same raw recording.

A share is busy cycles / elapsed cycles of the SMs, so FLOP = share x cycles of the interval, and the clock's mean over the whole interval
is right, idle moments and all. Three witnesses, from the H100 whose load was busy every other 0.5 s (LOG.md, 2026-11-22):

- A share over 0.5 s is not the mean of the five shares over 0.1 s in it: it leans towards the moments of high clock, as far as NVML's
  clocks say (`tells`: long_above_short_percent beside by_clocks_percent). The share of the memory, whose clock is fixed, is that mean.
- So the shares alone tell how fast the SMs ran in each 0.1 s against another, and that agrees with NVML's clocks.
- Traffic to memory per FLOP is the same for all calls of one kernel, so traffic / share tells the clock, too.

What NVML tells comes late, and in steps. The shares are those of 0.1 s that ended 0.03 to 0.2 s ago, which differs from run to run. The
clock is renewed every 0.1 s and is one moment's, not the mean since: a load that pauses in just this rhythm is seen in the same moment of
its course each time, as by a stroboscope. `tells` has how many changes of the clock were seen while the card was busy, beside how much of
the time it was.

When work begins at the power limit the SMs are slower at once, and NVML tells a lower clock 50 ms later, as if it told what the driver
asks for; in pauses and in lasting work the two agree. So a load with pauses reads too high by every clock that NVML tells.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean

from tests.benchmarks.raw_counters import Interval, Raw

TENSOR, FP32 = 4096.0, 256.0
"""FLOP per cycle and SM of Hopper's pipes, as `scheduler.devices.nvidia.gpm` has them (BF16, FP16)."""
LATE_S = 0.15
"""By how much shares are older than the moment at which they are read, about: 0.1 to 0.2 in one recording, 0.03 to 0.13 in another."""
NET_S = 0.05
"""By how much they are older than the clocks that are read at that moment."""
SLACK_S = 0.05
LOOKS = 5
"""Of the probe an interval."""
Spans = Sequence[tuple[float, float]]
Looks = Sequence[tuple[float, float]]
"""Clocks, (time, MHz)."""


def overlap(spans: Spans, start: float, end: float) -> float:
    """Seconds of `spans` between two moments."""
    return sum(max(min(b, end) - max(a, start), 0.0) for a, b in spans)


class Case:
    """What was recorded while one load ran. `spans`: when the GPU was given work (s since the epoch)."""

    def __init__(self, raw: Raw, start: float, end: float, spans: Spans) -> None:
        self.raw, self.spans = raw, spans
        self.start, self.end = start, end
        first, last = start + LATE_S + SLACK_S, end + LATE_S - SLACK_S
        if len(spans) > 1 and (whole := last - first) > (period := spans[1][0] - spans[0][0]):
            last = first + whole // period * period
        inside = [i for i in raw.intervals if first <= i.start and i.end <= last]
        self.short, self.long = [i for i in inside if not i.long], [i for i in inside if i.long]
        self._times = [t for t, _ in raw.clocks]

    def looks(self, start: float, end: float) -> Looks:
        """Clocks that were looked at between two moments."""
        return self.raw.clocks[bisect_left(self._times, start) : bisect_left(self._times, end)]

    def busy(self, moment: float) -> bool:
        at = bisect_left(self.spans, (moment, float("inf"))) - 1
        return at >= 0 and moment <= self.spans[at][1]

    def work(self, interval: Interval) -> float:
        """Which part of all its work the load did in the seconds that an interval's shares are of."""
        done = overlap(self.spans, interval.start - LATE_S, interval.end - LATE_S)
        return done / overlap(self.spans, self.start, self.end)


Clock = Callable[[Case, Interval], float]
"""MHz."""


def _mean(case: Case, interval: Interval) -> float:
    return mean(clock for _, clock in case.looks(interval.start, interval.end))


def _told(case: Case, interval: Interval) -> list[float]:
    """The probe's looks."""
    looks = case.looks(interval.start, interval.end)
    return [looks[int(i * len(looks) / LOOKS)][1] for i in range(LOOKS)]


def _few(case: Case, interval: Interval) -> float:
    """As the probe does it."""
    return mean(_told(case, interval))


def _before(case: Case, interval: Interval) -> float:
    """Of the time that the shares are of."""
    return mean(clock for _, clock in case.looks(interval.start - NET_S, interval.end - NET_S))


def _while_busy(case: Case, interval: Interval) -> float:
    """Known to the benchmark alone. Right, were shares means over time."""
    found = [clock for t, clock in case.looks(interval.start, interval.end) if case.busy(t)]
    return mean(found) if found else _mean(case, interval)


def _two_states(case: Case, interval: Interval) -> float:
    """Busy SMs at the lowest of the probe's looks, others at the mean of all. The share of busy ones is of cycles: a harmonic mean.

    It corrects pauses, and spoils full load by 5 to 7 %: there the lowest look is but one that the controller made low.
    """
    told = _told(case, interval)
    busy = interval.values.get("sm_util", 0.0) / 100
    return 1 / (busy / min(told) + (1 - busy) / mean(told))


CLOCKS: dict[str, Clock] = {
    "mean": _mean,
    "five looks": _few,
    "mean, before": _before,
    "while busy (known)": _while_busy,
    "two states": _two_states,
}
LENGTHS = {"0.1 s": False, "0.5 s": True}


def error(case: Case, name: str, long: bool, flops: float) -> float | None:
    """Percent by which a clock, by its name, makes the FLOPs of all intervals of a length too many; None where nothing was recorded.

    `flops`: FLOP/s, counted over the whole case. Compared with what was done in the seconds that the shares are of.
    """
    shown = done = 0.0
    for interval in case.long if long else case.short:
        if (
            len(case.looks(interval.start, interval.end)) < LOOKS
            or "hmma_tensor_util" not in interval.values
        ):
            continue
        per_cycle = (
            interval.values["hmma_tensor_util"] * TENSOR
            + interval.values.get("fp32_util", 0.0) * FP32
        ) / 100
        shown += (
            (interval.end - interval.start)
            * per_cycle
            * case.raw.sms
            * CLOCKS[name](case, interval)
            * 1e6
        )
        done += case.work(interval) * flops * (case.end - case.start)
    return round((shown / done - 1) * 100, 2) if done else None


def errors(case: Case, counted: float, factor: float) -> dict[str, float | None]:
    """Of every candidate, see `error`. `factor`: what this data type does in a cycle, BF16 being 1."""
    return {
        f"{name}, {words}": error(case, name, long, counted / factor)
        for words, long in LENGTHS.items()
        for name in CLOCKS
    }


def tells(case: Case) -> dict[str, float | None]:
    """Mean of every raw metric, and what tells of shares and clocks what they are (percent, see above)."""
    names = sorted(set().union(*(i.values for i in case.short)) if case.short else ())
    found: dict[str, float | None] = {
        name: round(mean(i.values.get(name, 0.0) for i in case.short), 3) for name in names
    }
    apart = [pair for i in case.long if (pair := _apart(case, i))]
    changes = _changes(case, case.raw.clocks)
    return {
        **found,
        "long_above_short_percent": round(100 * mean(a for a, _ in apart), 3) if apart else None,
        "by_clocks_percent": round(100 * mean(b for _, b in apart), 3) if apart else None,
        "clock_changes_while_busy_percent": round(100 * mean(case.busy(t) for t in changes), 1)
        if changes
        else None,
        "busy_percent": round(
            100 * overlap(case.spans, case.start, case.end) / (case.end - case.start), 1
        ),
        "clock_changes": len(changes),
        **{
            f"clock_changes, {name}": len(_changes(case, looks))
            for name, looks in case.raw.others.items()
        },
    }


def _changes(case: Case, looks: Looks) -> list[float]:
    return [
        t
        for (_, before), (t, clock) in pairwise(looks)
        if clock != before and case.start <= t <= case.end
    ]


def _apart(case: Case, long: Interval) -> tuple[float, float] | None:
    """By which part a long share is above the mean of the short ones in it, and by which it would be, if NVML's clocks are the weights."""
    inside = [
        i
        for i in case.short
        if long.start <= i.start and i.end <= long.end and "hmma_tensor_util" in i.values
    ]
    shares = [i.values["hmma_tensor_util"] for i in inside]
    if (
        len(inside) < LOOKS
        or not sum(shares)
        or any(not case.looks(i.start - NET_S, i.end - NET_S) for i in inside)
    ):
        return None
    clocks = [_before(case, i) for i in inside]
    weighted = sum(s * c for s, c in zip(shares, clocks, strict=True)) / sum(clocks)
    return long.values.get("hmma_tensor_util", 0.0) / mean(shares) - 1, weighted / mean(shares) - 1


def best(rows: Sequence[dict[str, float | None]]) -> list[tuple[str, float]]:
    """Candidates by the largest error of any row, the best first; those without a figure for some row are left out."""
    names = [name for name in rows[0] if all(row.get(name) is not None for row in rows)]
    return sorted(
        ((name, max(abs(row[name] or 0.0) for row in rows)) for name in names),
        key=lambda pair: pair[1],
    )
