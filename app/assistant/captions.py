"""Write the texts beside messages: who read and wrote them, and the answers to a proposal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpudeck.app.assistant.message_tree import Curve, Message
from gpudeck.app.format.values import device_label, duration, significant
from gpudeck.app.language.texts import tr, tr_count, tr_noop, tr_text
from gpudeck.app.widgets.citations import CitedFact, unescaped
from gpudeck.assistant.language.origins import reading, writer_of, written_by
from gpudeck.assistant.library.describe import Model, name_of
from gpudeck.assistant.serve.control_messages import Served
from gpudeck.assistant.tools.proposal import Decision, Proposal
from gpudeck.extras import missing_of
from gpudeck.language.numbers import capitalized
from gpudeck.scheduler.protocol.snapshot import Busy, Snapshot

if TYPE_CHECKING:
    from gpudeck.app.assistant.conversation import Conversation

_ASK = tr_noop(
    "Ask what happened on your GPUs, or for a brief of the last ten minutes.\n"
    "Every number in an answer was measured; “Details” below it lists the sources."
)


def footer_text(message: Message, model_in_use: bool) -> str:
    """Return a line such as "Written by the model tiny · 12:03".

    Where no model is in use, the line below the question says so for all answers of templates.
    """
    told = message.writer and (model_in_use or message.writer != "template")
    parts = [tr_text(written_by(message.writer))] if told else []
    if message.at:
        parts.append(
            time.strftime(
                "%H:%M" if time.time() - message.at < 43200 else "%Y-%m-%d %H:%M",
                time.localtime(message.at),
            )
        )
    return " · ".join(parts)


def detail_rows(message: Message) -> tuple[tuple[str, str], ...]:
    """Return captions and values: how the request was read, and who wrote the answer."""
    read = reading(message.tool, message.reader) if message.tool else ()
    rows = [(tr_text(caption), tr_text(value)) for caption, value in read]
    if message.writer:
        told = [tr_text(writer_of(message.writer))]
        told += [_speed(message)] if message.tokens and message.seconds > 0 else []
        rows.append((tr("Written by"), ", ".join(told)))
    return tuple(rows)


class SourceRows(NamedTuple):
    """Hold the facts of an answer as rows of a table, below the source that they share."""

    rows: tuple[tuple[str, str], ...]
    """A source is a caption without a value, and a fact is a value without a caption."""
    places: dict[int, int]
    """The row of each fact."""


def source_rows(facts: Sequence[CitedFact]) -> SourceRows:
    """Return the sources of an answer, each followed by what it says; each fact once."""
    of_source: dict[str, dict[str, list[int]]] = {}
    for i, (text, _, source) in enumerate(facts):
        of_source.setdefault(source, {}).setdefault(unescaped(text), []).append(i)
    rows: list[tuple[str, str]] = []
    places: dict[int, int] = {}
    for source, texts in of_source.items():
        rows += [(source, "")] if source else []
        for text, same in texts.items():
            places |= dict.fromkeys(same, len(rows))
            rows.append(("", text))
    return SourceRows(tuple(rows), places)


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
        return tr("no language model is in use; templates write the answers")
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


def empty_text(writers: str) -> str:
    """Return the text of an empty conversation, with what `writers_text` says."""
    if missing := missing_of("assistant", "compute"):
        return tr_text(missing.text)
    return f"{tr(_ASK)}\n{writers}"


def writers_text(used: str, own: Model | None, served: Sequence[Served]) -> str:
    """Return who writes the answers, and what the language model does.

    Args:
        used: The path of the assistant's model; empty if it has none.
        own: Its description; None while that is not known.
        served: The models that are served now; one of them reads where the own one cannot.
    """
    name, templates = name_of(used), tr("Templates write the answers.")
    if own is not None and own.able:
        does = tr("{model} writes briefs and reports, and reads unclear requests.", model=name)
    elif ready := next((model for model in served if model.phase == "ready"), None):
        does = tr("{model}, which is served, reads unclear requests.", model=ready.name)
    elif not used:
        does = tr("No language model is in use. To choose one, press Ctrl+M.")
    elif own is None:
        does = tr("{model} is in use.", model=name)
    elif own.problem:
        does = tr("{model} cannot be used: {why}.", model=name, why=tr_text(own.problem))
    else:
        does = tr("{model} is too small to read requests or to write.", model=name)
    return f"{templates} {does}"


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


class StandingAnswer(NamedTuple):
    """Describe a decision that goes on to count, in English."""

    title: str
    help: str


DISMISSED = "cancelled"
"""The decision on a proposal that was closed without doing anything."""

STANDING: dict[Decision, StandingAnswer] = {
    "session": StandingAnswer(
        tr_noop("Allow for this session"),
        tr_noop(
            "Do it now, and do the same at once when you ask for it plainly, until the window "
            "closes"
        ),
    ),
    "never": StandingAnswer(
        tr_noop("Block for good"),
        tr_noop(
            "Do not do it, and never propose it again. To undo this, see Settings, Blocked actions"
        ),
    ),
}
_RESULTS = {
    DISMISSED: tr_noop("Declined. Nothing was done."),
    "no": tr_noop("Declined. Nothing was done."),
    "once": tr_noop("Allowed once."),
    "session": tr_noop("Allowed until this window is closed."),
    "never": tr_noop("Blocked for good."),
}
"""What is shown below a proposal after each decision."""


def standing(proposal: Proposal, decision: str, now: float) -> str:
    """Return what became of a proposal, or that nothing was done yet."""
    if decision in _RESULTS:
        return tr(_RESULTS[decision])
    if proposal.expires <= now:
        return tr("This proposal has expired. Nothing was done. Ask again.")
    return " ".join(filter(None, (proposal.note, tr("Nothing is done until you allow it."))))


def decision_text(proposal: Proposal, decision: Decision) -> str:
    """Return the decision as a message of the user."""
    if (standing := STANDING.get(decision)) is not None:
        return tr("{caption}: {value}", caption=tr(standing.title), value=proposal.title)
    buttons = proposal.buttons
    return tr_text(buttons.accept if decision == "once" else buttons.decline)
