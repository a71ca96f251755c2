"""Hostile strings are read as no order, name nothing but themselves, and stay text in reports."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from examples import NOW, job
from markdown_it import MarkdownIt
from test_reports import of_job, span

from gpudeck.assistant.intents.exact import exact_order
from gpudeck.assistant.intents.guards import against
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.reader.reading import Reading
from gpudeck.assistant.reports.contents import compose
from gpudeck.assistant.reports.html import html
from gpudeck.assistant.reports.markdown import markdown
from gpudeck.assistant.reports.report import Report
from gpudeck.assistant.writing.writer import write
from gpudeck.language.languages import Language
from gpudeck.language.words import words
from gpudeck.scheduler.protocol.jobs import Event, Failed
from gpudeck.scheduler.protocol.snapshot import Alert
from tests.hostile_strings import FEW, PROMPTS, STRINGS, TAME, WAYS_OUT, Shape, controls

SLOW = pytest.mark.slow
MANY = pytest.mark.parametrize(
    "strings", [FEW, pytest.param(STRINGS, marks=SLOW)], ids=["few", "all"]
)
CHUNK = 70
"""Jobs in a report: its tables list up to a hundred."""


def test_the_strings_are_many_and_of_all_kinds() -> None:
    assert len(set(FEW)) > 200 and len(set(STRINGS)) == len(WAYS_OUT) * len(PROMPTS)
    for out in WAYS_OUT:
        begin = out.partition("{}")[0]
        assert any(text.startswith(begin) for text in FEW)


@MANY
def test_no_request_is_an_exact_order(strings: Sequence[str]) -> None:
    """Only those are carried out without a card."""
    for text in strings:
        assert exact_order(text) is None, ascii(text)


@MANY
def test_a_name_of_a_job_or_group_is_only_a_name(strings: Sequence[str]) -> None:
    request, order = "please cancel job 7", Order("cancel", jobs=(7,))
    found = Reading((("order cancel", 1.0),), "", frozenset(), (("jobs", "7"),), ((18, 19),), ())
    for name in strings:
        known = Known((name,), (name,))
        assert against(request, found, order, known, NOW) is None, ascii(name)


def reports(strings: Sequence[str], language: Language) -> list[Report]:
    """Return reports on jobs and alerts that are called so, and on a job that printed them."""
    chunks = [strings[at : at + CHUNK] for at in range(0, len(strings), CHUNK)]
    said = words(language)
    found = []
    for chunk in chunks:
        jobs = [
            job(i, Failed(NOW - 9, NOW, text, 1), text, tags=(text,), notes=text)
            for i, text in enumerate(chunk, 1)
        ]
        alerts = tuple(
            Alert(i, "too hot", "g1", None, text, NOW - 60, NOW - 50)
            for i, text in enumerate(chunk)
        )
        material = span(*jobs, alerts=alerts)
        found.append(compose(material, write(material.facts), said))
    log = "\n".join(strings).encode()
    events = tuple(Event(NOW - 80, "started", text) for text in strings[:CHUNK])
    one = of_job(jobs[0], log, events)
    return [*found, compose(one, write(one.facts), said)]


@pytest.mark.parametrize("language", ["en", pytest.param("de", marks=SLOW)])
def test_a_report_has_the_same_parts_whatever_things_are_called(language: Language) -> None:
    for evil, tame in zip(reports(FEW, language), reports(TAME, language), strict=True):
        text, page = markdown(evil), html(evil)
        assert not controls(text) and not controls(page)
        found, expected = Shape(page), Shape(html(tame))
        assert found.tags == expected.tags
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        kinds = {part.type for token in tokens for part in (token, *(token.children or ()))}
        assert not kinds & {"link_open", "image", "html_inline", "html_block"}
        assert text.count("\n#") == markdown(tame).count("\n#")
