"""Split the manual into sections, which are found and quoted as a whole.

What the terms of the program mean is a page of its own, `glossary`, with a section for each term.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import NamedTuple

from gpudeck.assistant.language.glossary import MEANINGS
from gpudeck.assistant.retrieval.manual import files
from gpudeck.assistant.retrieval.passage import Passage

_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
_LONGEST = 1500
"""Characters of a section that are read; the rest says more of the same."""
_SHORTEST = 60
GLOSSARY = "glossary"


class Section(NamedTuple):
    """Hold a section of the manual."""

    page: str
    """The file's name without its end, such as `queue`."""
    title: str
    heading: str
    text: str
    line: int

    @property
    def key(self) -> str:
        """Return what its vector is kept under: it changes with the text."""
        return hashlib.sha256(passage(self).encode()).hexdigest()[:16]

    @property
    def place(self) -> str:
        """Return its page and heading, such as `queue#Submit a job`."""
        return f"{self.page}#{self.heading}"


@cache
def sections() -> tuple[Section, ...]:
    """Return the sections of all pages that are prose, in order, and those of the glossary."""
    found: list[Section] = []
    for file in files():
        if file.parent.name != "manual":
            continue
        title, heading, first, lines = "", "", 1, list[str]()
        for number, line in enumerate([*file.read_text(encoding="utf-8").splitlines(), "# end"], 1):
            match = _HEADING.match(line)
            if match is None:
                lines.append(line)
                continue
            text = "\n".join(lines).strip()
            if len(text) >= _SHORTEST:
                found.append(Section(file.stem, title, heading or title, text, first))
            title = title or match[1]
            heading, first, lines = match[1], number, []
    found += (Section(GLOSSARY, "What the words mean", term, text, 0)
              for term, text in MEANINGS.items())  # fmt: skip
    return tuple(found)


def passage(section: Section) -> str:
    """Return the text by which a section is found."""
    text = re.sub(r"<!--.*?-->", " ", section.text, flags=re.S)[:_LONGEST]
    return f"passage: {section.title}. {section.heading}. {' '.join(text.split())}"


def as_passage(section: Section, longest: int) -> Passage:
    """Return the beginning of a section, in whole paragraphs, to be quoted.

    Args:
        section: The section.
        longest: The most characters, unless the first paragraph has more.
    """
    parts, size = list[str](), 0
    for part in section.text.split("\n\n"):
        if parts and size + len(part) > longest:
            break
        parts.append(part)
        size += len(part)
    text = "\n\n".join(parts)
    last = section.line + 1 + text.count("\n")
    return Passage("docs", f"{section.page}.md", section.line, last, text, section.heading)
