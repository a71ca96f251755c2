"""Write a brief or an answer in plain Markdown, made of facts and nothing else.

The template computes no number and adds none: every figure in its text is a fact's. A brief begins
with what happened in a paragraph (`brief`), followed by an account of each job (`jobs`) and of the
devices (`devices`), each with a table of details. There are no lists: Qt's Markdown reader loses
the last bullet before a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assistant.facts import Fact
from assistant.facts.index import FactIndex
from assistant.writing.template.answer import answer
from assistant.writing.template.brief import brief

__all__ = ["render", "template"]

_NOT_UNDERSTOOD = "I did not understand the question, so here is everything I know."


def template(facts: Sequence[Fact], question: str | None = None) -> str:
    """Return a brief of all `facts`, or the answer to `question`, as Markdown."""
    if not facts:
        return "There is nothing to report: no facts were gathered."
    index = FactIndex(facts)
    parts = (
        brief(index)
        if question is None
        else answer(index, question) or [_NOT_UNDERSTOOD, *brief(index)]
    )
    return "\n\n".join(filter(None, (*parts, _contradictions(facts))))


def render(facts: Sequence[Fact], sections: Callable[[FactIndex], list[str]]) -> str:
    """Return the text that `sections` makes of `facts`, followed by what sources disagree about."""
    return "\n\n".join(filter(None, (*sections(FactIndex(facts)), _contradictions(facts))))


def _contradictions(facts: Sequence[Fact]) -> str:
    """Return a paragraph for each fact about which sources disagree, with what each reports."""
    sayings: dict[str, dict[str, Fact]] = {}
    for fact in facts:
        sayings.setdefault(fact.name, {}).setdefault(fact.said, fact)
    lines = [
        ", but ".join(f"{fact.text} ({fact.source})" for fact in said.values())
        for said in sayings.values()
        if len(said) > 1
    ]
    return "\n\n".join(f"**The sources disagree:** {line}." for line in lines)
