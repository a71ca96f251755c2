"""Name the two decisions on an order: what is done, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gpudeck.language.text import Message, Value, phrase, phrase_count

_NAMED = 3
"""GPUs that a button names one by one."""


class Buttons(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold the captions of the two buttons below a proposal; empty in those of older versions."""

    accept: Message = ""
    decline: Message = ""


_OF_JOBS: dict[str, Callable[[Value], Buttons]] = {
    "cancel": lambda jobs: Buttons(
        phrase("Cancel {jobs}", jobs=jobs), phrase("Keep {jobs}", jobs=jobs)
    ),
    "hold": lambda jobs: Buttons(
        phrase("Hold {jobs}", jobs=jobs), phrase("Let {jobs} start", jobs=jobs)
    ),
    "release": lambda jobs: Buttons(
        phrase("Release {jobs}", jobs=jobs), phrase("Keep {jobs} on hold", jobs=jobs)
    ),
    "suspend": lambda jobs: Buttons(
        phrase("Suspend {jobs}", jobs=jobs), phrase("Let {jobs} run on", jobs=jobs)
    ),
    "bring back": lambda jobs: Buttons(
        phrase("Resume {jobs}", jobs=jobs), phrase("Leave {jobs} suspended", jobs=jobs)
    ),
    "retry": lambda jobs: Buttons(phrase("Run {jobs} again", jobs=jobs), phrase("Queue nothing")),
    "edit": lambda jobs: Buttons(
        phrase("Change {jobs}", jobs=jobs), phrase("Leave {jobs} unchanged", jobs=jobs)
    ),
    "priority": lambda jobs: Buttons(
        phrase("Change the priority: {jobs}", jobs=jobs),
        phrase("Keep the priority: {jobs}", jobs=jobs),
    ),
    "note": lambda jobs: Buttons(phrase("Add a note to {jobs}", jobs=jobs), phrase("Add no note")),
    "move": lambda jobs: Buttons(
        phrase("Move {job}", job=jobs), phrase("Keep the place: {jobs}", jobs=jobs)
    ),
}


def of_jobs(act: str, jobs: Sequence[int]) -> Buttons:
    """Return the decisions on jobs; `act` is a verb, or `bring back` for suspended ones."""
    named = phrase("job {job}", job=jobs[0])
    return _OF_JOBS[act](
        named if len(jobs) == 1 else phrase_count("{n} job", "{n} jobs", len(jobs))
    )


def of_gpus(labels: Sequence[str]) -> Value:
    """Return GPUs by their labels, such as `GPU 0, GPU 1`; many of them by their number."""
    return ", ".join(labels) if len(labels) <= _NAMED else phrase("{n} GPUs", n=len(labels))
