"""What a job's timeline says of each thing that happened to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.executors.base import Exit, Unstarted
from scheduler.executors.base import Lost as Gone
from scheduler.protocol.devices import Device
from scheduler.protocol.jobs import Cancelled, Done, Event, Failed, Job, Lost, State
from scheduler.protocol.snapshot import label
from scheduler.protocol.units import amount


def started(job: Job, held: Sequence[str], devices: Sequence[Device], now: float) -> Event:
    """An attempt, and the devices it got."""
    where = job.spec.where or " and ".join(label(d) for d in devices if d.id in held)
    room = f", {amount(job.spec.memory)} reserved" if job.spec.memory else ""
    return Event(
        now, "started", f"attempt {job.tries + 1}" + (f" on {where}{room}" if where else "")
    )


def ended(state: State) -> Event:
    """How the job ended."""
    assert isinstance(state, Done | Failed | Cancelled | Lost)
    return Event(state.at, _word(state), state.reason if isinstance(state, Failed | Lost) else "")


def log(outcome: Exit | Unstarted | Gone) -> tuple[Event, ...]:
    """What is to be said of the log of an attempt: that it was too large, and nothing could be dropped."""
    if not isinstance(outcome, Exit) or not outcome.uncapped:
        return ()
    return (
        Event(
            outcome.ended,
            "log over its limit",
            f"all of it was kept, as nothing could be dropped: {outcome.uncapped}",
        ),
    )


def _word(state: State) -> str:
    return type(state).__name__.lower()
