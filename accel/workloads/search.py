"""Search the fastest configuration of a kernel, and have the winner judged.

Run `python -P -m gpudeck.accel.workloads.search --task=softmax ...`. What was measured is kept: a
job that was ended goes on where it was when the same search is queued again.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from gpudeck.accel.result import NOT_TIMED, Check, Figure, Timing
from gpudeck.accel.workloads.harness import Failure, Outcome, serve
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.progress import Progress
from gpudeck.language.text import Text, join_texts, phrase

if TYPE_CHECKING:
    from gpudeck.accel.runtime.capability import ComputeDevice
    from gpudeck.accel.search.api import Found
    from gpudeck.accel.search.journal import Entry
    from gpudeck.accel.search.verdict import Race, Verdict


def work(values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    """Search, judge, and install the winner if that was requested."""
    import torch

    from gpudeck.accel.search.advice import Advisor
    from gpudeck.accel.search.api import optimize_kernel
    from gpudeck.accel.search.contest import Effort
    from gpudeck.accel.search.engine import Budget
    from gpudeck.accel.search.judge import COMPILED

    endpoint = values.text("endpoint")
    advisor = Advisor(endpoint, values.text("model")) if endpoint else None
    minutes, seconds = values.number("minutes"), values.number("seconds")
    progress.plan(60 * minutes + seconds)
    progress.stage("searching")
    spent = 0.0

    def report(entry: Entry) -> None:
        nonlocal spent
        spent += entry.seconds
        progress.advance(min(spent, 60 * minutes), 0.0)

    try:
        found = optimize_kernel(
            values.text("task"),
            sizes={"rows": values.integer("rows"), "columns": values.integer("columns")},
            dtype=getattr(torch, values.text("dtype")),
            budget=Budget(minutes, values.number("kwh") or math.inf),
            effort=Effort(seconds=seconds),
            compiled=COMPILED if values.flag("compile") else (),
            advisor=advisor,
            use=values.flag("install"),
            report=report,
        )
    except BlockingIOError as e:
        raise Failure("another job searches the same kernel; wait until it has ended") from e
    except MemoryError as e:
        raise Failure(str(e)) from e
    return _outcome(found)


def _outcome(found: Found) -> Outcome:
    verdict = found.verdict
    assert verdict is not None, "the target is this machine"
    config = ", ".join(f"{name} {value}" for name, value in found.config.items())
    race = verdict.race
    flops = verdict.roofline.flops if verdict.roofline else 0.0
    return Outcome(
        config,
        _reason(found, verdict),
        _checks(verdict),
        NOT_TIMED if race is None else _timing([r.candidate for r in race.rounds]),
        flops,
        moved=verdict.roofline.moved if verdict.roofline else 0.0,
        figures=() if race is None else (speed_of(race),),
        failures=tuple(refusal.text for refusal in verdict.refusals),
    )


def speed_of(race: Race) -> Figure:
    """Return how fast the winner is beside the fastest alternative."""
    return Figure(race.baseline, race.net, "×")


def _reason(found: Found, verdict: Verdict) -> Text:
    said = [verdict.text]
    if found.installed is not None:
        said.append(phrase("installed as {name}", name=found.installed.name))
    if found.advice is not None:
        said.append(found.advice.text)
    return join_texts(said)


def _checks(verdict: Verdict) -> tuple[Check, ...]:
    if not verdict.trials:
        return ()
    worst = max(verdict.trials, key=lambda trial: trial.error / trial.bound)
    name = phrase("worst error of {n} hidden trials", n=len(verdict.trials))
    return (Check(name, worst.error, worst.bound),)


def _timing(microseconds: list[float]) -> Timing:
    from gpudeck.accel.runtime.timing import timing_of

    return timing_of([us / 1e3 for us in microseconds])


if __name__ == "__main__":
    sys.exit(serve("search", work))
