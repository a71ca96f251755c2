"""Facts to text. A model's text is shown only if every number, unit and name in it is in the facts; else the template's is.

What wrote the text is always named: `template` or `model NAME`. A refused text is never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from assistant import phrases
from assistant.facts import Fact
from assistant.template import template
from assistant.verify import Refused, fill, last_end, verify

ATTEMPTS = 3
"""Texts a model may try; each begins again at the same saved state, with another seed."""

LONGEST = 400
"""Characters of a sentence; a model that goes on and on has lost its way."""

_REQUIRED = ("reason", "verdict", "backend", "tflops")

SYSTEM = (
    "You report on the devices and jobs of this computer. Write short plain sentences. Use only the facts below. "
    "For every value write its slot, such as {gpu0.temp}, never a number of your own."
)


class Author(Protocol):
    """A model that writes (see `assistant.engine`)."""

    name: str

    def begin(self, system: str, user: str) -> None:
        """Take in the prompt and keep the state after it."""
        ...

    def attempt(self, number: int) -> Iterator[str]:
        """Go back to the kept state and write a text, piece by piece; every number gives another one. Raises Cancelled, ValueError."""
        ...


class Written(NamedTuple):
    text: str
    writer: str
    """`template` or `model NAME`."""


def write(
    facts: Sequence[Fact], question: str | None, author: Author | None = None, waiting: Callable[[str], None] = lambda reason: None
) -> Written:
    """A brief of `facts`, or the answer to `question` (Markdown), by the model where there is one and its text holds.

    Raises Cancelled where the author was told to stop.
    """
    if author is None:
        return Written(template(facts, question), "template")
    try:
        return Written(_by_model(facts, question, author, waiting), f"model {author.name}")
    except Refused as e:
        return by_template(facts, question, f"the text of the model {author.name} was refused: {e}")


def by_template(facts: Sequence[Fact], question: str | None, reason: str) -> Written:
    """The template's text, saying why it is not the model's."""
    return Written(f"{template(facts, question)}\n\nWritten from the template: {phrases.escaped(reason, 400)}", "template")


def _by_model(facts: Sequence[Fact], question: str | None, author: Author, waiting: Callable[[str], None]) -> str:
    required = required_facts(facts) if question is None else []
    waiting(f"the model {author.name} reads the facts")
    author.begin(SYSTEM, request(facts, question))
    refusal = Refused("it was never written")
    for number in range(ATTEMPTS):
        waiting(f"the model {author.name} writes")
        try:
            return _checked(author.attempt(number), facts, required)
        except Refused as e:
            refusal = e
        except ValueError as e:  # the model computes no numbers: another seed does not help
            raise Refused(str(e)) from e
    raise refusal


def _checked(pieces: Iterator[str], facts: Sequence[Fact], required: Sequence[str]) -> str:
    """The text, its slots filled. Raises Refused at the first sentence that does not hold: no time is lost on the rest."""
    text, checked = "", 0
    for piece in pieces:
        text += piece
        if (end := last_end(text)) > checked:
            if text[:end].strip():
                verify(fill(text[:end], facts), facts)
            checked = end
        elif len(text) - checked > LONGEST:
            raise Refused(f"a sentence of it is longer than {LONGEST} characters")
    filled = fill(text, facts).strip()
    verify(filled, facts, required)
    return filled


def required_facts(facts: Sequence[Fact]) -> list[str]:
    """What a brief must mention: what failed or waits and why, what a job's Result says, and of jobs without one how they stand."""
    known = {fact.name for fact in facts if fact.subject.startswith("job") and fact.value is not None}
    measured = {name.removesuffix(".verdict") for name in known if name.endswith(".verdict")}
    return [
        fact.name
        for fact in facts
        if fact.name in known
        and (fact.name.rpartition(".")[2] in _REQUIRED or (fact.name.endswith(".state") and fact.subject not in measured))
    ]


def request(facts: Sequence[Fact], question: str | None) -> str:
    """The user's turn of the prompt: every fact with its slot, then what is wanted."""
    lines = [f"{{{fact.name}}} = {fact.text}" for fact in facts]
    return "\n".join(["Facts:", *lines, question.strip() if question else "Write a brief of what happened."])
