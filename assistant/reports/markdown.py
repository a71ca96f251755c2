"""Render a report as Markdown.

A chart becomes lines of block characters. Foreign text is put in a fence that it cannot close.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.reports.report import (
    Block,
    Chart,
    Curve,
    Excerpt,
    Prose,
    Report,
    Section,
    Table,
)
from gpudeck.assistant.reports.svg import Scale
from gpudeck.assistant.writing.template.sentences import table
from gpudeck.language.words import Words

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
"""The width of a chart in characters."""


def markdown(report: Report) -> str:
    """Return the whole report as Markdown."""
    parts = [
        f"# {phrases.escaped(report.title)}",
        phrases.escaped(report.about),
        *(part for s in report.sections for part in _section(s, report.words)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def digest(report: Report) -> str:
    """Return the title and the first paragraph of a report: what failed, and what matters."""
    prose = next(b.text for s in report.sections for b in s.blocks if isinstance(b, Prose))
    parts = [part for part in prose.split("\n\n") if not part.startswith("#")]
    return f"**{phrases.escaped(report.title)}**\n\n{parts[0]}"


def _section(section: Section, words: Words) -> list[str]:
    return [
        f"## {section.title}" if section.title else "",
        *(_block(block, section.title, words) for block in section.blocks),
    ]


def _block(block: Block, above: str, words: Words) -> str:
    match block:
        case Prose(text):
            return text
        case Table():
            title = f"### {block.title}" if block.title != above else ""
            return "\n\n".join(filter(None, (title, table(block.head, block.rows), block.note)))
        case Chart():
            return _chart(block, words)
        case Excerpt(text=text):
            return phrases.fenced(text) if text else words.text("No data: it printed nothing.")


def _chart(chart: Chart, words: Words) -> str:
    widest = max((len(line.label) for line in chart.lines), default=0)
    scale = Scale(chart)
    curves = [f"{line.label:<{widest}}  {_blocks(line, chart, scale.top)}" for line in chart.lines]
    parts = (
        f"**{phrases.escaped(chart.heading)}**",
        phrases.fenced("\n".join(curves)) if curves else "",
        "  \n".join(
            filter(None, (chart.note, words.text("Source: {source}", source=chart.source)))
        ),
    )
    return "\n\n".join(filter(None, parts))


def _blocks(line: Curve, chart: Chart, top: float) -> str:
    """Return a block for each part of the time, as high as its mean; a space marks a gap."""
    found: list[list[float]] = [[] for _ in range(_WIDTH)]
    length = max(chart.until - chart.since, 1e-3)
    for at, value in zip(line.times, line.mean, strict=True):
        if value is not None:
            found[min(max(int((at - chart.since) / length * _WIDTH), 0), _WIDTH - 1)].append(value)
    return "".join(_height(values, top) for values in found).rstrip()


def _height(values: Sequence[float], top: float) -> str:
    if not values:
        return " "
    share = sum(values) / len(values) / top
    return _BLOCKS[min(max(int(share * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]
