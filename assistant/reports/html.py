"""Render a report as one page of HTML, light and dark, with its charts inside.

The page loads nothing, has no scripts and no links, and every word in it is escaped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.reports.cells import Cells
from gpudeck.assistant.reports.report import Block, Chart, Excerpt, Prose, Report, Section, Table
from gpudeck.assistant.reports.style import LIGHT, sheet
from gpudeck.assistant.reports.svg import draw_svg
from gpudeck.language.words import Words

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""A policy that keeps the browser from loading or running anything foreign that got through."""
_OFF = ["link", "image", "autolink", "reference", "html_inline", "html_block"]


def html(report: Report) -> str:
    """Return the whole page."""
    shown = body(report, lambda chart: _figure(chart, report.words))
    return (
        f'<!doctype html><html lang="{report.language}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{sheet()}</style></head><body><main>"
        f"{shown}{_facts(report)}</main></body></html>\n"
    )


def body(report: Report, figure: Callable[[Chart], str]) -> str:
    """Return the report's text, with charts rendered by `figure`."""
    head = f'<h1>{escape(report.title)}</h1><p class="about">{escape(report.about)}</p>'
    words = report.words
    return head + "".join(_section(section, figure, words) for section in report.sections)


@cache
def _reader() -> MarkdownIt:
    """Return the Markdown reader. It is created at its first use, as most commands need none."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table").disable(_OFF)


def inline(markdown: str) -> str:
    """Return a line of Markdown as HTML; HTML, links and pictures in it become plain text."""
    return str(_reader().renderInline(markdown))


def _table(shown: Table, above: str) -> str:
    """Return a table with its note; its title is left out below an equal heading."""
    title = f"<h3>{escape(shown.title)}</h3>" if shown.title != above else ""
    head = (
        f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in shown.head)}</tr>"
        if any(shown.head)
        else ""
    )
    rows = "".join(
        f"<tr>{''.join(f'<td>{inline(cell)}</td>' for cell in row)}</tr>" for row in shown.rows
    )
    body = f"<table>{head}{rows}</table>" if rows else ""
    return title + body + (f'<p class="note">{inline(shown.note)}</p>' if shown.note else "")


def _section(section: Section, figure: Callable[[Chart], str], words: Words) -> str:
    heading = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    blocks = "".join(_block(block, section.title, figure, words) for block in section.blocks)
    return f"<section>{heading}{blocks}</section>"


def _block(block: Block, above: str, figure: Callable[[Chart], str], words: Words) -> str:
    match block:
        case Prose(text):
            return str(_reader().render(text))
        case Table():
            return _table(block, above)
        case Chart():
            return figure(block)
        case Excerpt(text=text):
            return (
                f"<pre>{escape(text)}</pre>"
                if text
                else f'<p class="note">{words.text("No data: it printed nothing.")}</p>'
            )


def caption(chart: Chart, words: Words) -> str:
    """Return the caption of a chart."""
    note = f"{inline(chart.note)}. " if chart.note else ""
    return note + escape(words.text("Source: {source}", source=chart.source))


def _figure(chart: Chart, words: Words) -> str:
    drawn = _key(chart) + draw_svg(chart) if chart.lines else ""
    below = f"<figcaption>{caption(chart, words)}</figcaption>"
    return f"<figure><b>{escape(chart.heading)}</b>{drawn}{below}</figure>"


def _key(chart: Chart) -> str:
    """Return the key of colours and devices, if there are several."""
    if len(chart.lines) < 2:
        return ""
    keys = (
        f'<span class="key"><i style="background:var(--s{i % len(LIGHT.series)})"></i>'
        f"{escape(line.label)}</span>"
        for i, line in enumerate(chart.lines)
    )
    return f'<div class="about">{"".join(keys)}</div>'


def _facts(report: Report) -> str:
    """Return a closed list of all facts."""
    text, cells = report.words.text, Cells(report.facts, report.words, report.written)
    rows = "".join(
        f"<tr><td>{_fact(fact, report, cells)}</td>"
        f"<td>{escape(cells.message(fact.source))}</td></tr>"
        for fact in report.facts
    )
    return (
        f"<details><summary>{text('All {n} facts', n=len(report.facts))}</summary>"
        f"<table><tr><th>{text('Fact')}</th><th>{text('Source')}</th></tr>{rows}</table></details>"
    )


def _fact(fact: Fact, report: Report, cells: Cells) -> str:
    """Return a fact as a phrase; in other languages than English as its name and value."""
    if report.language == "en":
        return inline(fact.text)
    return f"<code>{escape(fact.name)}</code> {inline(cells.told(fact))}"
