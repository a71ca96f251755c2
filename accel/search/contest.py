"""Time a candidate beside the fastest alternative, in rounds in which each has one window.

A window is a few calls, each with fresh inputs. It begins when the judge sends the request and ends
when the reply has come, after the process has waited for the whole device. Nobody but the one whose
window it is runs meanwhile. In some windows there is a single call: what is fast only among other
calls does not compute them one by one.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from gpudeck.accel.search.candidate_protocol import Window
from gpudeck.accel.search.contender import Contender, Desk
from gpudeck.accel.search.measures import bound, error, least_rounds, median_span
from gpudeck.accel.search.tasks import Task
from gpudeck.accel.search.verdict import TIE, Denominator, Race, Refusal, Round, Span

CALLS = 8
"""The most calls of a window."""
_TRIED = 3
_SINGLE = 3
"""One of so many rounds has a single call in each window."""
_WINDOW_US = 10_000.0
"""About the longest window: of slow functions, it has fewer calls."""
_CERTAIN = 1.10
"""The timing ends early once both bounds of the speedup lie within this factor."""


class Effort(NamedTuple):
    """Tell how long is measured."""

    seconds: float = 8.0
    """The most time for the rounds."""
    rounds: int = 150
    """The most rounds."""
    trials: int = 24
    """Comparisons with the reference at hidden sizes."""


def fastest(
    contenders: Mapping[str, Contender], desk: Desk, random: torch.Generator
) -> tuple[str, dict[str, float]]:
    """Return the fastest of some alternatives, and the microseconds of a call of each."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    calls = min(_TRIED, desk.calls)
    for _ in range(2 * _TRIED):
        for name, contender in contenders.items():
            desk.refill(random, calls)
            if (seconds := _one(contender, calls)) is not None:
                found[name].append(1e6 * seconds / calls)
    medians = {name: statistics.median(times) for name, times in found.items() if times}
    return min(medians, key=medians.__getitem__), medians


def _one(contender: Contender, calls: int) -> float | None:
    contender.child.go_on()
    seconds = contender.window(Window(calls), "a timed call")
    contender.child.pause()
    return seconds


class Contest:
    """Time four processes in turn: the candidate, the alternative, its twin, and mere copies."""

    def __init__(
        self, task: Task, desk: Desk, allowed: float, random: torch.Generator, effort: Effort,
        call_us: float,
    ) -> None:  # fmt: skip
        """Prepare a contest in which a call takes about `call_us`; `allowed` is the error of
        the trials."""
        self._task, self._desk, self._allowed = task, desk, allowed
        self._random, self._effort = random, effort
        self._calls = max(2, min(desk.calls, int(_WINDOW_US / call_us)))
        self._rounds: list[Round] = []
        self._verified = 0
        self.refusals: list[Refusal] = []

    def run(
        self, runners: Mapping[str, Contender], baseline: str, others: Sequence[Denominator]
    ) -> Race | None:
        """Return the result, None if a process failed."""
        end = time.perf_counter() + self._effort.seconds
        while len(self._rounds) < self._effort.rounds and not self.refusals:
            if not self._round(runners):
                return None
            enough = len(self._rounds) >= 2 * least_rounds()
            if enough and (self._is_decided() or time.perf_counter() > end):
                break
        return self._race(baseline, tuple(others))

    def _round(self, runners: Mapping[str, Contender]) -> bool:
        single = len(self._rounds) % _SINGLE == 0
        calls = 1 if single else 2 + self._draw(self._calls - 1)
        names = list(runners)
        order = [names[i] for i in torch.randperm(len(names), generator=self._random)]
        took: dict[str, float] = {}
        for name in order:
            self._desk.refill(self._random, calls)
            seconds = _one(runners[name], calls)
            if seconds is None:
                return False
            took[name] = 1e6 * seconds / calls
            if name == "candidate" and not self._verify(calls):
                return True
        self._rounds.append(
            Round(calls, took["candidate"], took["baseline"], took["twin"], took["copies"])
        )
        return True

    def _draw(self, below: int) -> int:
        return int(torch.randint(below, (), generator=self._random))

    def _verify(self, calls: int) -> bool:
        """Compare a random call of the window with the reference; check the inputs."""
        call = self._draw(calls)
        inputs, got = self._desk.inputs(call), self._desk.result(call)
        wanted = self._task.reference(*(x.double() for x in inputs))
        self._verified += 1
        found, allowed = math.inf, self._allowed
        if bool(torch.isfinite(got).all()):
            found = error(got, wanted)
        if not found <= allowed:  # these very values may be harder than those of the trials
            honest = error(self._task.reference(*inputs), wanted)
            allowed = max(allowed, bound(honest, self._task.dtype))
        if not found <= allowed:
            shown = found if math.isfinite(found) else 1e30
            self.refusals.append(
                Refusal("inaccurate-when-timed", f"call {call + 1} of {calls}", shown, allowed)
            )
        elif not self._desk.is_unchanged(calls - 1):
            self.refusals.append(Refusal("changes-inputs", "a timed call"))
        return not self.refusals

    def _is_decided(self) -> bool:
        span = self._span(lambda r: r.baseline / r.candidate)
        return span.high < TIE or (span.low > TIE and span.high < span.low * _CERTAIN)

    def _span(self, ratio: Callable[[Round], float]) -> Span:
        logs = median_span([math.log(ratio(r)) for r in self._rounds])
        return Span(*map(_exp, (logs.estimate, logs.low, logs.high)))

    def _race(self, baseline: str, others: tuple[Denominator, ...]) -> Race | None:
        if not self._rounds or self.refusals:
            return None
        speedup = self._span(lambda r: r.baseline / r.candidate)
        twin = self._span(lambda r: r.baseline / r.twin)
        if speedup.low > TIE:
            self._check_single_calls()
        # copies at their fastest: what is subtracted must not flatter anybody
        among = [r for r in self._rounds if r.calls > 1] or self._rounds
        copies = min(r.copies for r in among)
        calls = median_span([r.candidate for r in among])
        mine, highest = calls.estimate - copies, max(r.candidate for r in among)
        theirs = statistics.median(r.baseline for r in among) - copies
        net = theirs / mine if mine > 0 and theirs > 0 else speedup.estimate
        return Race(
            baseline, others, tuple(self._rounds), speedup, twin, net, max(mine, 0.0),
            min(calls.high, highest) - copies, self._verified,
        )  # fmt: skip

    def _check_single_calls(self) -> None:
        """Refuse what saves much less time in a single call than in a call among others."""
        alone = [r.baseline - r.candidate for r in self._rounds if r.calls == 1]
        among = [r.baseline - r.candidate for r in self._rounds if r.calls > 1]
        if len(alone) < least_rounds():
            return
        saved = statistics.median(among)
        if median_span(alone).high < 0.5 * saved:
            self.refusals.append(Refusal("only-in-batches", "", statistics.median(alone), saved))


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
