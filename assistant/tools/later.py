"""Name the commands for what the assistant does not do later: delayed orders, and news of jobs."""

from __future__ import annotations

import getpass
import re
from collections.abc import Sequence

from gpudeck.assistant.query.find import MAX_JOBS, named_jobs
from gpudeck.assistant.query.request import Order, Target
from gpudeck.assistant.query.users import user_of
from gpudeck.assistant.tools.how_to import command_of
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.words import Words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.destinations import EXAMPLES
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job

_MAIL = re.compile(r"e-?mails?|mails?|courriels?|correos?(?: electr.nicos?)?")
"""Words for mail, of which the kinds of destinations have one."""
_PHONE = ("phone", "ntfy")
"""The name and the kind of a destination where none is asked for."""
_PLAIN = re.compile(r"[\w.-]+")


def delayed_command(verb: str, order: Order | None, context: ToolContext) -> str:
    """Return the command line of an order that is not carried out later, or an empty text.

    What the order does not tell is `…`.

    Args:
        verb: The kind of order, in the words of the encoder.
        order: The order without its time, if it is understood.
        context: Where its jobs are looked up.
    """
    if order is None:
        return f"{name} …" if (name := command_of(verb)) else ""
    name = command_of(order.verb)
    numbers = " ".join(str(job.id) for job in _found(context.daemon, order.jobs))
    group = order.group if _PLAIN.fullmatch(order.group) else ""
    if order.exclude or order.user or order.states:
        return f"{name} …" if name else ""
    match order:
        case Order(verb="limit", number=int(limit)) if group:
            return f"gpudeck groups {group} --limit {limit}"
        case Order(verb="pause" | "resume", group=""):
            return name
        case Order(verb="pause" | "resume" | "cancel") if group:
            return f"{name} --group {group}"
        case Order(verb="cancel" | "hold" | "release" | "retry") if numbers and not order.options:
            return f"{name} {numbers}"
        case Order(verb="drain" | "undrain") if order.devices:
            return " ".join((name, *map(str, order.devices)))
    return " ".join(filter(None, (name, numbers, "…"))) if name else ""


def news(about: Sequence[Target], to: str, context: ToolContext) -> str:
    """Say that the assistant tells of nothing later, and which commands have a job's end told.

    Args:
        about: The jobs that are named.
        to: What was said of where to tell it, such as `mail`.
        context: Where the jobs are looked up.
    """
    words, (name, kind) = context.words, _destination(to)
    active = [job for job in _found(context.daemon, about) if job.ended is None]
    if not about:
        me, running = getpass.getuser(), context.daemon.jobs(MAX_JOBS, active=True)
        active = [job for job in running if job.started is not None and user_of(job) == me]
    job = str(active[0].id) if len(active) == 1 else "JOB"
    return _texts(words, name, kind, job)


def _texts(words: Words, name: str, kind: str, job: str) -> str:
    return " ".join((
        words.text("I answer when I am asked, and cannot tell you of something later."),
        words.text(
            "In a terminal, `gpudeck notify add {name} {kind}` adds a destination that is told of "
            "failed jobs and of alerts.",
            name=name,
            kind=kind,
        ),
        words.text(
            "`gpudeck edit {job} --notify {name}` has it told of the end of that job, too; "
            "`gpudeck wait {job}` waits until it has ended and says how.",
            job=job,
            name=name,
        ),
        words.text("Nothing was changed."),
    ))  # fmt: skip


def _destination(to: str) -> tuple[str, str]:
    """Return the name and the kind of a destination that is asked for."""
    said = to.casefold()
    kind = "mail" if _MAIL.fullmatch(said) else said
    return (kind, kind) if kind in EXAMPLES else _PHONE


def _found(daemon: Client, targets: Sequence[Target]) -> tuple[Job, ...]:
    """Return the jobs that are named; none if one of them does not exist."""
    try:
        return named_jobs(daemon, targets, several=True)
    except UserError:
        return ()
