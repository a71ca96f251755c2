"""Resolve the jobs that an order is for, by number, name, state and group, first."""

from __future__ import annotations

from gpudeck.assistant.facts.phrases import plain
from gpudeck.assistant.query.find import MAX_JOBS, list_jobs, named_jobs
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.query.table import HELD, VERBS
from gpudeck.assistant.query.users import user_of
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, suspension_of, turn
from gpudeck.scheduler.protocol.search import Search, outcome
from gpudeck.scheduler.protocol.snapshot import label

MAX_TOGETHER = 50
"""Jobs that one proposal may be for."""


def targets(context: ToolContext, order: Order) -> list[Job]:
    """Return the jobs of an order, each once: those that are named, or all that it describes.

    Raises:
        NotFound: A job that is named, or a group, does not exist.
        UserError: No job is named or fits, there are too many, or one that is named is not as the
            order describes it.
    """
    words = context.words
    excluded = {job.id for job in named_jobs(context.daemon, order.exclude, several=True)}
    found = [job for job in _meant(context, order) if job.id not in excluded]
    _refuse_others(context, order, found)
    if not found:
        raise UserError(words.text("no job matches, so there is nothing to do"))
    if len(found) > MAX_TOGETHER:
        raise UserError(
            words.text(
                "{n} jobs are too many for one order, which takes up to {most}",
                n=len(found),
                most=MAX_TOGETHER,
            )
        )
    return sorted(found, key=lambda job: job.id) if len(order.jobs) != 1 else found


def _meant(context: ToolContext, order: Order) -> list[Job]:
    """Return the jobs that an order names or describes, or the only one that it can be for.

    Raises:
        NotFound: A job that is named, or a group, does not exist.
        UserError: Nothing says which one of several jobs is meant.
    """
    daemon, words = context.daemon, context.words
    if order.jobs:
        found = list(named_jobs(daemon, order.jobs, several=bool(order.states)))
        if order.states and (len(found) > 1 or not _numbered(order)):
            found = [job for job in found if _in_states(job, order)]
        if order.user and not _numbered(order):
            found = [job for job in found if user_of(job) == order.user]
        return found
    if order.states or order.group or order.user or order.devices:
        found = _described(daemon, order)
        if order.group and not found:
            raise NotFound(
                words.text("no such job is in the group {group}", group=plain(order.group, 40))
            )
        is_clear = bool(order.states or order.group)  # "my job" is one of them
    else:
        found = [job for job in _active(daemon) if _may_be_meant(job, order.verb)]
        is_clear = False
    if not is_clear and len(found) != 1:
        known = words.text("name the job, for example by its number")
        listed = list_jobs(found)
        raise UserError(
            phrase("{needed}: {problem}", needed=known, problem=listed) if found else known
        )
    return found


def _described(daemon: Client, order: Order) -> list[Job]:
    states = order.states or VERBS[order.verb].states
    outcomes = tuple(dict.fromkeys("queued" if state == HELD else state for state in states))
    search = Search(outcomes=outcomes, group=order.group or None)
    found, more = daemon.find(search, MAX_TOGETHER + 1)
    if more is not None and len(found) > MAX_TOGETHER:
        return list(found)
    if order.user:
        found = tuple(job for job in found if user_of(job) == order.user)
    whole = [daemon.job(job.id) for job in found]  # lists cut long commands off
    if order.devices:
        indices = _indices(daemon)
        whole = [job for job in whole if _is_on(job, order, indices)]
    return [job for job in whole if _in_states(job, order)] if order.states else whole


def _numbered(order: Order) -> bool:
    """Return whether an order names all of its jobs by their numbers."""
    return all(isinstance(job, int) for job in order.jobs)


def _refuse_others(context: ToolContext, order: Order, jobs: list[Job]) -> None:
    """Refuse an order that says of a job whose, in which group, in which state, or on which GPU it
    is, where that is not so: another job may be meant. Raises UserError."""
    if not order.jobs:
        return  # these are chosen by what is said of them
    words, indices = context.words, _indices(context.daemon) if order.devices else {}
    for job in jobs:
        told = ""
        if order.user and user_of(job) != order.user:
            told = words.text(
                "{job} is a job of {user}, not of {other}",
                job=title(job),
                user=plain(user_of(job), 40),
                other=plain(order.user, 40),
            )
        elif order.group and job.spec.group != order.group:
            told = words.text("{job} is not in the group {group}", job=title(job),
                              group=plain(order.group, 40))  # fmt: skip
        elif order.states and not _in_states(job, order):
            told = words.text("{job} is {state}, so another one may be meant", job=title(job),
                              state=words.text(job.status))  # fmt: skip
        elif order.devices and not _is_on(job, order, indices):
            gpus = ", ".join(f"GPU {index}" for index in order.devices)
            told = words.text("{job} is not on {gpus}", job=title(job), gpus=gpus)
        if told:
            raise UserError(told)


def _indices(daemon: Client) -> dict[str, int]:
    """Return the indices of the devices by their ids."""
    return {state.device.id: state.device.index for state in daemon.snapshot().devices}


def _is_on(job: Job, order: Order, indices: dict[str, int]) -> bool:
    """Return whether a job has, or had, one of an order's GPUs."""
    devices = () if isinstance(job.state, Queued) else job.state.devices
    return bool({*order.devices} & {indices.get(device) for device in devices})


def _may_be_meant(job: Job, verb: str) -> bool:
    """Return whether a job may be what an order without a target is for."""
    if verb == "release":
        return job.spec.hold or suspension_of(job) is not None
    states = ("queued", "running") if verb == "hold" else VERBS[verb].states
    return outcome(job.state) in states and not (verb == "hold" and job.spec.hold)


def _in_states(job: Job, order: Order) -> bool:
    """Return whether a job is in one of an order's states; one on hold does not just wait."""
    if isinstance(job.state, Queued) and job.spec.hold:
        waits = order.states == ("queued",) and order.verb != "release"
        return HELD in order.states or ("queued" in order.states and not waits)
    return outcome(job.state) in order.states


def _active(daemon: Client) -> list[Job]:
    return list(daemon.jobs(MAX_JOBS, active=True))


def queued_jobs(daemon: Client) -> list[Job]:
    """Return the jobs that wait, in the order of the queue."""
    return sorted((job for job in _active(daemon) if isinstance(job.state, Queued)), key=turn)


def title(job: Job) -> str:
    """Return a job's number and name, such as `job 7 (train)`; its name is made plain text."""
    return f"job {job.id} ({plain(job.spec.name, 60)})"


def titles(jobs: list[Job]) -> str:
    """Return all of the jobs by number and name: a card hides no target."""
    return ", ".join(map(title, jobs))


def device_labels(daemon: Client) -> dict[str, str]:
    """Return the labels of the devices, such as `GPU 0`, by their ids."""
    return {state.device.id: label(state.device) for state in daemon.snapshot().devices}
