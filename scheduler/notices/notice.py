"""What people are told: a title and a text for them, and fields for programs."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from gpudeck.language.text import Listed, Message, Moment, Span, Text, phrase, phrase_count
from gpudeck.scheduler.attempts import LOG_FILE
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.destinations import NoticeEvent
from gpudeck.scheduler.protocol.jobs import Done, Ended, Failed, Job, Lost, unquoted_reason
from gpudeck.scheduler.protocol.progress import printable
from gpudeck.scheduler.protocol.snapshot import Alert

MOST_LINES = 10
"""The notices that one message names which stands for many."""


class Action(msgspec.Struct, frozen=True):
    """Offer something to do about a notice: on a desktop, a button of it."""

    label: Text
    command: tuple[str, ...] = ()
    """What is done, as words after `gpudeck`."""
    file: str = ""
    """What is opened instead."""


class Notice(msgspec.Struct, frozen=True):
    """Describe something that happened."""

    event: NoticeEvent
    title: Message
    text: Message
    fields: dict[str, Any] = {}
    """What a webhook gets besides title and text."""
    urgent: bool = False
    """Something failed."""
    actions: tuple[Action, ...] = ()


def job_notice(job: Job) -> Notice:
    """Return what is told of a job that has ended."""
    state = job.state
    assert isinstance(state, Ended)
    failed, host = isinstance(state, Failed | Lost), socket.gethostname()
    name = printable(job.spec.name)
    match state:
        case Done():
            title = phrase("Job {job} succeeded: {name}", job=job.id, name=name)
        case Failed():
            title = phrase("Job {job} failed: {name}", job=job.id, name=name)
        case Lost():
            title = phrase("Job {job} was lost: {name}", job=job.id, name=name)
        case _:
            title = phrase("Job {job} was cancelled: {name}", job=job.id, name=name)
    started = state.started
    if started is None:
        text = phrase("It had not started, on {machine}.", machine=host)
    else:
        seconds = state.at - started
        unit = next((u for u in (3600, 60) if seconds >= 3 * u), 1)
        ran = Span(round(seconds / unit) * unit)
        text = phrase("It ran for {time} on {machine}.", time=ran, machine=host)
    # what a job printed may be a secret
    reason = "" if isinstance(state, Done) else unquoted_reason(state)
    if reason:
        text = phrase("{text} Reason: {reason}", text=text, reason=reason)
    fields = {
        "event": job.status, "job": job.id, "name": job.spec.name, "host": host,
        "devices": list(state.devices), "reason": str(reason),
        "started": None if started is None else utc(started), "ended": utc(state.at),
    }  # fmt: skip
    actions = [] if started is None else [_open_log(job.id)]
    if failed:
        actions.append(Action(phrase("Retry"), ("retry", str(job.id))))
    return Notice("fail" if failed else "end", title, text, fields, failed, tuple(actions))


def _open_log(job: int) -> Action:
    return Action(phrase("Open log"), file=str(paths.job_folder(job) / LOG_FILE))


def alert_notice(alert: Alert) -> Notice:
    """Return what is told of an alert that was raised or cleared."""
    host, raised = socket.gethostname(), alert.cleared is None
    cleared = None if alert.cleared is None else utc(alert.cleared)
    title = (
        phrase("Alert on {machine}", machine=host)
        if raised
        else phrase("Alert on {machine} is over", machine=host)
    )
    fields = {
        "text": f"{host}: {alert.text}" if raised else f"{host}: over: {alert.text}",
        "event": "raised" if raised else "cleared", "id": alert.id, "rule": alert.rule,
        "device": alert.device, "job": alert.job, "process": alert.process, "host": host,
        "since": utc(alert.since), "raised": utc(alert.raised), "cleared": cleared,
    }  # fmt: skip
    actions: tuple[Action, ...] = ()
    if raised and alert.job is not None:
        cancel = Action(phrase("Cancel the job"), ("cancel", str(alert.job)))
        actions = (_open_log(alert.job), cancel)
    if raised and alert.process is not None:
        suspend = ("suspend", "--pid", str(alert.process))
        actions = (Action(phrase("Suspend"), suspend),)
    return Notice("alert", title, alert.text, fields, raised, actions)


def booking_notice(number: str, booking: Booking, names: Sequence[str]) -> Notice:
    """Return what is told of a booking that begins; `names` are those of its GPUs."""
    host = socket.gethostname()
    title = phrase("Booking {number} begins on {machine}", number=number, machine=host)
    gpus = Listed(tuple(names))
    until = Moment(booking.end, "day")
    text = phrase(
        "{gpus}: kept for {holder} until {time}.", gpus=gpus, holder=booking.holder, time=until
    )
    fields = {
        "event": "booking", "number": int(number), "gpus": list(booking.gpus),
        "holder": booking.holder, "host": host, "begin": utc(booking.begin),
        "end": utc(booking.end),
    }  # fmt: skip
    return Notice("booking", title, text, fields)


def trial_notice() -> Notice:
    """Return what is told where a person tries a destination."""
    host = socket.gethostname()
    text = phrase("GPU Deck on {machine} can reach you here.", machine=host)
    return Notice("end", phrase("A test"), text, {"event": "test", "host": host})


def combined(notices: Sequence[Notice]) -> Notice:
    """Return one notice that stands for many."""
    first = notices[0]
    if len(notices) == 1:
        return first
    title = phrase_count("{n} message", "{n} messages", len(notices))
    lines: list[Text | str] = [n.title if n.event != "alert" else n.text for n in notices]
    if (more := len(lines) - MOST_LINES) > 0:
        lines[MOST_LINES:] = [phrase("and {n} more", n=more)]
    fields = {
        "event": "several", "count": len(notices), "host": socket.gethostname(),
    }  # fmt: skip
    text = Text("{lines}", (("lines", Listed(tuple(lines), ",", "\n")),))
    return Notice(first.event, title, text, fields, any(n.urgent for n in notices))


def utc(at: float) -> str:
    """Return a moment as programs read it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
