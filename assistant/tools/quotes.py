"""Quote the manual and the logs of jobs word for word, each with its place.

Foreign text is shown as it is, and nothing reads it for orders.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from gpudeck.assistant.answers.steps import chosen, manual_step, steps_elsewhere
from gpudeck.assistant.facts.fact import FactBuilder
from gpudeck.assistant.language.glossary import meaning
from gpudeck.assistant.language.guides import guide
from gpudeck.assistant.query.find import named_jobs
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.steps import Step
from gpudeck.assistant.reader.reading import shipped_reader
from gpudeck.assistant.retrieval import Passage, Where, quoted, search, section
from gpudeck.assistant.retrieval.ranking import find
from gpudeck.assistant.retrieval.sections import GLOSSARY, Section, as_passage
from gpudeck.assistant.tools.how_to import command_of, how_to
from gpudeck.assistant.tools.tool import ToolContext, ToolResult, text_result


def logs(context: ToolContext, query: Query) -> ToolResult:
    """Quote the lines that have the query's words, from the logs of a job or the newest jobs."""
    jobs = named_jobs(context.daemon, query.jobs)
    found = search(query.text, "logs", jobs[0].id if jobs else None)
    if not found:
        return text_result(context.words.text("No log contains that."))
    return _quote(found, "logs")


def manual(context: ToolContext, query: Query) -> ToolResult:
    """Say how the query's verb is done or what its term means, or quote the manual."""
    kind, _, name = query.measure.partition(" ")
    if kind == "what":
        terms = [name, *([query.other.measure.removeprefix("what ")] if query.other else [])]
        return text_result("\n\n".join(meaning(term, context.words) for term in terms))
    if kind == "how":
        return text_result(guide(name, context.words), steps=steps_elsewhere(query.measure))
    if query.measure:
        lead = how_to(query.measure, context.words)
        found = section(command_of(query.measure))
        shown = found if len(found) <= _SHORT else found[:1]
        return _quote(shown, "docs", lead) if found else text_result(lead)
    return _answered(answering(query.text, context.before), context)


def _answered(found: Answering, context: ToolContext) -> ToolResult:
    """Return what terms mean, the words of sections, and which others there are."""
    if not found.quoted:
        return text_result(context.words.text("The manual has nothing about that."))
    named = [f"{one.heading} ({one.page}.md)" for one in found.named if one.page != GLOSSARY]
    sections = context.words.listed(named)
    also = context.words.text("See also: {sections}.", sections=sections) if named else ""
    leads = [meaning(one.heading, context.words) for one in found.quoted if one.page == GLOSSARY]
    pairs = zip(found.quoted, found.passages(), strict=True)
    passages = tuple(passage for one, passage in pairs if one.page != GLOSSARY)
    if not passages:
        return text_result("\n\n".join(filter(None, [*leads, also])))
    if context.words.language != "en":
        leads.append(context.words.text("The manual, which is in English, says:"))
    found_too = [manual_step(one.page, one.heading) for one in found.named if one.page != GLOSSARY]
    return _quote(passages, "docs", "\n\n".join(leads), also, found_too)


class Answering(NamedTuple):
    """Hold the sections of the manual that answer a question."""

    quoted: tuple[Section, ...] = ()
    """The best one, and the second where the best is not sure; none if none is near."""
    named: tuple[Section, ...] = ()
    """Others that may answer, too."""

    def passages(self) -> tuple[Passage, ...]:
        """Return the words of what is quoted; of each of two, less than of one alone."""
        longest = _WHOLE if len(self.quoted) == 1 else _SHORTENED
        return tuple(as_passage(section, longest) for section in self.quoted)


def answering(question: str, before: str = "") -> Answering:
    """Return the sections of the manual that answer a question.

    Args:
        question: The question.
        before: What was asked before it, with its meaning.
    """
    found = find(question, shipped_reader(), before)[:_NAMED]
    sections, scores = zip(*found, strict=True)
    if scores[0] < _NEAR:
        return Answering()
    quoted = 1 if scores[0] - scores[1] >= _SURE else 2
    return Answering(sections[:quoted], sections[quoted:])


def about(question: str) -> ToolResult | None:
    """Quote the manual where it clearly speaks of what a question asks; None otherwise."""
    found = search(question, least=_CLEARLY)[:_FEW]
    return _quote(found, "docs") if found else None


_NEAR = 0.66
"""The least score of a section that is quoted."""
_NAMED = 3
_SURE = 0.1
"""A section is quoted alone from this lead on."""
_WHOLE, _SHORTENED = 1200, 600
"""Characters that are quoted of a section alone, and of each of two, more or less."""
_CLEARLY, _FEW = 0.75, 2
_SHORT = 4
"""The most passages on a command that are quoted whole."""


def _quote(
    passages: tuple[Passage, ...],
    where: Where,
    lead: str = "",
    also: str = "",
    others: Sequence[Step] = (),
) -> ToolResult:
    """Return passages word for word, each with its place; those of the manual can be opened."""
    add = FactBuilder(where, "", "", time.time())
    for i, passage in enumerate(passages):
        add.source = passage.cite
        add.text(f"passage{i}", passage.heading or passage.file, passage.text)
    shown = [*filter(None, [lead, quoted(passages, where), also])]
    places = [manual_step(one.file.removesuffix(".md"), one.heading) for one in passages]
    steps = chosen([*places, *others]) if where == "docs" else ()
    return ToolResult(tuple(add.facts), lambda _: shown, steps=steps)
