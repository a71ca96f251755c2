"""What became of a job that was active when the last daemon ended. Pure: what was found in, what to do out."""

from __future__ import annotations

import signal
from typing import Literal

import msgspec

from scheduler.executors.base import Exit, Outcome, Unstarted
from scheduler.protocol import jobs
from scheduler.protocol.jobs import Cancelled, Done, Failed, Job, Queued, Running, Starting, State
from scheduler.protocol.units import span

Verdict = State | Literal["adopt"]


def recover(
    job: Job, outcome: Outcome, alive: bool, result: msgspec.Raw, last_line: str, now: float
) -> Verdict:
    """In this order: the runner's own word, an attempt that runs on, one that never ran anything, and else it is lost.

    A job whose start was committed but not who runs it was never released: it waits again.
    """
    state = job.state
    if not isinstance(state, Starting | Running):
        return state
    if isinstance(outcome, Exit):
        return ended(state, outcome, result, last_line)
    if isinstance(state, Starting):
        return Queued()
    if alive:
        return "adopt"
    return (
        Queued()
        if isinstance(outcome, Unstarted) and not state.stopping
        else lost(state, now, outcome.why)
    )


def lost(state: Running, now: float, why: str) -> State:
    """The attempt is gone and left no word. Where the job was to be ended anyway, it is."""
    if state.stopping:
        return Cancelled(now, state.at, state.devices)
    return jobs.Lost(state.at, now, why, state.devices)


def ended(state: Starting | Running, found: Exit, result: msgspec.Raw, last_line: str) -> State:
    """The state after the runner's word. `last_line` of the output is quoted where the job failed."""
    if isinstance(state, Running) and state.stopping:
        return Cancelled(found.ended, found.started, state.devices)
    if found.code == 0 and not found.over:
        return Done(found.started, found.ended, state.devices, result)
    return Failed(
        found.started, found.ended, _reason(found, last_line), found.code, state.devices, result
    )


def _reason(found: Exit, last_line: str) -> str:
    if found.over:
        return f"ran longer than its limit of {span(found.over)}" + (
            f": {last_line}" if last_line else ""
        )
    if found.code is None:
        return found.error
    if found.code < 0:
        name = (
            signal.Signals(-found.code).name
            if -found.code in set(signal.Signals)
            else f"signal {-found.code}"
        )
        return f"killed by {name}" + (
            " (often the kernel, out of memory)" if name == "SIGKILL" else ""
        )
    return f"exit code {found.code}" + (f": {last_line}" if last_line else "")
