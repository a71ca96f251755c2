"""Split the manual, which comes with the program, into passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpudeck.assistant.retrieval.passage import Passage
from gpudeck.scheduler.protocol import paths

PAGES = ("manual/*.md", "commands.md", "settings.md")
"""The pages of the manual, as patterns in its folder; other documents are not searched."""
_HEADING = re.compile(r"#{1,6} +(.*?) *#*$")
_BEGINS = re.compile(r"\s{0,3}(?:[-*+] |\d+\. |\|)")
"""A list item or a row of a table, which becomes a passage of its own."""
_RULE = re.compile(r"\s*\|[\s|:-]+\|\s*$")
"""The line below a table's head, which has no meaning by itself."""
_IGNORED = re.compile(r"\s*(?:!\[.*|<[^>]*>|\|? *!\[.*)\s*$")
"""A line that contains only a picture or an anchor."""
_FIGURES = re.compile(r"<!-- figures .*?<!-- end of figures -->", re.S)
"""A table of measured speeds: its short rows would come before the text on how things are used."""


@cache
def whole() -> tuple[Passage, ...]:
    """Return all passages in order; they are read once."""
    return tuple(
        passage
        for file in files()
        for passage in passages(file.name, file.read_text(encoding="utf-8"))
    )


def files() -> list[Path]:
    """Return the files of the pages."""
    folder = paths.assets().with_name("docs")
    return [page for pattern in PAGES for page in sorted(folder.glob(pattern))]


def passages(name: str, text: str) -> Iterator[Passage]:
    """Yield the blocks of a Markdown file, each with its heading.

    Blocks are paragraphs, list items, table rows and code, but not the tables of measured speeds.
    """
    text = _FIGURES.sub(lambda table: "\n" * table[0].count("\n"), text)
    heading, block, first, fenced = "", list[str](), 0, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        fence = line.lstrip().startswith("```")
        title = None if fenced or fence else _HEADING.match(line)
        begins = (
            not fenced
            and not fence
            and (title is not None or not line.strip() or bool(_BEGINS.match(line)))
        )
        heads = not fenced and _RULE.match(line) is not None
        if begins and not heads and any(map(str.strip, block)):
            yield Passage("docs", name, first, first + len(block) - 1, "\n".join(block), heading)
        if begins:
            block = []
        heading = title[1] if title else heading
        if title is None and not heads and (fenced or (line.strip() and not _IGNORED.match(line))):
            first = first if block else number
            block.append(line)
        fenced = fenced != fence
