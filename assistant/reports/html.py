"""A report as one page of HTML: charts drawn in it, light and dark, nothing loaded, no script, no link, every word escaped."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from assistant.reports.report import Block, Chart, Excerpt, Prose, Report, Section, Table
from assistant.reports.style import LIGHT, sheet
from assistant.reports.svg import svg

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Even if something foreign got through, the browser would load and run nothing."""
_OFF = ["link", "image", "autolink", "reference", "html_inline", "html_block"]


def html(report: Report) -> str:
    """The whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{sheet()}</style></head><body><main>"
        f"{body(report, _figure)}{_facts(report)}</main></body></html>\n"
    )


def body(report: Report, figure: Callable[[Chart], str]) -> str:
    """What is told, with charts as `figure` makes them."""
    head = f'<h1>{escape(report.title)}</h1><p class="about">{escape(report.about)}</p>'
    return head + "".join(_section(section, figure) for section in report.sections)


@cache
def _reader() -> MarkdownIt:
    """Made at its first use: commands that write no report do not load it."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table").disable(_OFF)


def inline(markdown: str) -> str:
    """A line of Markdown as HTML; HTML, links and pictures in it are plain text."""
    return str(_reader().renderInline(markdown))


def _table(shown: Table, above: str) -> str:
    """With its note; its title is left out below a heading that says the same."""
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


def _section(section: Section, figure: Callable[[Chart], str]) -> str:
    heading = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    return f"<section>{heading}{''.join(_block(block, section.title, figure) for block in section.blocks)}</section>"


def _block(block: Block, above: str, figure: Callable[[Chart], str]) -> str:
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
                else '<p class="note">No data: it printed nothing.</p>'
            )


def caption(chart: Chart) -> str:
    """What stands below it."""
    return f"{inline(chart.note)}. Source: {escape(chart.source)}"


def _figure(chart: Chart) -> str:
    drawn = _key(chart) + svg(chart) if chart.lines else ""
    return f"<figure><b>{escape(chart.heading)}</b>{drawn}<figcaption>{caption(chart)}</figcaption></figure>"


def _key(chart: Chart) -> str:
    """Which colour is which device, where there are several."""
    if len(chart.lines) < 2:
        return ""
    keys = (
        f'<span class="key"><i style="background:var(--s{i % len(LIGHT.series)})"></i>{escape(line.label)}</span>'
        for i, line in enumerate(chart.lines)
    )
    return f'<div class="about">{"".join(keys)}</div>'


def _facts(report: Report) -> str:
    """Every fact, to be opened."""
    rows = "".join(
        f"<tr><td>{inline(fact.text)}</td><td>{escape(fact.source)}</td></tr>"
        for fact in report.facts
    )
    return f"<details><summary>All {len(report.facts)} facts</summary><table><tr><th>Fact</th><th>Source</th></tr>{rows}</table></details>"
