"""Name the two decisions on an order: what is done, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gpudeck.language.text import Message, Value, phrase, phrase_count


class Buttons(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold the captions of the two buttons below a proposal; empty in those of older versions."""

    accept: Message = ""
    decline: Message = ""


_OF_JOBS: dict[str, Callable[[int, Value], Buttons]] = {
    "cancel": lambda n, job: Buttons(
        phrase_count("Cancel job {job}", "Cancel {n} jobs", n, job=job),
        phrase_count("Keep job {job}", "Keep {n} jobs", n, job=job),
    ),
    "hold": lambda n, job: Buttons(
        phrase_count("Hold job {job}", "Hold {n} jobs", n, job=job),
        phrase_count("Let job {job} start", "Let {n} jobs start", n, job=job),
    ),
    "release": lambda n, job: Buttons(
        phrase_count("Release job {job}", "Release {n} jobs", n, job=job),
        phrase_count("Keep job {job} on hold", "Keep {n} jobs on hold", n, job=job),
    ),
    "suspend": lambda n, job: Buttons(
        phrase_count("Suspend job {job}", "Suspend {n} jobs", n, job=job),
        phrase_count("Let job {job} run on", "Let {n} jobs run on", n, job=job),
    ),
    "bring back": lambda n, job: Buttons(
        phrase_count("Resume job {job}", "Resume {n} jobs", n, job=job),
        phrase_count("Leave job {job} suspended", "Leave {n} jobs suspended", n, job=job),
    ),
    "retry": lambda n, job: Buttons(
        phrase_count("Run job {job} again", "Run {n} jobs again", n, job=job),
        phrase("Queue nothing"),
    ),
    "edit": lambda n, job: Buttons(
        phrase_count("Change job {job}", "Change {n} jobs", n, job=job),
        phrase_count("Leave job {job} unchanged", "Leave {n} jobs unchanged", n, job=job),
    ),
    "priority": lambda n, job: Buttons(
        phrase_count("Change the priority of job {job}", "Change {n} priorities", n, job=job),
        phrase_count("Keep the priority of job {job}", "Keep {n} priorities", n, job=job),
    ),
    "note": lambda n, job: Buttons(
        phrase_count("Add the note to job {job}", "Add the note to {n} jobs", n, job=job),
        phrase("Add no note"),
    ),
    "move": lambda n, job: Buttons(
        phrase("Move job {job}", job=job), phrase("Keep the place of job {job}", job=job)
    ),
}


def of_jobs(act: str, jobs: Sequence[int]) -> Buttons:
    """Return the decisions on jobs; `act` is a verb, or `bring back` for suspended ones."""
    return _OF_JOBS[act](len(jobs), jobs[0])


def of_gpus(labels: Sequence[str]) -> Value:
    """Return GPUs by their labels, such as `GPU 0, GPU 1`; many of them by their number."""
    return ", ".join(labels) if len(labels) <= _NAMED else phrase("{n} GPUs", n=len(labels))


_NAMED = 3
"""GPUs that a button names one by one."""
