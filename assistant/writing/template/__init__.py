"""The template writer: a brief or an answer in plain Markdown, put together from facts and nothing else.

It computes no number and adds none: every figure in its text is the `said` of a fact. A brief is prose first: what happened in
a paragraph (`brief`), an account of each job (`jobs`) and of the devices (`devices`), each with a table of what prose cannot
tell well. Lists stay out of it: Qt's reader of Markdown loses the last bullet before a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assistant.facts import Fact
from assistant.facts.index import FactIndex
from assistant.writing.template.answer import answer
from assistant.writing.template.brief import brief

__all__ = ["render", "template"]

_NOT_UNDERSTOOD = "I did not find out what this asks about, so here is all there is to tell."


def template(facts: Sequence[Fact], question: str | None = None) -> str:
    """A brief of all `facts`, or the answer to `question` from them. Markdown; every number in it is from the facts."""
    if not facts:
        return "There is nothing to tell: no facts were gathered."
    index = FactIndex(facts)
    parts = (
        brief(index)
        if question is None
        else answer(index, question) or [_NOT_UNDERSTOOD, *brief(index)]
    )
    return "\n\n".join(filter(None, (*parts, _contradictions(facts))))


def render(facts: Sequence[Fact], sections: Callable[[FactIndex], list[str]]) -> str:
    """The text that `say` makes of `facts`, part by part; what they disagree about is told, too."""
    return "\n\n".join(filter(None, (*sections(FactIndex(facts)), _contradictions(facts))))


def _contradictions(facts: Sequence[Fact]) -> str:
    """Facts of one name that say different things: both are told."""
    sayings: dict[str, dict[str, Fact]] = {}
    for fact in facts:
        sayings.setdefault(fact.name, {}).setdefault(fact.said, fact)
    lines = [
        ", but ".join(f"{fact.text} ({fact.source})" for fact in said.values())
        for said in sayings.values()
        if len(said) > 1
    ]
    return "\n\n".join(f"**The sources disagree:** {line}." for line in lines)
