"""What is said beside an answer: who wrote it and how fast, where the model is, from where to
where a curve went."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from app.assistant.message_tree import Curve, Message
from app.format.values import device_label, duration, plural, significant
from assistant.library.describe import name_of
from assistant.tools.proposal import Decision, Proposal
from scheduler.protocol.snapshot import Busy, Snapshot

if TYPE_CHECKING:
    from app.assistant.conversation import Conversation

_ASK = (
    "Ask what happened on your GPUs, or have a brief of the last ten minutes written.\n"
    "Every number in an answer comes from what was measured; its sources can be opened below it."
)


def told(message: Message) -> str:
    """written by model tiny · 84 tokens in 2.1 s on cpu · 12:03 · answer device. What is last is
    cut off first."""
    parts = [f"written by {message.writer}"] if message.writer else []
    if message.tokens and message.seconds > 0:
        where = f" on {message.device}" if message.device else ""
        parts.append(f"{plural(message.tokens, 'token')} in {duration(message.seconds)}{where}")
    if message.at:
        parts.append(
            time.strftime(
                "%H:%M" if time.time() - message.at < 43200 else "%Y-%m-%d %H:%M",
                time.localtime(message.at),
            )
        )
    if message.tool:
        parts.append(message.tool)
    return " · ".join(parts)


def pace(conversation: Conversation, snapshot: Snapshot | None) -> str:
    """How fast it writes, and where."""
    rate = conversation.rate
    where = whereabouts(snapshot)
    return where if rate is None else f"about {significant(rate)} tok/s · {where}"


def whereabouts(snapshot: Snapshot | None) -> str:
    """Who writes, on what, and what becomes of it when a job comes."""
    if snapshot is None:
        return "the daemon does not answer yet"
    settings = snapshot.settings
    if not settings.model:
        return "templates write; no model is in use"
    leased = [device_label(state.device) for state in snapshot.devices if state.leased]
    if leased:
        return (
            f"the assistant has {', '.join(leased)} by lease; a job that needs it takes it back at"
            " once"
        )
    if settings.model_device == "cuda":
        busy = [state.use.reason for state in snapshot.devices if isinstance(state.use, Busy)]
        return (
            f"the GPU is busy ({busy[0]})"
            if busy and len(busy) == len(snapshot.devices)
            else "holds no GPU; leased when it is asked"
        )
    return f"{name_of(settings.model)} on the CPU; holds no GPU"


def opening(snapshot: Snapshot | None) -> str:
    """What an empty conversation says."""
    model = snapshot.settings.model if snapshot is not None else ""
    writes = (
        f"{name_of(model)} writes what it can, a template the rest; each answer says which."
        if model
        else (
            "No model is in use (Models, Ctrl+M): the answers are written from templates, and"
            " say so."
        )
    )
    return f"{_ASK}\n{writes}"


def summary_of(curve: Curve) -> str:
    """33 to 66 °C."""
    known = [v for v in curve.values if v is not None]
    low, high = min(known), max(known)
    words = significant(low) if low == high else f"{significant(low)} to {significant(high)}"
    return f"{words} {curve.unit}".strip()


def stretch_of(curve: Curve) -> str:
    """12:03:05 to 12:13:05."""
    first, last = (
        time.strftime("%H:%M:%S", time.localtime(at)) for at in (curve.times[0], curve.times[-1])
    )
    return f"{first} to {last}"


class Choice(NamedTuple):
    """One of the answers."""

    title: str
    help: str
    given: str
    """What is said once it was given."""


ANSWERS: dict[Decision, Choice] = {
    "once": Choice("Allow once", "Do it now, this time", "Allowed once."),
    "session": Choice(
        "Allow for this session",
        "Do it now; until this window is closed, do the like at once where it is asked for in plain"
        " words",
        "Allowed, and the like of it until this window is closed.",
    ),
    "never": Choice(
        "Never",
        "Do not do it, and never propose it again (Settings, Never proposed, takes that back)",
        "Refused, for good.",
    ),
}


def standing(proposal: Proposal, decision: str, now: float) -> str:
    """What became of it; or that nothing is done yet."""
    if decision in ANSWERS:
        return next(choice.given for how, choice in ANSWERS.items() if how == decision)
    if proposal.expires <= now:
        return "This proposal has expired, and nothing was done. Ask again."
    return " ".join(filter(None, (proposal.note, "Nothing is done before you allow it.")))


def said(proposal: Proposal, how: Decision) -> str:
    """The answer, as your words in the conversation."""
    return f"{ANSWERS[how].title}: {proposal.title}"
