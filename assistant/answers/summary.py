"""Word a short summary of a job or of a time: what failed first, then what else matters."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpudeck.assistant.answers import answer
from gpudeck.assistant.answers.notes import notes
from gpudeck.assistant.answers.values import facts as facts_of
from gpudeck.assistant.facts.fact import Fact
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.query.rows import Rows
from gpudeck.language.numbers import capitalized
from gpudeck.language.words import Words
from gpudeck.scheduler.protocol.search import FAILED

_OF_A_JOB = ("", "progress", "estimate", "reason", "energy", "memory")


def summary(
    query: Query, run: Callable[[Query], Rows], span: Span, words: Words
) -> tuple[str, str, tuple[Fact, ...]]:
    """Return a heading that names the time, the summary as Markdown, and its facts.

    The heading is empty for jobs.

    Args:
        query: The report that was asked for; its jobs, or else `span`, are summarized.
        run: Executes a query.
        span: The time.
        words: The language.
    """
    asked = (
        [Query("jobs", name, jobs=query.jobs) for name in _OF_A_JOB]
        if query.jobs
        else _of_a_time(span)
    )
    found = [(each, run(each)) for each in asked]
    if query.jobs:
        found = [one for one in found if not one[0].measure or _known(one[1])]
    facts = tuple(
        fact for each, rows in found for fact in facts_of(rows, words, notes(each, rows, words))
    )
    if query.jobs:
        texts = [answer(each, rows, words) for each, rows in found]
        paragraphs = [part for text in texts for part in text.split("\n\n")]
        return "", "\n\n".join(dict.fromkeys(filter(None, paragraphs))), facts
    when = f"### {capitalized(words.span(span.since, span.until, found[0][1].time))}"
    return when, "\n\n".join(_told_once(found, words)), facts


def _told_once(found: list[tuple[Query, Rows]], words: Words) -> list[str]:
    """Return what failed, and a list of the rest; the time is told before them, once."""
    timeless = [(each, msgspec.structs.replace(rows, span=None)) for each, rows in found]
    first, *texts = [answer(each, rows, words) for each, rows in timeless]
    known = [text for text, (each, rows) in zip(texts, timeless[1:], strict=True)
             if each.subject != "devices" or rows.total is not None]  # fmt: skip
    return [first, "\n".join(f"- {text.splitlines()[0]}" for text in known if text)]


def _known(rows: Rows) -> bool:
    return any(row.values and row.values[0] is not None for row in rows.rows)


def _of_a_time(span: Span) -> list[Query]:
    return [
        Query("jobs", states=FAILED, time=span),
        Query("jobs", time=span),
        Query("alerts", time=span),
        Query("devices", "energy", time=span, aggregate="sum"),
        Query("devices", "util", time=span, aggregate="mean"),
    ]
