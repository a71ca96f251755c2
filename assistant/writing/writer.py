"""Turn facts into text.

A model's text is shown only if every number, unit and name in it is in the facts; otherwise the
template's text is shown. The writer is always named: `template` or `model NAME`. A refused text is
never shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpudeck.assistant.facts import Fact, phrases
from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.writing.author import Author, P
from gpudeck.assistant.writing.rain import LONGEST, Rain, SearchLimits, Verdict
from gpudeck.assistant.writing.template import template
from gpudeck.assistant.writing.verify import Refused, fill, last_end, verify
from gpudeck.language.text import Message, phrase

_QUESTION = (
    "Does the text sections only what the facts sections, clearly and without repeating "
    "itself?\n(A) {0}\n(B) {1}\nAnswer with A or B."
)

_OF_SPAN = re.compile(
    r"\b(?:mean|average|highest|lowest|peak|at (?:most|least)|never (?:above|below))\b",
    re.IGNORECASE,
)
"""Words about values over a span of time."""

_REQUIRED = ("reason", "verdict", "backend", "tflops")

SYSTEM = (
    "You report on the devices and jobs of this computer. Write short plain sentences. Use "
    "only the facts below. "
    "For every value write its slot, such as {gpu0.temp}, never a number of your own."
)


class Written(NamedTuple):
    """Hold a text, and who wrote it."""

    text: str
    writer: str
    """`template` or `model NAME`."""
    titled: str = ""
    """The text below a title that names the time; empty where it is the same."""


def write(
    facts: Sequence[Fact],
    author: Author[P] | None = None,
    waiting: Callable[[Message], None] = lambda reason: None,
    limits: SearchLimits | None = None,
) -> Written:
    """Return a brief of `facts` as Markdown.

    The model writes if there is one and its text holds.

    Args:
        facts: The facts.
        author: The model; None for the template.
        waiting: Called with the reason for a wait.
        limits: The limits of the search for a text that holds.

    Raises:
        Cancelled: The author was told to stop.
    """
    if author is None:
        return _templated(facts)
    try:
        text = _by_model(facts, author, waiting, limits)
    except Refused as e:
        return by_template(facts, f"the text of the model {author.name} was refused: {e}")
    return Written(_with_notes(text, facts), f"model {author.name}")


def by_template(facts: Sequence[Fact], reason: str) -> Written:
    """Return the template's text, with the reason why it is not the model's."""
    return _templated(facts, f"Written from the template: {phrases.escaped(reason, 400)}")


def _templated(facts: Sequence[Fact], *notes: str) -> Written:
    timeless = [fact for fact in facts if fact.name != "span.when"]
    text, titled = (
        "\n\n".join((_with_notes(template(told), told), *notes)) for told in (facts, timeless)
    )
    return Written(text, "template", titled)


def _with_notes(text: str, facts: Sequence[Fact]) -> str:
    """Return the text, with how far its figures may be off if their source says so."""
    told = _with_span(text, facts)
    errors = [fact.error for fact in facts if fact.error and fact.value and fact.said in text]
    if not errors:
        return told
    return (
        f"{told}\n\nTFLOP/s from hardware counters are ±{max(errors):.0f} % for FP16 and BF16; FP8 "
        "would be twice and TF32 half of it."
    )


def _with_span(text: str, facts: Sequence[Fact]) -> str:
    """Return the text, with the span of its mean and extreme values if it does not name it."""
    when = FactIndex(facts).text("span.when")
    if when is None or when.lower() in text.lower() or not _OF_SPAN.search(text):
        return text
    return f"{text}\n\nMean, highest and lowest values are for the time {when}."


def _by_model(
    facts: Sequence[Fact],
    author: Author[P],
    waiting: Callable[[Message], None],
    limits: SearchLimits | None,
) -> str:
    waiting(phrase("the model {name} is reading the facts", name=author.name))
    begin = author.begin(SYSTEM, request(facts))
    waiting(phrase("the model {name} is writing", name=author.name))
    required = required_facts(facts)
    place = Rain(author, lambda place: judged(place, facts, required, author), limits).text(begin)
    # Whoever judged its parts, a text is shown only after it was checked as a whole.
    verify(place.text, facts, required)
    return fill(place.text, facts).strip()


def judged(place: P, facts: Sequence[Fact], required: Iterable[Fact], author: Author[P]) -> Verdict:
    """Return the value of the text up to a place.

    It is -1 if a check refuses it; otherwise a model that is large enough judges its own text.
    """
    try:
        if len(place.text) - last_end(place.text.rstrip()) > LONGEST:
            raise Refused(f"a sentence of it is longer than {LONGEST} characters")
        if place.text.strip() or place.ended:
            verify(place.text, facts, required if place.ended else ())
    except Refused as e:
        return Verdict(-1.0, str(e))
    return Verdict(_own_opinion(place, author))


def _own_opinion(place: P, author: Author[P]) -> float:
    """Return the mean opinion of two questions with the answers in either order.

    As in the paper's self-evaluation, this cancels a preference for the first answer.
    """
    asked = [
        author.preference(place, _QUESTION.format(*order), (" A", " B"))
        for order in (("yes", "no"), ("no", "yes"))
    ]
    if asked[0] is None or asked[1] is None:
        return 1.0
    return (asked[0] - asked[1]) / 2


def required_facts(facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts that a brief must mention.

    They are failures and waits with their reasons, the Results of jobs, and the states of jobs
    without a Result.
    """
    known = {
        fact.name for fact in facts if fact.subject.startswith("job") and fact.value is not None
    }
    measured = {name.removesuffix(".verdict") for name in known if name.endswith(".verdict")}
    return [
        fact
        for fact in facts
        if fact.name in known
        and (
            fact.name.rpartition(".")[2] in _REQUIRED
            or (fact.name.endswith(".state") and fact.subject not in measured)
        )
    ]


def request(facts: Sequence[Fact]) -> str:
    """Return the user's part of the prompt: every fact with its slot, then the task."""
    lines = [f"{{{fact.name}}} = {fact.text}" for fact in facts]
    return "\n".join(["Facts:", *lines, "Write a brief of what happened."])
