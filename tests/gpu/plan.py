"""What there is to run on a machine with GPUs, and which of it begins now. Pure: no process is
started here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

Room = Literal["machine", "gpu", "half", "light"]
"""What a step needs: the whole machine, as any other would disturb what it measures; a GPU of
its own; or room on one that others use, too, as it shows what is right and not how fast it
is."""
PARTS = {"light": 1, "half": 2, "gpu": 4}
"""Of a GPU that has four."""


class Step(NamedTuple):
    """One thing to run. `argv` is what follows `python`; {out} in it is the step's own folder,
    {work} that of all steps."""

    name: str
    shows: str
    """What it is for, with the number of the issue that asks for it."""
    argv: tuple[str, ...]
    seconds: float
    """How long it should take, set-up included. It is stopped after half as long again."""
    room: Room = "light"
    needs: tuple[str, ...] = ()
    """Packages beside those that the program itself cannot do without."""
    after: tuple[str, ...] = ()
    """Steps that must have passed."""
    makes: str = ""
    """A file in {work} that later steps read, too large to be kept: it is made again where it is
    gone."""
    gpus: int = 1
    """How many the machine must have."""
    figure: bool = False
    """It makes a figure or a picture and judges nothing: `--tests` leaves it out."""

    @property
    def limit(self) -> float:
        """Seconds after which it is stopped."""
        return 1.5 * self.seconds


State = Literal["passed", "failed", "cut off"]
DONE: tuple[State, ...] = ("passed", "failed")


class Running(NamedTuple):
    """A step on its GPU, and when it should end."""

    step: Step
    gpu: int
    ends: float


def remaining(
    steps: Sequence[Step], states: Mapping[str, State], gone: Collection[str] = ()
) -> list[Step]:
    """What is still to do: what was never tried first, then what was cut off. Files in `gone`
    are made again where a step awaits them."""
    todo = [step for step in steps if states.get(step.name) not in DONE]
    awaited = {name for step in todo for name in step.after}
    again = [
        step
        for step in steps
        if states.get(step.name) == "passed" and step.makes in gone and step.name in awaited
    ]
    tried = [step for step in todo if step.name in states]
    return [step for step in steps if step in again or (step in todo and step not in tried)] + tried


def held_up(step: Step, states: Mapping[str, State]) -> str:
    """By which step before it, and what became of that; empty where nothing holds it up."""
    return next(
        (
            f"{name} {states.get(name, 'has not run')}"
            for name in step.after
            if states.get(name) != "passed"
        ),
        "",
    )


def next_start(
    todo: Sequence[Step], running: Sequence[Running], gpus: int, now: float, end: float
) -> tuple[Step, int] | None:
    """The step that begins now, and on which GPU; None where all must wait. None begins that
    could not end before `end`.

    In the order of `todo`, but while one waits for an empty machine, those after it may begin if
    they end before it could.
    """
    empty = max((now, *(r.ends for r in running)))
    waits = False
    for step in todo:
        if now + step.seconds > end or (waits and now + step.seconds > empty):
            continue
        if step.room != "machine":
            if (gpu := _place(step, running, gpus)) is not None:
                return step, gpu
        elif not running:
            return step, 0
        else:
            waits = waits or empty + step.seconds <= end
    return None


def _place(step: Step, running: Sequence[Running], gpus: int) -> int | None:
    """The fullest GPU that has room, so that whole ones stay free for those that need them."""
    if any(r.step.room == "machine" for r in running):
        return None
    used = [sum(PARTS[r.step.room] for r in running if r.gpu == gpu) for gpu in range(gpus)]
    able = [gpu for gpu in range(gpus) if used[gpu] + PARTS[step.room] <= PARTS["gpu"]]
    return max(able, key=lambda gpu: (used[gpu], -gpu), default=None)
