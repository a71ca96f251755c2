"""Tell what a job measured, in reports of other languages: English prose tells it by itself."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpudeck.accel import result as results
from gpudeck.assistant.facts import Fact, phrases
from gpudeck.assistant.reports.cells import Cells
from gpudeck.assistant.reports.report import Prose, Section, Table
from gpudeck.scheduler.protocol import jobs as j

_TITLES = {
    "tflops": "Rate",
    "bandwidth": "Memory bandwidth",
    "median": "Median of one call",
    "p95": "P95 of one call",
    "p99": "P99 of one call",
    "calls": "Calls measured",
    "sustained": "Sustained rate",
    "backend": "Backend",
    "choice": "Why this backend",
    "inputs": "Inputs",
    "device": "Measured on",
    "versions": "Versions",
}
"""The rows of the table: the name of the fact, and a caption."""


def section(job: j.Job, cells: Cells) -> tuple[Section, ...]:
    """Return what a job measured, in a sentence and a table; nothing if it measured nothing."""
    if job.result is None or cells.words.language == "en":
        return ()
    mine, text = f"job{job.id}", cells.words.text
    title = text("Measurement")
    if not cells.given(f"{mine}.verdict"):
        return (Section(title, (Prose(cells.why_not([(title, f"{mine}.result")])),)),)
    result = results.read(job.result)
    rows = [
        (text(caption), said)
        for name, caption in _TITLES.items()
        if (said := cells.given(f"{mine}.{name}"))
    ]
    rows += [(text("Check"), cells.said(f"{mine}.check{i}")) for i in range(len(result.checks))]
    lacking = cells.why_not([(text("Median of one call"), f"{mine}.median")])
    table = Table(title, cells.words.captions("Detail", "Value"), tuple(rows), lacking)
    return (Section(title, (*_sentence(mine, cells), table)),)


def _sentence(mine: str, cells: Cells) -> tuple[Prose, ...]:
    """Return `It measured 611 TFLOP/s with the backend cudnn.`; nothing if it timed nothing."""
    rate = cells.given(f"{mine}.tflops") or cells.given(f"{mine}.bandwidth")
    backend = cells.given(f"{mine}.backend")
    if not rate or not backend:
        return ()
    return (
        Prose(
            cells.words.text(
                "It measured {rate} with the backend {backend}.", rate=rate, backend=backend
            )
        ),
    )


def as_typed(facts: Iterable[Fact], jobs: Iterable[j.Job]) -> tuple[Fact, ...]:
    """Return the facts with the inputs of measurements as the command line takes them.

    That is the same in every language, while the facts name the inputs in English.
    """
    facts = tuple(facts)
    named = {fact.name for fact in facts}
    typed = {
        name: _inputs(job.result)
        for job in jobs
        if job.result is not None and (name := f"job{job.id}.inputs") in named
    }
    return tuple(
        msgspec.structs.replace(fact, said=typed[fact.name], value=typed[fact.name])
        if fact.name in typed
        else fact
        for fact in facts
    )


def _inputs(data: bytes) -> str:
    """Return the parameters as they are typed on the command line: `heads=16 seq=16384`."""
    result = results.read(data)
    parts = [
        f"{name}={('no', 'yes')[value] if isinstance(value, bool) else value}"
        for name, value in result.params.items()
    ]
    return phrases.escaped(" ".join(parts), 1000) or "–"
