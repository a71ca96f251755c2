"""Facts to text. A model's text is shown only if every number, unit and name in it is in the facts; else the template's is.

What wrote the text is always named: `template` or `model NAME`. A refused text is never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from assistant import phrases
from assistant.facts import Fact
from assistant.template import tell, template
from assistant.template.book import Book
from assistant.verify import Refused, fill, last_end, verify

ATTEMPTS = 6
"""Times a model may write: each time it goes on from the state after its last good sentence, with another seed."""

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

    def back(self, kept: int) -> int:
        """Go back to a saved state at or before `kept` characters of the text, and say where that is."""
        ...

    def attempt(self, number: int) -> Iterator[str]:
        """Write on from there, piece by piece; every number gives another text. Raises Cancelled, ValueError."""
        ...


class Written(NamedTuple):
    text: str
    writer: str
    """`template` or `model NAME`."""


Say = Callable[[Book], list[str]]
"""How the template tells what a tool found out, part by part."""


def write(
    facts: Sequence[Fact],
    question: str | None,
    author: Author | None = None,
    waiting: Callable[[str], None] = lambda reason: None,
    say: Say | None = None,
    required: Sequence[str] = (),
) -> Written:
    """A brief of `facts`, or the answer to `question` (Markdown), by the model where there is one and its text holds.

    `say`: the template's answer, where it is not to look for one by the words of the question. `required`: names of facts that an answer
    must mention. Raises Cancelled where the author was told to stop.
    """
    if author is None:
        return Written(_template(facts, question, say), "template")
    try:
        needed = required_facts(facts) if question is None else required
        return Written(_by_model(facts, question, author, waiting, needed), f"model {author.name}")
    except Refused as e:
        return by_template(facts, question, f"the text of the model {author.name} was refused: {e}", say)


def by_template(facts: Sequence[Fact], question: str | None, reason: str, say: Say | None = None) -> Written:
    """The template's text, saying why it is not the model's."""
    return Written(f"{_template(facts, question, say)}\n\nWritten from the template: {phrases.escaped(reason, 400)}", "template")


def _template(facts: Sequence[Fact], question: str | None, say: Say | None) -> str:
    return template(facts, question) if say is None else tell(facts, say)


def _by_model(facts: Sequence[Fact], question: str | None, author: Author, waiting: Callable[[str], None], required: Sequence[str]) -> str:
    waiting(f"the model {author.name} reads the facts")
    author.begin(SYSTEM, request(facts, question))
    draft, refusal, stuck = _Draft(facts), Refused("it was never written"), ""
    for number in range(ATTEMPTS):
        waiting(f"the model {author.name} writes")
        draft.rewind(author.back(len(draft.good)))
        try:
            return draft.finished(author.attempt(number), required)
        except Refused as e:
            refusal = e
        except ValueError as e:  # the model computes no numbers: another seed does not help
            raise Refused(str(e)) from e
        if draft.good == stuck:  # a second time: what was said before leads nowhere
            draft.rewind(last_end(stuck.rstrip()))
        stuck = draft.good
    raise refusal


class _Draft:
    """A text as it is written: `good` is what holds of it, whole sentences, slots unfilled."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.good = ""
        self._facts = facts

    def rewind(self, kept: int) -> None:
        self.good = self.good[:kept]

    def finished(self, pieces: Iterator[str], required: Sequence[str]) -> str:
        """Written to its end, slots filled. Raises Refused at the first sentence that does not hold: no time is lost on the rest."""
        text = self.good
        for piece in pieces:
            text += piece
            if (end := last_end(text)) > len(self.good):
                if text[:end].strip():
                    verify(fill(text[:end], self._facts), self._facts)
                self.good = text[:end]
            elif len(text) - len(self.good) > LONGEST:
                raise Refused(f"a sentence of it is longer than {LONGEST} characters")
        filled = fill(text, self._facts).strip()
        verify(filled, self._facts)
        self.good = ""  # what is complete and lacks something begins anew
        verify(filled, self._facts, required)
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
