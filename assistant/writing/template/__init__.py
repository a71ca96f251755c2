"""Write a brief in plain Markdown, made of facts and nothing else.

The template computes no number and adds none: every figure in its text is a fact's. A brief begins
with what happened in a paragraph (`brief`), followed by an account of each job (`jobs`) and of the
devices (`devices`), each with a table of details. There are no lists: Qt's Markdown reader loses
the last bullet before a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.writing.template.brief import brief

__all__ = ["render", "template"]


def template(facts: Sequence[Fact]) -> str:
    """Return a brief of all `facts` as Markdown."""
    if not facts:
        return "There is nothing to report: no facts were gathered."
    return render(facts, brief)


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
