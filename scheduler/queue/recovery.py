"""What became of a job that was active when the last daemon ended. Pure: what was found in, what to do out."""

from __future__ import annotations

import signal
from typing import Literal

import msgspec

from scheduler.executors.local import Exit
from scheduler.jobs import Cancelled, Done, Failed, Job, Lost, Queued, Running, Starting, State
from scheduler.units import span


def recover(
    job: Job, found: Exit | None, boot: str, alive: bool, passed: bool, result: msgspec.Raw, last_line: str, now: float
) -> State | Literal["adopt"]:
    """In this order: the runner's own word, a reboot, a runner that lives, one that never `passed` its gate, and else it is lost.

    A job whose start was committed but whose process was not can never have passed its gate: it waits again.
    """
    state = job.state
    if not isinstance(state, Starting | Running):
        return state
    if found is not None:
        return ended(state, found, result, last_line)
    if isinstance(state, Starting):
        return Queued()
    if state.boot != boot:
        return lost(state, now, "the machine was restarted while it ran")
    if alive:
        return "adopt"
    return lost(state, now) if passed or state.stopping else Queued()


def lost(state: Running, now: float, why: str = "its runner was killed before it could say how the job ended") -> State:
    """The runner is gone and left no word. Where the job was to be ended anyway, it is."""
    if state.stopping:
        return Cancelled(now, state.at, state.devices)
    return Lost(state.at, now, why, state.devices)


def ended(state: Starting | Running, found: Exit, result: msgspec.Raw, last_line: str) -> State:
    """The state after the runner's word. `last_line` of the output is quoted where the job failed."""
    if isinstance(state, Running) and state.stopping:
        return Cancelled(found.ended, found.started, state.devices)
    if found.code == 0 and not found.over:
        return Done(found.started, found.ended, state.devices, result)
    return Failed(found.started, found.ended, _reason(found, last_line), found.code, state.devices, result)


def _reason(found: Exit, last_line: str) -> str:
    if found.over:
        return f"ran longer than its limit of {span(found.over)}" + (f": {last_line}" if last_line else "")
    if found.code is None:
        return found.error
    if found.code < 0:
        name = signal.Signals(-found.code).name if -found.code in set(signal.Signals) else f"signal {-found.code}"
        return f"killed by {name}" + (" (often the kernel, out of memory)" if name == "SIGKILL" else "")
    return f"exit code {found.code}" + (f": {last_line}" if last_line else "")
