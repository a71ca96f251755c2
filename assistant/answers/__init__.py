"""Word the rows of a query: one sentence first, then a table or the details.

The texts are templates in four languages, and every value in them is a value of the rows.
"""

from __future__ import annotations

from gpudeck.assistant.answers import conversions, devices, jobs, listings, software
from gpudeck.assistant.answers.comparison import compared
from gpudeck.assistant.answers.notes import leading, notes
from gpudeck.assistant.answers.values import Answerer
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Rows
from gpudeck.language.words import Words

_SUBJECTS: dict[str, Answerer] = {
    "devices": devices.answer,
    "jobs": jobs.answer,
    "processes": listings.processes,
    "alerts": listings.alerts,
    "queue": listings.queue,
    "limits": listings.limits,
    "events": listings.events,
    "bookings": listings.bookings,
    "machines": listings.machines,
    "capacity": listings.capacity,
    "settings": listings.settings,
    "attention": software.attention,
    "versions": software.versions,
    "models": listings.models,
    "conversion": conversions.answer,
}


def answer(query: Query, rows: Rows, words: Words) -> str:
    """Return the answer as Markdown."""
    parts = (
        compared(query, rows, words) if query.other else _SUBJECTS[rows.subject](query, rows, words)
    )
    first, rest = leading(query, rows, words), notes(query, rows, words)
    return "\n\n".join(filter(None, dict.fromkeys([*first, *parts, *rest])))
