"""Write the texts beside messages: writers, speeds, sources, and the answers to a proposal."""

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
    "Ask what happened on your GPUs, or for a brief of the last ten minutes.\n"
    "Every number in an answer was measured; its sources are listed below it."
)


def writer_text(message: Message) -> str:
    """Return a line such as "written by model tiny · 84 tokens in 2.1 s on cpu · 12:03"."""
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
    """Return how fast the model writes, and where."""
    rate = conversation.rate
    where = _model_text(snapshot)
    return where if rate is None else f"about {significant(rate)} tok/s · {where}"


def _model_text(snapshot: Snapshot | None) -> str:
    """Return which model writes, and on which device."""
    if snapshot is None:
        return "the daemon does not answer yet"
    settings = snapshot.settings
    if not settings.model:
        return "no model is in use; templates write the answers"
    leased = [device_label(state.device) for state in snapshot.devices if state.leased]
    if leased:
        return f"the assistant uses {', '.join(leased)} until a job needs it"
    if settings.model_device == "cuda":
        busy = [state.use.reason for state in snapshot.devices if isinstance(state.use, Busy)]
        return (
            f"the GPU is busy ({busy[0]})"
            if busy and len(busy) == len(snapshot.devices)
            else "uses a GPU while it answers"
        )
    return f"{name_of(settings.model)} on the CPU"


def empty_text(snapshot: Snapshot | None) -> str:
    """Return the text of an empty conversation."""
    model = snapshot.settings.model if snapshot is not None else ""
    writes = (
        f"{name_of(model)} writes the answers, or else templates; each answer says which."
        if model
        else "No model is in use, so templates write the answers. Choose a model with Ctrl+M."
    )
    return f"{_ASK}\n{writes}"


def curve_range(curve: Curve) -> str:
    """Return the lowest and the highest value, such as "33 to 66 °C"."""
    known = [v for v in curve.values if v is not None]
    low, high = min(known), max(known)
    words = significant(low) if low == high else f"{significant(low)} to {significant(high)}"
    return f"{words} {curve.unit}".strip()


def curve_time(curve: Curve) -> str:
    """Return the time of a curve, such as "12:03:05 to 12:13:05"."""
    first, last = curve_ends(curve)
    return f"{first} to {last}"


def curve_ends(curve: Curve) -> tuple[str, str]:
    """Return the times of the first and the last reading."""
    first, last = (
        time.strftime("%H:%M:%S", time.localtime(at)) for at in (curve.times[0], curve.times[-1])
    )
    return first, last


class ProposalAnswer(NamedTuple):
    """Describe a decision that the user can make."""

    title: str
    help: str
    result: str
    """The text that is shown after the decision."""


DISMISSED = "cancelled"
"""The decision on a proposal that was closed without doing anything."""

ANSWERS: dict[Decision, ProposalAnswer] = {
    "once": ProposalAnswer("Allow once", "Do it now", "Allowed once."),
    "session": ProposalAnswer(
        "Allow for this session",
        "Do it now, and do the same at once when you ask for it plainly, until the window closes",
        "Allowed until this window is closed.",
    ),
    "never": ProposalAnswer(
        "Block for good",
        "Do not do it, and never propose it again. To undo this, see Settings, Blocked actions",
        "Blocked for good.",
    ),
}


def standing(proposal: Proposal, decision: str, now: float) -> str:
    """Return what became of a proposal, or that nothing was done yet."""
    if decision == DISMISSED:
        return "Cancelled. Nothing was done."
    if decision in ANSWERS:
        return next(answer.result for name, answer in ANSWERS.items() if name == decision)
    if proposal.expires <= now:
        return "This proposal has expired. Nothing was done. Ask again."
    return " ".join(filter(None, (proposal.note, "Nothing is done until you allow it.")))


def decision_text(proposal: Proposal, decision: Decision) -> str:
    """Return the decision as a message of the user."""
    return f"{ANSWERS[decision].title}: {proposal.title}"
