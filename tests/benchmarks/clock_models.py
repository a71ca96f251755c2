"""Compare candidates for the clock that GPM's shares are multiplied with, on one raw recording.

A share is busy cycles / elapsed cycles of the SMs, so FLOP = share x cycles of the interval. The
right clock is the mean over the whole interval, including idle moments. Three observations come
from an H100 whose load was busy every other 0.5 s (LOG.md, 2026-11-22).

First, a share over 0.5 s is not the mean of the five shares over 0.1 s in it: it leans towards the
moments of high clock, as far as NVML's clocks show them (`evidence`: long_above_short_percent
beside by_clocks_percent). The share of the memory, whose clock is constant, is that mean.

Second, the shares alone therefore show how fast the SMs ran in one 0.1 s compared with another, and
this agrees with NVML's clocks.

Third, the memory traffic per FLOP is the same for all calls of one kernel, so traffic / share shows
the clock as well.

NVML reports late, and in steps. The shares are those of 0.1 s that ended 0.03 to 0.2 s ago, which
differs from run to run. The clock is updated every 0.1 s and is that of one moment, not the mean
since the last update: a load that pauses in just this rhythm is always observed in the same phase,
as by a stroboscope. `evidence` holds how many changes of the clock were observed while the card was
busy, and the share of time that it was busy.

When work begins at the power limit, the SMs are slower at once, but NVML reports a lower clock 50
ms later, as if it reported what the driver requests; in pauses and in steady work both agree. A
load with pauses therefore reads too high with every clock that NVML reports.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean

from tests.benchmarks.raw_counters import Interval, Raw

TENSOR, FP32 = 4096.0, 256.0
"""FLOP per cycle and SM of Hopper's pipes (BF16, FP16), as in
`gpudeck.scheduler.devices.nvidia.gpm`."""
LATE_S = 0.15
"""Seconds by which shares are older than their reading: 0.1 to 0.2 in one recording, 0.03 to 0.13
in another.
"""
NET_S = 0.05
"""Seconds by which shares are older than the clocks that are read at the same moment."""
SLACK_S = 0.05
READINGS = 5
"""Readings of the probe in an interval."""
Spans = Sequence[tuple[float, float]]
ClockReadings = Sequence[tuple[float, float]]
"""Clocks as (time, MHz)."""


def overlap(spans: Spans, start: float, end: float) -> float:
    """Return the seconds of `spans` that lie between two moments."""
    return sum(max(min(b, end) - max(a, start), 0.0) for a, b in spans)


class Case:
    """Hold what was recorded while one load ran.

    `spans` holds the times at which the GPU was given work, in seconds since the epoch.
    """

    def __init__(self, raw: Raw, start: float, end: float, spans: Spans) -> None:
        self.raw, self.spans = raw, spans
        self.start, self.end = start, end
        first, last = start + LATE_S + SLACK_S, end + LATE_S - SLACK_S
        if len(spans) > 1 and (whole := last - first) > (period := spans[1][0] - spans[0][0]):
            last = first + whole // period * period
        inside = [i for i in raw.intervals if first <= i.start and i.end <= last]
        self.short, self.long = [i for i in inside if not i.long], [i for i in inside if i.long]
        self._times = [t for t, _ in raw.clocks]

    def clocks_between(self, start: float, end: float) -> ClockReadings:
        """Return the clock readings between two moments."""
        return self.raw.clocks[bisect_left(self._times, start) : bisect_left(self._times, end)]

    def busy(self, moment: float) -> bool:
        at = bisect_left(self.spans, (moment, float("inf"))) - 1
        return at >= 0 and moment <= self.spans[at][1]

    def work(self, interval: Interval) -> float:
        """Return the part of all its work that the load did in the seconds that an interval's
        shares cover.
        """
        done = overlap(self.spans, interval.start - LATE_S, interval.end - LATE_S)
        return done / overlap(self.spans, self.start, self.end)


Clock = Callable[[Case, Interval], float]
"""In MHz."""


def _mean(case: Case, interval: Interval) -> float:
    return mean(clock for _, clock in case.clocks_between(interval.start, interval.end))


def _probe_clocks(case: Case, interval: Interval) -> list[float]:
    """Return the mean of the clocks that the probe reads."""
    looks = case.clocks_between(interval.start, interval.end)
    return [looks[int(i * len(looks) / READINGS)][1] for i in range(READINGS)]


def _probe_mean(case: Case, interval: Interval) -> float:
    """Return the clock as the probe computes it."""
    return mean(_probe_clocks(case, interval))


def _mean_of_shares_time(case: Case, interval: Interval) -> float:
    """Return the mean clock of the time that the shares cover."""
    return mean(
        clock for _, clock in case.clocks_between(interval.start - NET_S, interval.end - NET_S)
    )


def _while_busy(case: Case, interval: Interval) -> float:
    """Return the mean clock of the busy time, which only the benchmark knows.

    It would be right if shares were means over time.
    """
    found = [
        clock for t, clock in case.clocks_between(interval.start, interval.end) if case.busy(t)
    ]
    return mean(found) if found else _mean(case, interval)


def _two_states(case: Case, interval: Interval) -> float:
    """Return a clock from two states: busy SMs at the probe's lowest reading, others at the mean.

    The busy share is one of cycles, which makes this a harmonic mean. It corrects pauses, and is
    wrong by 5 to 7 % at full load, where the lowest reading is only one that the controller made
    low.
    """
    told = _probe_clocks(case, interval)
    busy = interval.values.get("sm_util", 0.0) / 100
    return 1 / (busy / min(told) + (1 - busy) / mean(told))


CLOCKS: dict[str, Clock] = {
    "mean": _mean,
    "five looks": _probe_mean,
    "mean, before": _mean_of_shares_time,
    "while busy (known)": _while_busy,
    "two states": _two_states,
}
LENGTHS = {"0.1 s": False, "0.5 s": True}


def error(case: Case, name: str, long: bool, flops: float) -> float | None:
    """Return by how many percent a clock overestimates the FLOPs of all intervals of a length.

    The FLOPs are compared with the work done in the seconds that the shares cover. The result is
    None if nothing was recorded.

        Args:
            flops: FLOP/s, counted over the whole case.
    """
    shown = done = 0.0
    for interval in case.long if long else case.short:
        if (
            len(case.clocks_between(interval.start, interval.end)) < READINGS
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
    """Return the error of every candidate (see `error`).

    Args:
        factor: The work of this data type in a cycle, relative to BF16.
    """
    return {
        f"{name}, {words}": error(case, name, long, counted / factor)
        for words, long in LENGTHS.items()
        for name in CLOCKS
    }


def evidence(case: Case) -> dict[str, float | None]:
    """Return the mean of every raw metric, and the evidence about shares and clocks, in percent."""
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


def _changes(case: Case, looks: ClockReadings) -> list[float]:
    return [
        t
        for (_, before), (t, clock) in pairwise(looks)
        if clock != before and case.start <= t <= case.end
    ]


def _apart(case: Case, long: Interval) -> tuple[float, float] | None:
    """Return by which part a long share exceeds the mean of its short ones, measured and as
    predicted from NVML's clocks.
    """
    inside = [
        i
        for i in case.short
        if long.start <= i.start and i.end <= long.end and "hmma_tensor_util" in i.values
    ]
    shares = [i.values["hmma_tensor_util"] for i in inside]
    if (
        len(inside) < READINGS
        or not sum(shares)
        or any(not case.clocks_between(i.start - NET_S, i.end - NET_S) for i in inside)
    ):
        return None
    clocks = [_mean_of_shares_time(case, i) for i in inside]
    weighted = sum(s * c for s, c in zip(shares, clocks, strict=True)) / sum(clocks)
    return long.values.get("hmma_tensor_util", 0.0) / mean(shares) - 1, weighted / mean(shares) - 1


def best(rows: Sequence[dict[str, float | None]]) -> list[tuple[str, float]]:
    """Return the candidates by their largest error in any row, best first, without those that lack
    a row.
    """
    names = [name for name in rows[0] if all(row.get(name) is not None for row in rows)]
    return sorted(
        ((name, max(abs(row[name] or 0.0) for row in rows)) for name in names),
        key=lambda pair: pair[1],
    )
