"""Plan what changes jobs: cancel, hold, release, move, note, and the priority."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.find import MAX_JOBS, named_jobs
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools import job_options
from gpudeck.assistant.tools.buttons import of_jobs
from gpudeck.assistant.tools.changes import settle
from gpudeck.assistant.tools.suspensions import bring_back, can_leave, suspend_jobs
from gpudeck.assistant.tools.targets import device_labels, queued_jobs, targets, title, titles
from gpudeck.assistant.tools.tool import Environment, PlannedAction, Planner, ToolContext
from gpudeck.language.numbers import capitalized
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.executors.remote_runner import TERM_GRACE_S
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Starting, suspension_of
from gpudeck.scheduler.protocol.units import numbered


def cancel(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to cancel jobs, with what happens to each and to the jobs that wait for them."""
    words, jobs = context.words, targets(context, order)
    if len(jobs) == 1 and not jobs[0].active:
        raise UserError(
            words.text(
                "{job} has ended already: {state}",
                job=title(jobs[0]),
                state=words.text(jobs[0].status),
            )
        )
    active = [job for job in jobs if job.active]
    if not active:
        raise UserError(words.text("all of them have ended already: {jobs}", jobs=titles(jobs)))
    if len(active) == 1 and isinstance(active[0].state, Running) and active[0].state.stopping:
        raise UserError(words.text("{job} is being cancelled already", job=title(active[0])))
    numbers, known = tuple(job.id for job in active), context.daemon.jobs(MAX_JOBS, active=True)
    others = _dependents(known, active)

    def carry_out(daemon: Client, env: Environment) -> str:
        done = daemon.cancel_many(numbers)
        parts = []
        if done.ending:
            parts.append(words.text("Stopping {jobs}.", jobs=numbered(done.ending)))
        if done.cancelled:
            taken = numbered(done.cancelled)
            parts.append(words.text("Removed from the queue: {jobs}.", jobs=taken))
        return " ".join(parts) or words.text("All of them had ended already.")

    effect = [*(_end_of(context, job) for job in active),
              _end_of_dependents(context, known, active, others)]  # fmt: skip
    command = f"gpudeck cancel {' '.join(map(str, numbers))}"
    return PlannedAction(
        words.text("Cancel {jobs}", jobs=titles(active)),
        " ".join(filter(None, effect)),
        frozenset(map(_basis, (*active, *others))),
        carry_out,
        ((words.text("Command"), command),),
        Order("cancel", jobs=numbers),
        numbers,
        tuple(job.id for job in others),
        buttons=of_jobs("cancel", numbers),
    )


def _end_of(context: ToolContext, job: Job) -> str:
    """Say what happens to one job."""
    words = context.words
    if isinstance(job.state, Queued) and job.spec.hold:
        return words.text(
            "{job} is on hold; it will be removed from the queue and will not run.",
            job=capitalized(title(job)),
        )
    if isinstance(job.state, Queued):
        return words.text(
            "{job} has been waiting since {time}; it will be removed from the queue and will not "
            "run.",
            job=capitalized(title(job)),
            time=phrases.clock(job.submitted),
        )
    assert isinstance(job.state, Starting | Running)
    labels = device_labels(context.daemon)
    held = ", ".join(labels.get(device, device) for device in job.state.devices)
    place = job.spec.where or held
    where = words.text(" on {devices}", devices=place) if place else ""
    progress = job.state.progress if isinstance(job.state, Running) else None
    done = ""
    if progress is not None and progress.total > 0:
        share = f"{100 * progress.done / progress.total:.0f} %"
        done = " " + words.text("It is {share} complete.", share=share)
    return (
        words.text(
            "{job} has been running since {time}{where}; all of its processes will be sent "
            "SIGTERM, then SIGKILL after {seconds} s.",
            job=capitalized(title(job)),
            time=phrases.clock(job.state.at),
            where=where,
            seconds=f"{TERM_GRACE_S:.0f}",
        )
        + done
    )


def _dependents(active: Sequence[Job], jobs: Sequence[Job]) -> list[Job]:
    """Return the active jobs that are cancelled with these, as they wait for their success."""
    ended, found = {job.id for job in jobs}, list[Job]()
    for other in sorted(active, key=lambda other: other.id):
        if other.id not in ended and not ended.isdisjoint(other.spec.after):
            ended.add(other.id)
            found.append(other)
    return found


def _end_of_dependents(
    context: ToolContext, active: Sequence[Job], ending: Sequence[Job], others: list[Job]
) -> str:
    """Say which jobs are cancelled with those that end, and which wait for them no longer."""
    words, ended = context.words, {job.id for job in (*ending, *others)}
    parts: list[str] = []
    if others:
        parts.append(
            words.text(
                "These jobs wait for their success and are cancelled, too: {jobs}.",
                jobs=titles(others),
            )
        )
    freed = [
        job for job in active if job.id not in ended and not ended.isdisjoint(job.spec.after_any)
    ]
    if freed:
        parts.append(
            words.text(
                "These jobs wait for their end only, and no longer have to: {jobs}.",
                jobs=titles(sorted(freed, key=lambda job: job.id)),
            )
        )
    return " ".join(parts)


