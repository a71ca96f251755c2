"""Rank the sections of the manual by how well each answers a question.

The encoder compares the question with whole sections. A linear head adds which sections answer the
questions that people have asked (`gpudeck.assistant.training.sections`), since people seldom use
the words of the manual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from gpudeck.assistant.reader.encoder import Array, mean_of
from gpudeck.assistant.reader.labels import PAGES
from gpudeck.assistant.reader.reading import Reader, opening, whole_of
from gpudeck.assistant.retrieval import bm25
from gpudeck.assistant.retrieval.sections import Section, passage, sections
from gpudeck.scheduler.protocol import paths

SECTIONS = "sections.npz"
_HEAD = 0.3
"""The share of its heading in what a section is like."""
_PAGE, _WORDS, _ASKED = 0.0075, 0.008, 0.04
"""What a section gains if its page, or the section itself, is e times as probable, and for a point
of BM25. Chosen by `python -m tests.benchmarks.manual_search`."""
_STATES = 768
"""Features that are states for requests; the vector for searching is behind them."""
_UNLIKELY = -5.0
"""The logarithm of the probability of a section that the head does not know, and the least."""


def find(question: str, reader: Reader, before: str = "") -> tuple[tuple[Section, float], ...]:
    """Return the sections with their scores for a question, the best first.

    Args:
        question: The question as it was typed.
        reader: The encoder with its heads.
        before: What was asked before it, with its meaning (`labels.described`).
    """
    x = features(question, reader, before)
    pages = dict(zip(PAGES, reader.pages(x[:_STATES]), strict=True))
    vector, asked = x[_STATES:], _asked(x)
    vectors = vectors_of(reader.encoder.vector)
    worded = bm25.scores(bm25.terms(question), _stems(), 0.0)
    scored = []
    for section, words in zip(sections(), worded, strict=True):
        # a page that the reader has not learnt is neither likely nor unlikely
        expected = math.log(pages.get(section.page, 1 / len(pages)) + 0.01)
        score = float(vectors[section.key] @ vector) + _PAGE * expected + _WORDS * words
        scored.append((section, score + _ASKED * asked.get(section.place, _UNLIKELY)))
    return tuple(sorted(scored, key=lambda pair: -pair[1]))


def features(question: str, reader: Reader, before: str = "") -> Array:
    """Return what the linear head reads: the states for requests and for searching, [1152].

    The former know what was asked before, as for any request; the latter the question alone.
    """
    whole = whole_of(reader.encoded(question, before).states)
    return np.concatenate((whole, reader.encoder.vector(f"query: {question}")))


def features_of(asked: Sequence[tuple[str, str]], reader: Reader) -> Array:
    """Return the features of many questions, each with what was asked before it, [N, 1152]."""
    known = [opening(before) + question for question, before in asked]
    alone = [f"query: {question}" for question, _ in asked]
    pooled = reader.encoder.pooled
    return np.concatenate((pooled(known, whole_of, trained=True), pooled(alone, mean_of)), axis=1)


@cache
def _stems() -> list[list[str]]:
    return [bm25.stems(f"{s.page} {s.title} {s.heading} {s.text}") for s in sections()]


@cache
def _head() -> tuple[tuple[str, ...], Array, Array]:
    with np.load(paths.request_reader() / SECTIONS) as stored:
        weights, bias = (stored[name].astype(np.float32) for name in ("weights", "bias"))
        return tuple(stored["places"].tolist()), weights, bias


def _asked(x: Array) -> dict[str, float]:
    """Return the logarithms of how probably each section answers, at least `_UNLIKELY`."""
    places, weights, bias = _head()
    logits = x @ weights + bias
    logits -= logits.max()
    chances = np.maximum(logits - np.log(np.exp(logits).sum()), _UNLIKELY)
    return dict(zip(places, chances.tolist(), strict=True))


@cache
def vectors_of(encode: Callable[[str], Array]) -> dict[str, Array]:
    """Return the vectors of all sections; those that have changed since are made anew."""
    with np.load(paths.request_reader() / SECTIONS) as stored:
        vectors = stored["vectors"].astype(np.float32)
        known = dict(zip(stored["keys"].tolist(), vectors, strict=True))
    return {
        section.key: known[section.key] if section.key in known else _vector(section, encode)
        for section in sections()
    }


def _vector(section: Section, encode: Callable[[str], Array]) -> Array:
    heading = encode(f"passage: {section.title}. {section.heading}")
    return (1 - _HEAD) * encode(passage(section)) + _HEAD * heading
