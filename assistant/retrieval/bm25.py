"""Weigh the words of a question, and score how well texts match it: BM25.

This small implementation needs no index: the manual has a few hundred passages, and logs, up to a
few megabytes, are read anew for each question. Packages such as bm25s or rank-bm25 keep an index of
millions of texts, and SQLite's FTS5 would have to live in the daemon's store, which has no business
with the manual.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+")
_K1, _B = 1.2, 0.75
"""The usual parameters: saturation of repeated words, and normalisation of length.

Source: Robertson and Zaragoza, 2009.
"""
_STOP_WORDS = """
a about after all also am an and any are as at be been before but by can could did do does doing
for from get give go had happen happened happens has have how i if in into is it its just know
let like make many me mean more most much my need needed needs no not now of off on one only or
our please possible put say says shall should show so some support supports tell than that the
their them then there these they thing things this to too up use used using want was way we were
what when where which while who why will with work working works would you your
"""
_ALIKE = (
    (
        "fail",
        "error",
        "exception",
        "traceback",
        "crash",
        "wrong",
        "abort",
        "kill",
        "fatal",
        "fault",
    ),
    ("oom", "memory", "alloc", "allocate", "allocation"),
    ("cancel", "stop", "end", "kill", "abort", "terminate"),
    ("submit", "queue", "start", "launch"),
    ("limit", "timeout", "large", "larger", "largest", "big", "maximum", "most"),
    ("depend", "dependency", "wait", "after"),
    ("index", "indice", "array"),
    ("night", "quiet", "silent", "mute"),
    ("notification", "notify", "alert", "warn", "warning"),
    ("font", "text", "size", "scale", "zoom"),
    ("play", "replay"),
    ("record", "trace"),
    ("delete", "remove", "clean", "trash"),
    ("card", "gpu", "device"),
    ("store", "state", "keep", "kept", "save"),
    ("picture", "screenshot", "image"),
    ("reboot", "restart", "crash"),
)
"""Words that people use for one another."""

_STOP = frozenset(_STOP_WORDS.split())
_PREFIX = 5
"""The least length of a stem that also stands for longer words: depend, dependencies."""

Terms = tuple[frozenset[str], ...]
"""The stems that count as each word of a question."""


def stems(text: str) -> list[str]:
    """Return the words of a text, in lower case and without endings."""
    return [_stem(word) for word in _WORD.findall(text.lower())]


def terms(question: str, but: frozenset[str] = frozenset()) -> Terms:
    """Return the words of a question that carry meaning, without the stems in `but`."""
    known = dict.fromkeys(
        _stem(word) for word in _WORD.findall(question.lower()) if word not in _STOP
    )
    return tuple(
        frozenset((stem, *(other for group in _ALIKE if stem in group for other in group)))
        for stem in known
        if stem not in but
    )


def scores(wanted: Terms, texts: Sequence[Sequence[str]], least: float) -> list[float]:
    """Return how well each text (as stems) answers; 0 if it has less than the share `least`.

    The fewer texts have a word, the more it weighs. A word that none has weighs most, so that a
    question about something else finds nothing.
    """
    counts = _counts(wanted, texts)
    having = [sum(1 for count in counts if count[i]) for i in range(len(wanted))]
    weights = [math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for n in having]
    average = sum(map(len, texts)) / max(len(texts), 1) or 1.0
    total = sum(weights) or 1.0
    found = []
    for text, count in zip(texts, counts, strict=True):
        norm = _K1 * (1 - _B + _B * len(text) / average)
        share = sum(w for w, n in zip(weights, count, strict=True) if n) / total
        score = sum(w * n * (_K1 + 1) / (n + norm) for w, n in zip(weights, count, strict=True))
        found.append(score if share >= least else 0.0)
    return found


def _counts(wanted: Terms, texts: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return how often each text has each of the wanted words."""
    known = {word for text in texts for word in text}
    means = {
        word: found
        for word in known
        if (
            found := [i for i, group in enumerate(wanted) if any(_is(word, stem) for stem in group)]
        )
    }
    counts = []
    for text in texts:
        count = [0] * len(wanted)
        for word in text:
            for i in means.get(word, ()):
                count[i] += 1
        counts.append(count)
    return counts


def _is(word: str, stem: str) -> bool:
    return word == stem or (len(stem) >= _PREFIX and word.startswith(stem))


def _stem(word: str) -> str:
    """Return a word without the endings of plurals and verbs: jobs, cancelled, running."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    for ending in ("ing", "ed", "es", "s"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 2 and not rest.endswith("s"):
            return _single(rest) if ending in ("ing", "ed") else rest
    return word


def _single(rest: str) -> str:
    """Remove a doubled consonant: running -> runn -> run, stopped -> stop; killed stays kill."""
    return rest[:-1] if len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz" else rest