def _basis(job: Job) -> tuple[object, ...]:
    """Return what the effect of cancelling a job depends on."""
    if isinstance(job.state, Starting | Running):
        return (job.id, job.state.attempt)
    return (job.id, job.status)


def _waiting(context: ToolContext, order: Order) -> list[Job]:
    """Return the jobs of an order that is for jobs that wait. Raises UserError."""
    jobs = targets(context, order)
    for job in jobs:
        if not isinstance(job.state, Queued):
            raise UserError(
                context.words.text(
                    "{job} is {state}: only jobs that wait can be changed so",
                    job=title(job),
                    state=context.words.text(job.status),
                )
            )
    return jobs


def hold(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to keep jobs from starting, until a time if one is said, or to release them.

    Running jobs on GPUs are suspended and brought back instead, as `gpudeck resume` does.
    """
    words, held = context.words, order.verb == "hold"
    named, until = targets(context, order), order.options.get("until", "")
    if held and all(map(can_leave, named)):
        return suspend_jobs(context, named, until)
    if until:  # a job that waits starts by itself then
        return edit(context, Order("edit", jobs=tuple(job.id for job in named),
                                   options={"begin": until}))  # fmt: skip
    if not held and all(suspension_of(job) is not None for job in named):
        return bring_back(context, named)
    without = next((job for job in named if isinstance(job.state, Running)), None)
    if held and len(named) == 1 and without is not None:
        raise UserError(words.text(
            "{job} does not use a GPU of this machine, so it cannot be suspended or held. It can "
            "be cancelled, and run again later: {command}",
            job=title(without), command=f"gpudeck retry {without.id}",
        ))  # fmt: skip
    found = _waiting(context, order)
    jobs = [job for job in found if job.spec.hold != held]
    if not jobs:
        known = titles(found)
        raise UserError(
            words.text("{jobs}: held already", jobs=known)
            if held
            else words.text("{jobs}: not held", jobs=known)
        )

    def change(daemon: Client, job: Job) -> None:
        daemon.hold(job.id, held)

    return _each(
        context,
        order.verb,
        jobs,
        words.text("Hold {jobs}" if held else "Release {jobs}", jobs=titles(jobs)),
        words.text(
            "{jobs} will not start before a release." if held else "{jobs} may start at once.",
            jobs=capitalized(titles(jobs)),
        ),
        change,
        words.text("Held: {jobs}." if held else "Released: {jobs}.", jobs=_numbers(jobs)),
        f"gpudeck {'pause' if held else 'resume'} {_plain_numbers(jobs)}",
    )


def priority(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to change the priority of jobs that wait."""
    words, level = context.words, order.number
    if level is None:
        raise UserError(words.text("name the priority, a whole number"))
    jobs = _waiting(context, order)

    def change(daemon: Client, job: Job) -> None:
        daemon.edit(job.id, priority=level)

    return _each(
        context,
        "priority",
        jobs,
        words.text("Priority {level} for {jobs}", level=level, jobs=titles(jobs)),
        words.text("{jobs}: a higher priority is served earlier.", jobs=capitalized(titles(jobs))),
        change,
        words.text("Priority {level}: {jobs}.", level=level, jobs=_numbers(jobs)),
        f"gpudeck edit {jobs[0].id} --priority {level}",
        level,
    )


def edit(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to change the options of jobs that wait."""
    words, jobs = context.words, _waiting(context, order)
    order = settle(context, order, jobs)
    options = job_options.read(context, order)
    fixed = [option for option in job_options.KNOWN if option in options and
             not job_options.KNOWN[option].editable]  # fmt: skip
    if fixed or not options:
        raise UserError(
            words.text("{option} of a job cannot be changed once it is submitted", option=fixed[0])
            if fixed
            else words.text("say what to change, for example: the time limit of job 7 to 4h")
        )
    changes = job_options.fields(options)
    wanted = msgspec.structs.replace(jobs[0].spec, **changes)
    shown = ", ".join(": ".join(one) for one in job_options.captions(context, wanted, options))

    def carry_out(daemon: Client, env: Environment) -> str:
        for job in jobs:
            daemon.edit(job.id, **changes)
        return words.text("Changed: {jobs}.", jobs=_numbers(jobs))

    flags = " ".join(job_options.as_flags(order, options))
    return PlannedAction(
        words.text("Change {jobs}", jobs=titles(jobs)),
        f"{shown}.",
        (tuple(job.id for job in jobs), tuple(sorted(order.options.items()))),
        carry_out,
        ((words.text("Command"), f"gpudeck edit {jobs[0].id} {flags}"),),
        Order("edit", jobs=tuple(job.id for job in jobs), options=order.options),
        tuple(job.id for job in jobs),
        buttons=of_jobs("edit", [job.id for job in jobs]),
    )


def note(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to add a note to jobs in any state."""
    words, text = context.words, phrases.plain(order.text, 1000)
    if not text:
        raise UserError(words.text('put the note in quotes, for example: note job 7 "lr 0.1"'))
    jobs = list(named_jobs(context.daemon, order.jobs))
    if not jobs:
        raise UserError(words.text("name the job, for example by its number"))

    def change(daemon: Client, job: Job) -> None:
        daemon.note(job.id, text)

    return _each(
        context,
        "note",
        jobs,
        words.text("Add a note to {jobs}", jobs=titles(jobs)),
        words.text("The note reads: {text}", text=text),
        change,
        words.text("Noted: {jobs}.", jobs=_numbers(jobs)),
        f"gpudeck note {jobs[0].id} ...",
        text,
    )


def _each(
    context: ToolContext,
    verb: str,
    jobs: list[Job],
    heading: str,
    effect: str,
    change: Callable[[Client, Job], None],
    done: str,
    command: str,
    *basis: object,
) -> PlannedAction:
    """Return an action that changes each of some jobs."""

    def carry_out(daemon: Client, env: Environment) -> str:
        for job in jobs:
            change(daemon, job)
        return done

    numbers = tuple(job.id for job in jobs)
    again = Order(verb, jobs=numbers)
    if basis:
        again = Order(
            verb,
            jobs=numbers,
            number=basis[0] if isinstance(basis[0], int) else None,
            text=basis[0] if isinstance(basis[0], str) else "",
        )
    details = ((context.words.text("Command"), command),)
    return PlannedAction(
        heading,
        effect,
        (numbers, verb, *basis),
        carry_out,
        details,
        again,
        numbers,
        buttons=of_jobs(verb, numbers),
    )


def _numbers(jobs: Sequence[Job]) -> str:
    return numbered([job.id for job in jobs])


def _plain_numbers(jobs: Sequence[Job]) -> str:
    return " ".join(str(job.id) for job in jobs)


def move(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to give a job another place among those that wait."""
    words = context.words
    (job, *more) = _waiting(context, order)
    if more:
        raise UserError(words.text("move one job at a time"))
    queue = queued_jobs(context.daemon)
    others = [other for other in queue if other.id != job.id]
    if not others:
        raise UserError(words.text("{job} is the only job that waits", job=title(job)))
    neighbour, after = _neighbour(context, order, others)
    index = next(i for i, other in enumerate(others) if other.id == neighbour.id) + after
    if [other.id for other in queue].index(job.id) == index:
        raise UserError(words.text("{job} has that place already", job=title(job)))
    side = "after" if after else "before"

    def carry_out(daemon: Client, env: Environment) -> str:
        if after:
            daemon.move(job.id, after=neighbour.id)
        else:
            daemon.move(job.id, before=neighbour.id)
        return words.text(
            "Job {job} is now after job {other}."
            if after
            else "Job {job} is now before job {other}.",
            job=job.id,
            other=neighbour.id,
        )

    return PlannedAction(
        words.text("Move {job}", job=title(job)),
        _moving(context, job, neighbour, (index, len(queue)), after=after),
        (job.id, neighbour.id, after),
        carry_out,
        ((words.text("Command"), f"gpudeck move {job.id} --{side} {neighbour.id}"),),
        Order("move", jobs=(job.id,), place=side, beside=neighbour.id),
        (job.id,),
        buttons=of_jobs("move", (job.id,)),
    )


def _moving(
    context: ToolContext, job: Job, neighbour: Job, place: tuple[int, int], *, after: bool
) -> str:
    """Say where a job will be: how many are ahead of it, and how many wait (`place`)."""
    words, (index, waiting) = context.words, place
    ahead = words.count("{n} job will be ahead of it", "{n} jobs will be ahead of it", index)
    effect = words.text(
        "{job} waits; it will be moved right after {other}. {ahead}, of {n} that wait."
        if after
        else "{job} waits; it will be moved right before {other}. {ahead}, of {n} that wait.",
        job=capitalized(title(job)),
        other=title(neighbour),
        ahead=ahead,
        n=waiting,
    )
    if neighbour.spec.priority != job.spec.priority:
        effect += " " + words.text(
            "Its priority changes from {old} to {new}.",
            old=job.spec.priority,
            new=neighbour.spec.priority,
        )
    return effect


def _neighbour(context: ToolContext, order: Order, others: Sequence[Job]) -> tuple[Job, bool]:
    """Return the job next to the new place, and whether the place is after it."""
    if order.place in ("", "first", "last"):
        return (others[-1], True) if order.place == "last" else (others[0], False)
    if order.beside is None:
        raise UserError(context.words.text("name the job before or after which it should run"))
    (other,) = named_jobs(context.daemon, (order.beside,))
    if other.id not in {known.id for known in others}:
        raise UserError(
            context.words.text("{job} does not wait, or is the job itself", job=title(other))
        )
    return other, order.place == "after"


PLANNERS: dict[str, Planner] = {
    "cancel": cancel,
    "hold": hold,
    "release": hold,
    "priority": priority,
    "edit": edit,
    "note": note,
    "move": move,
}
