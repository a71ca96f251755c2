"""Find what people may type in README.md and the pages of the manual."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "manual").glob("*.md")))
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_SPAN = re.compile(r"`(gpudeck [^`]+)`")


class Text(NamedTuple):
    """Hold a block of code, a command or a span, with the line of the page where it begins."""

    line: int
    text: str


def blocks(page: Path, language: str) -> list[Text]:
    """Return the blocks of code in a language."""
    whole = page.read_text()
    return [
        Text(whole[: found.start("text")].count("\n") + 1, found["text"])
        for found in _BLOCK.finditer(whole)
        if found["language"] == language
    ]


def commands(page: Path) -> Iterator[Text]:
    """Yield the commands of a page's shell blocks, those that go on over several lines whole."""
    for block in blocks(page, "sh"):
        begun = ""
        for number, line in enumerate(block.text.splitlines(keepends=True)):
            begun += line
            if begun.strip() and _is_whole(begun):
                first = block.line + number - begun.count("\n") + 1
                yield Text(first, begun.strip())
                begun = ""


def _is_whole(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:  # a quotation is open
        return False
    return not text.endswith("\\\n")


def spans(page: Path) -> Iterator[Text]:
    """Yield the commands that stand within a sentence."""
    whole = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())
    for found in _SPAN.finditer(whole):
        yield Text(whole[: found.start()].count("\n") + 1, " ".join(found[1].split()))
