"""Search the manual by meaning: whole sections, by the encoder that reads requests."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from gpudeck.assistant.reader.encoder import Array
from gpudeck.assistant.retrieval import bm25
from gpudeck.assistant.retrieval.manual import files
from gpudeck.assistant.retrieval.passage import Passage
from gpudeck.scheduler.protocol import paths

_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
_LONGEST = 1500
"""Characters of a section that are read; the rest says more of the same."""
_SHORTEST = 60
_QUOTED = 1200
"""Characters of a section that are quoted, more or less."""
_HEAD = 0.3
"""The share of its heading in what a section is like; without it, the page of one question less and
the section of seven less are found, of 116."""
_PAGE, _WORDS = 0.0075, 0.008
"""What a section gains if its page is e times as probable, and for a point of BM25.

Chosen on 52 questions; the likeness alone finds the page of 19, all three find that of 29.
"""


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


@cache
def sections() -> tuple[Section, ...]:
    """Return the sections of all pages that are prose, in order."""
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
    return tuple(found)


def passage(section: Section) -> str:
    """Return the text by which a section is found."""
    text = re.sub(r"<!--.*?-->", " ", section.text, flags=re.S)[:_LONGEST]
    return f"passage: {section.title}. {section.heading}. {' '.join(text.split())}"


def as_passage(section: Section) -> Passage:
    """Return the beginning of a section, in whole paragraphs, to be quoted."""
    parts, size = list[str](), 0
    for part in section.text.split("\n\n"):
        if parts and size + len(part) > _QUOTED:
            break
        parts.append(part)
        size += len(part)
    text = "\n\n".join(parts)
    last = section.line + 1 + text.count("\n")
    return Passage("docs", f"{section.page}.md", section.line, last, text, section.heading)


def find(
    question: str, query: Array, pages: Mapping[str, float], encode: Callable[[str], Array]
) -> tuple[tuple[Section, float], ...]:
    """Return the sections with their similarity to a question, the most similar first.

    Args:
        question: The question.
        query: The question's vector, of length one.
        pages: How probably each page has the answer. One that the reader has not learnt is neither
            likely nor unlikely.
        encode: Makes the vector of a passage that is not among those that ship.
    """
    vectors = vectors_of(encode)
    worded = bm25.scores(bm25.terms(question), _stems(), 0.0)
    scored = []
    for section, words in zip(sections(), worded, strict=True):
        expected = math.log(pages.get(section.page, 1 / len(pages)) + 0.01)
        likeness = float(vectors[section.key] @ query)
        scored.append((section, likeness + _PAGE * expected + _WORDS * words))
    return tuple(sorted(scored, key=lambda pair: -pair[1]))


@cache
def _stems() -> list[list[str]]:
    return [bm25.stems(f"{s.page} {s.title} {s.heading} {s.text}") for s in sections()]


@cache
def vectors_of(encode: Callable[[str], Array]) -> dict[str, Array]:
    """Return the vectors of all sections; those that have changed since are made anew."""
    with np.load(paths.request_reader() / "sections.npz") as stored:
        vectors = stored["vectors"].astype(np.float32)
        known = dict(zip(stored["keys"].tolist(), vectors, strict=True))
    return {
        section.key: known[section.key] if section.key in known else _vector(section, encode)
        for section in sections()
    }


def _vector(section: Section, encode: Callable[[str], Array]) -> Array:
    heading = encode(f"passage: {section.title}. {section.heading}")
    return (1 - _HEAD) * encode(passage(section)) + _HEAD * heading
