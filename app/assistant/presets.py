"""The questions that come with the program, each with its query. Free of Qt."""

from __future__ import annotations

import time

import msgspec

from gpudeck.app.language.texts import tr
from gpudeck.assistant.query.request import Query, Span
from gpudeck.scheduler.protocol.search import FAILED

_HOUR_S = 3600.0


class Preset(msgspec.Struct, frozen=True, omit_defaults=True):
    """Name a prompt that the user asks often."""

    name: str
    text: str
    query: Query | None = None
    """What the text asks for; None: it is read as if the user had typed it."""


def what_happened() -> Preset:
    """Return the question for an overview."""
    text = tr("What happened?")
    return Preset(text, text, Query("overview"))


def own_presets() -> tuple[Preset, ...]:
    """Return the presets that come with the program."""
    return (
        what_happened(),
        Preset(
            tr("Why do my jobs wait?"),
            tr("Why is my job waiting?"),
            Query("jobs", "reason", states=("queued",)),
        ),
        Preset(
            tr("Hottest GPU"),
            tr("Which GPU is the hottest?"),
            Query("devices", "temp", aggregate="max", extreme=True),
        ),
        Preset(
            tr("Failures"),
            tr("Which jobs failed, and why?"),
            Query("jobs", "reason", states=FAILED),
        ),
    )


def first_questions() -> tuple[Preset, ...]:
    """Return the questions to begin a conversation with, an even number of them."""
    now = time.time()
    asked = {
        tr("What happened in the last hour?"): Query("report", time=Span(now - _HOUR_S, now)),
        tr("Which GPU is free?"): Query("devices", "use", states=("idle",)),
        tr("Which job used the most energy?"): Query(
            "jobs", "energy", aggregate="max", extreme=True
        ),
        tr("Why did the last job fail?"): Query(
            "jobs", "failure", states=FAILED, aggregate="last", limit=1
        ),
    }
    return tuple(Preset(text, text, query) for text, query in asked.items())
