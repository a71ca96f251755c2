"""Read a question as a Query: every word of it is a slot of the query, or stays unread."""

from __future__ import annotations

from collections.abc import Callable

from gpudeck.assistant.intents import (
    comparisons,
    device_questions,
    job_questions,
    other_questions,
    user_questions,
)
from gpudeck.assistant.intents.reading import QueryReader
from gpudeck.assistant.query.request import Query

_READERS: tuple[Callable[[QueryReader], Query | None], ...] = (
    other_questions.conversion,
    other_questions.how_to,
    other_questions.help_wanted,
    user_questions.user_question,
    other_questions.debris,
    comparisons.compare,
    job_questions.log,
    other_questions.report,
    other_questions.capacity,
    other_questions.threshold,
    other_questions.setting,
    device_questions.eaters,
    job_questions.job_question,
    other_questions.queue,
    other_questions.alerts,
    device_questions.processes,
    other_questions.models,
    device_questions.devices,
    job_questions.jobs,
    other_questions.overview,
)
"""The first that a question fits reads it."""
_SOFT = (
    ("polite", ()),
    ("ask", ("how much", "how", "where")),
    ("topic", ("used now", "consumed", "fired", "installed", "status", "pdf")),
    ("agg", ("count",)),
    ("all", ()),
)
"""What adds nothing to a question that was read."""


def read_query(r: QueryReader) -> Query | None:
    """Return the query that the words name, or None."""
    for reader in _READERS:
        kept = set(r.s.used)
        found = reader(r)
        if found is not None:
            for kind, values in _SOFT:
                r.s.has(kind, *values)
            return found
        r.s.used = kept
    return None
