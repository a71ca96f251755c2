"""Plan what takes jobs off their GPUs and brings them back."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools.bookings import choose_gpus
from gpudeck.assistant.tools.buttons import Buttons, of_gpus, of_jobs
from gpudeck.assistant.tools.targets import targets, title, titles
from gpudeck.assistant.tools.tool import Environment, PlannedAction, Planner, ToolContext
from gpudeck.language.numbers import capitalized, duration
from gpudeck.language.rendering import render, render_moment
from gpudeck.language.text import moment, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import (
    Job,
    Running,
    held_devices,
    is_on_gpu_here,
    suspension_of,
)
from gpudeck.scheduler.protocol.snapshot import Snapshot, label
from gpudeck.scheduler.protocol.suspended import estimate_out
from gpudeck.scheduler.protocol.units import numbered, parse_begin, parse_seconds

_FREE = "2h"
"""For how long a GPU is freed where nothing is said, as the command line has it."""


def suspend(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to take running jobs off their GPUs."""
    return suspend_jobs(context, targets(context, order), order.options.get("until", ""))


def suspend_jobs(context: ToolContext, jobs: Sequence[Job], until: str = "") -> PlannedAction:
    """Plan to take these jobs off their GPUs, until a time as options have it, if one is given.

    Raises UserError for one that uses none.
    """
    words, now = context.words, time.time()
    back = parse_begin(until, now) if until else None
    for job in jobs:
        if suspension_of(job) is not None:
            raise UserError(words.text("{job} is suspended already", job=title(job)))
        if not can_leave(job):
            raise UserError(
                words.text("{job} does not use a GPU of this machine now", job=title(job))
            )
    snapshot, numbers = context.daemon.snapshot(), tuple(job.id for job in jobs)

    def carry_out(daemon: Client, env: Environment) -> str:
        with _wait_long(daemon) as patient:
            for number in numbers:
                patient.suspend_job(number, back)
        return words.text("Suspended: {jobs}.", jobs=numbered(numbers))

    command = f"gpudeck suspend {' '.join(map(str, numbers))}"
    effect = [_leaving(context, job, snapshot) for job in jobs]
    effect.append(
        words.text("What is suspended stands still and loses nothing until it is resumed.")
        if back is None
        else words.text(
            "What is suspended stands still and loses nothing. It comes back by itself at {time}.",
            time=render_moment(moment(back, now), words.language),
        )
    )
    return PlannedAction(
        words.text("Suspend {jobs}", jobs=titles(list(jobs))),
        " ".join(effect),
        (numbers, until),
        carry_out,
        ((words.text("Command"), command),),
        Order("suspend", jobs=numbers, options={"until": until} if until else {}),
        numbers,
        buttons=of_jobs("suspend", numbers),
    )


def can_leave(job: Job) -> bool:
    """Return whether a job runs on a GPU of this machine and could be taken off it."""
    return isinstance(job.state, Running) and is_on_gpu_here(job)


def _leaving(context: ToolContext, job: Job, snapshot: Snapshot) -> str:
    """Say what of a job moves, and how long that takes."""
    words = context.words
    listed = (p for s in snapshot.devices if s.reading is not None for p in s.reading.processes)
    size = sum(process.memory or 0.0 for process in listed if process.job == job.id)
    if not size:
        return words.text("{job} leaves its GPU.", job=capitalized(title(job)))
    return words.text(
        "{job} leaves its GPU in about {time}, as {size} move to the memory of this machine.",
        job=capitalized(title(job)),
        time=duration(estimate_out(size)),
        size=phrases.quantity(size, "B"),
    )


def bring_back(context: ToolContext, jobs: Sequence[Job]) -> PlannedAction:
    """Plan to bring suspended jobs back to their GPUs."""
    words, numbers = context.words, tuple(job.id for job in jobs)

    def carry_out(daemon: Client, env: Environment) -> str:
        for number in numbers:
            daemon.resume_job(number)
        return words.text("Back as soon as the GPU has room: {jobs}.", jobs=numbered(numbers))

    return PlannedAction(
        words.text("Resume {jobs}", jobs=titles(list(jobs))),
        words.text(
            "{jobs}: back on the GPU as soon as it has room, and on from the same place.",
            jobs=capitalized(titles(list(jobs))),
        ),
        numbers,
        carry_out,
        ((words.text("Command"), f"gpudeck resume {' '.join(map(str, numbers))}"),),
        Order("release", jobs=numbers),
        numbers,
        buttons=of_jobs("bring back", numbers),
    )


def free(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to suspend the jobs on GPUs, and to keep these free for a time."""
    words, now, snapshot = context.words, time.time(), context.daemon.snapshot()
    gpus = choose_gpus(context, snapshot, order)
    until = order.options.get("until")
    end = parse_begin(until, now) if until is not None else now + parse_seconds(_FREE)
    labels = tuple(map(label, gpus))
    ids, names = tuple(device.id for device in gpus), ", ".join(labels)
    held = [job for job in snapshot.jobs if can_leave(job) and set(ids) & set(held_devices(job))]

    def carry_out(daemon: Client, env: Environment) -> str:
        with _wait_long(daemon) as patient:
            made = patient.reserve(Booking(ids, time.time(), end, frees=True))
        parts = [words.text("{gpus} will be kept: booking {n}.", gpus=names, n=made.number)]
        if made.freed.left:
            parts.append(words.text("Suspended: {jobs}.", jobs=numbered(made.freed.left)))
        if made.freed.asked:
            parts.append(
                words.text(
                    "Asked to end, and queued again with their artefacts: {jobs}.",
                    jobs=numbered(made.freed.asked),
                )
            )
        for job, why in made.freed.stayed.items():
            text = phrases.plain(render(why, words.language), 300)
            parts.append(words.text("Job {job} runs on: {why}.", job=job, why=text))
        return " ".join(parts)

    until = render_moment(moment(end, now), words.language)
    effect = [words.text("{gpus} is kept free until {time}.", gpus=names, time=until)]
    effect += [_leaving(context, job, snapshot) for job in held]
    if held:
        effect.append(words.text("What is suspended comes back by itself afterwards."))
    command = f"gpudeck free {' '.join(str(device.index) for device in gpus)}"
    return PlannedAction(
        words.text("Free {gpus}", gpus=names),
        " ".join(effect),
        (ids, until, tuple(job.id for job in held)),
        carry_out,
        ((words.text("Command"), command + (f" --until '{until}'" if until else "")),),
        jobs=tuple(job.id for job in held),
        buttons=Buttons(
            phrase("Free {gpus}", gpus=of_gpus(labels)),
            phrase("Leave {gpus} as it is", gpus=of_gpus(labels)),
        ),
    )


def _wait_long(daemon: Client) -> Client:
    """Return a client that waits as long as it takes: moving memory takes seconds a gigabyte."""
    return Client(start=False, timeout=None, place=daemon.place)


PLANNERS: dict[str, Planner] = {"suspend": suspend, "free": free}
