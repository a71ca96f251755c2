"""Word an overview: whether anything needs attention, then jobs and devices."""

from __future__ import annotations

from collections.abc import Callable

from gpudeck.assistant.answers import answer
from gpudeck.assistant.answers.steps import chosen, steps_of
from gpudeck.assistant.answers.values import facts as facts_of
from gpudeck.assistant.facts.fact import Fact
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.query.rows import Rows
from gpudeck.assistant.query.steps import Step
from gpudeck.language.words import Words
from gpudeck.scheduler.protocol.search import FAILED

_DAY_S = 86400.0


def overview(
    query: Query, run: Callable[[Query], Rows], now: float, words: Words
) -> tuple[str, tuple[Fact, ...], tuple[Step, ...]]:
    """Return the text of an overview as Markdown, its facts, and what helps with what is wrong.

    Args:
        query: Its time is the span in which failures and alerts count; None: alerts that last, and
            failures of the last 24 hours.
        run: Executes a query.
        now: Seconds since the epoch.
        words: The language.
    """
    span = query.time or Span(now - _DAY_S, now)
    bad = [
        Query("alerts", time=query.time),
        Query("jobs", states=FAILED, time=span),
    ]
    calm = [Query("queue"), Query("devices")]
    found = [(each, run(each)) for each in [*bad, *calm]]
    wrong = [(each, rows) for each, rows in found[: len(bad)] if rows.rows]
    first = words.text("Something needs attention." if wrong else "I see no problems.")
    parts = [answer(each, rows, words) for each, rows in wrong]
    parts += ["\n".join(f"- {_first(each, rows, words)}" for each, rows in found
                        if (each, rows) not in wrong)]  # fmt: skip
    facts = tuple(fact for _, rows in found for fact in facts_of(rows, words))
    steps = chosen(step for _, rows in found for step in steps_of(rows))
    return "\n\n".join([first, *parts]), facts, steps


def _first(query: Query, rows: Rows, words: Words) -> str:
    return answer(query, rows, words).partition("\n")[0]
