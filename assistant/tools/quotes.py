"""Quote the manual and the logs of jobs word for word, each with its place.

Foreign text is shown as it is, and nothing reads it for orders.
"""

from __future__ import annotations

import time

from gpudeck.assistant.facts.fact import FactBuilder
from gpudeck.assistant.language.glossary import meaning
from gpudeck.assistant.language.guides import guide
from gpudeck.assistant.query.find import named_jobs
from gpudeck.assistant.query.request import Query
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
        return text_result(guide(name, context.words))
    if query.measure:
        lead = how_to(query.measure, context.words)
        found = section(command_of(query.measure))
        shown = found if len(found) <= _SHORT else found[:1]
        return _quote(shown, "docs", lead) if found else text_result(lead)
    answers = answering(query.text)
    if not answers:
        return text_result(context.words.text("The manual has nothing about that."))
    best, *others = answers
    named = [f"{other.heading} ({other.page}.md)" for other in others if other.page != GLOSSARY]
    sections = context.words.listed(named)
    also = context.words.text("See also: {sections}.", sections=sections) if named else ""
    if best.page == GLOSSARY:
        return text_result(f"{meaning(best.heading, context.words)}\n\n{also}".strip())
    lead = context.words.text("The manual, which is in English, says:")
    lead = "" if context.words.language == "en" else lead
    return _quote((as_passage(best),), "docs", lead, also)


def answering(question: str) -> tuple[Section, ...]:
    """Return the section of the manual that answers a question, and two that may do so, too.

    Nothing is returned if none is near.
    """
    found = find(question, shipped_reader())[:_NAMED]
    return tuple(section for section, _ in found) if found[0][1] >= _NEAR else ()


def about(question: str) -> ToolResult | None:
    """Quote the manual where it clearly speaks of what a question asks; None otherwise."""
    found = search(question, least=_CLEARLY)[:_FEW]
    return _quote(found, "docs") if found else None


_NEAR = 0.72
"""The least score of a section that is quoted."""
_NAMED = 3
_CLEARLY, _FEW = 0.75, 2
_SHORT = 4
"""The most passages on a command that are quoted whole."""


def _quote(
    passages: tuple[Passage, ...], where: Where, lead: str = "", also: str = ""
) -> ToolResult:
    """Return passages word for word, each with its place."""
    add = FactBuilder(where, "", "", time.time())
    for i, passage in enumerate(passages):
        add.source = passage.cite
        add.text(f"passage{i}", passage.heading or passage.file, passage.text)
    shown = [*filter(None, [lead, quoted(passages, where), also])]
    return ToolResult(tuple(add.facts), lambda _: shown)
