"""Write the texts beside messages: writers, speeds, sources, and the answers to a proposal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from gpudeck.app.assistant.message_tree import Curve, Message
from gpudeck.app.format.values import device_label, duration, significant
from gpudeck.app.language.texts import tr, tr_count, tr_noop, tr_text
from gpudeck.assistant.library.describe import name_of
from gpudeck.assistant.tools.proposal import Decision, Proposal
from gpudeck.extras import missing_of
from gpudeck.language.numbers import capitalized
from gpudeck.scheduler.protocol.snapshot import Busy, Snapshot

if TYPE_CHECKING:
    from gpudeck.app.assistant.conversation import Conversation

_ASK = tr_noop(
    "Ask what happened on your GPUs, or for a brief of the last ten minutes.\n"
    "Every number in an answer was measured; its sources are listed below it."
)


def writer_text(message: Message, model_in_use: bool) -> str:
    """Return a line such as "written by model tiny · 84 tokens in 2.1 s on cpu · 12:03".

    Where no model is in use, the line below the question says so for all answers of templates.
    """
    told = model_in_use or message.writer != "template"
    parts = [written_by(message.writer)] if message.writer and told else []
    if message.tokens and message.seconds > 0:
        parts.append(_speed(message))
    if message.at:
        parts.append(
            time.strftime(
                "%H:%M" if time.time() - message.at < 43200 else "%Y-%m-%d %H:%M",
                time.localtime(message.at),
            )
        )
    if message.tool:
        parts.append(tr_text(message.tool))
    return " · ".join(parts)


def written_by(writer: str) -> str:
    """Return who wrote a text: "template" or "model NAME"."""
    kind, _, name = writer.partition(" ")
    if kind == "model" and name:
        return tr("written by model {name}", name=name)
    return tr("written without a model") if writer == "template" else writer


def _speed(message: Message) -> str:
    text = tr_count(
        "{n} token in {time}",
        "{n} tokens in {time}",
        message.tokens,
        time=duration(message.seconds),
    )
    device = message.device
    return tr("{tokens} on {device}", tokens=text, device=device) if device else text


def pace(conversation: Conversation, snapshot: Snapshot | None) -> str:
    """Return how fast the model writes, and where."""
    rate = conversation.rate
    where = _model_text(snapshot)
    return capitalized(
        where if rate is None else tr("about {rate} tok/s", rate=significant(rate)) + f" · {where}"
    )


def _model_text(snapshot: Snapshot | None) -> str:
    """Return which model writes, and on which device."""
    if snapshot is None:
        return tr("the daemon does not answer yet")
    settings = snapshot.settings
    if not settings.model:
        return tr("answers are fixed sentences; no model is in use")
    leased = [device_label(state.device) for state in snapshot.devices if state.leased]
    if leased:
        return tr("the assistant uses {devices} until a job needs it", devices=", ".join(leased))
    if settings.model_device == "cuda":
        busy = [state.use.reason for state in snapshot.devices if isinstance(state.use, Busy)]
        return (
            tr("the GPU is busy ({why})", why=tr_text(busy[0]))
            if busy and len(busy) == len(snapshot.devices)
            else tr("uses a GPU while it answers")
        )
    return tr("{model} on the CPU", model=name_of(settings.model))


def empty_text(snapshot: Snapshot | None) -> str:
    """Return the text of an empty conversation."""
    if missing := missing_of("assistant", "compute"):
        return tr_text(missing.text)
    model = snapshot.settings.model if snapshot is not None else ""
    writes = (
        tr(
            "{model} writes the answers, or else templates; each answer says which.",
            model=name_of(model),
        )
        if model
        else tr("No model is in use: answers are fixed sentences. Choose a model with Ctrl+M.")
    )
    return f"{tr(_ASK)}\n{writes}"


def curve_range(curve: Curve) -> str:
    """Return the lowest and the highest value, such as "33 to 66 °C"."""
    known = [v for v in curve.values if v is not None]
    low, high = min(known), max(known)
    words = significant(low)
    if low != high:
        words = tr("{first} to {last}", first=words, last=significant(high))
    return f"{words} {curve.unit}".strip()


def curve_time(curve: Curve) -> str:
    """Return the time of a curve, such as "12:03:05 to 12:13:05"."""
    first, last = curve_ends(curve)
    return tr("{first} to {last}", first=first, last=last)


def curve_ends(curve: Curve) -> tuple[str, str]:
    """Return the times of the first and the last reading."""
    first, last = (
        time.strftime("%H:%M:%S", time.localtime(at)) for at in (curve.times[0], curve.times[-1])
    )
    return first, last


class ProposalAnswer(NamedTuple):
    """Describe a decision that the user can make, in English."""

    title: str
    help: str
    result: str
    """The text that is shown after the decision."""


DISMISSED = "cancelled"
"""The decision on a proposal that was closed without doing anything."""

ANSWERS: dict[Decision, ProposalAnswer] = {
    "once": ProposalAnswer(tr_noop("Allow once"), tr_noop("Do it now"), tr_noop("Allowed once.")),
    "session": ProposalAnswer(
        tr_noop("Allow for this session"),
        tr_noop(
            "Do it now, and do the same at once when you ask for it plainly, until the window "
            "closes"
        ),
        tr_noop("Allowed until this window is closed."),
    ),
    "never": ProposalAnswer(
        tr_noop("Block for good"),
        tr_noop(
            "Do not do it, and never propose it again. To undo this, see Settings, Blocked actions"
        ),
        tr_noop("Blocked for good."),
    ),
    "no": ProposalAnswer(
        tr_noop("Refuse"), tr_noop("Tell the program that it is not done"), tr_noop("Refused.")
    ),
}


def standing(proposal: Proposal, decision: str, now: float) -> str:
    """Return what became of a proposal, or that nothing was done yet."""
    if decision == DISMISSED:
        return tr("Cancelled. Nothing was done.")
    if decision in ANSWERS:
        return next(tr(answer.result) for name, answer in ANSWERS.items() if name == decision)
    if proposal.expires <= now:
        return tr("This proposal has expired. Nothing was done. Ask again.")
    return " ".join(filter(None, (proposal.note, tr("Nothing is done until you allow it."))))


def decision_text(proposal: Proposal, decision: Decision) -> str:
    """Return the decision as a message of the user."""
    return tr("{caption}: {value}", caption=tr(ANSWERS[decision].title), value=proposal.title)
