"""Find names of jobs that a request says in another order or with a word between their parts.

"the onnx export" and "le sweep de lr" are `export-onnx` and `sweep-lr`. The encoder may find one
word of them, or each by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.tokens import unaccented
from gpudeck.assistant.reader.reading import Reading

OF_JOBS = frozenset({"jobs", "except", "after", "after_any", "beside"})
NEEDS_JOBS = frozenset({"ask jobs", "order cancel", "order pause", "order resume", "order retry",
                        "order edit", "order move", "order note"})  # fmt: skip
_LIKE_JOBS = frozenset({"jobs", "group", "model"})
"""Fields that a word of a job's name may get."""
_LINKS = frozenset({"de", "d", "du", "del", "von", "vom", "of", "the"})
"""Words that may stand between two words of a name."""
_WORD = re.compile(r"[^\W_]+")
_BETWEEN = re.compile(r"[\s_'’-]*")


class _Word(NamedTuple):
    said: str
    first: int
    last: int


def with_whole_names(request: str, found: Reading, known: Known) -> Reading:
    """Return a reading in which words that only one job's name has are one part of it."""
    names = {name: frozenset(_said(name)) for name in known.jobs}
    for name, first, last in _windows(request, names):
        parts = [*zip(found.spans, found.places, strict=True)]
        over = [part for part in parts if part[1][0] < last and part[1][1] > first]
        words = len(_WORD.findall(request[first:last]))
        if field := _field_of({span[0] for span, _ in over}, found.head, words):
            ends = [first, last, *(end for _, place in over for end in place)]
            whole = ((field, name), (min(ends), max(ends)))
            parts = sorted([*(part for part in parts if part not in over), whole],
                           key=lambda part: part[1])  # fmt: skip
            found = found._replace(spans=tuple(span for span, _ in parts),
                                   places=tuple(place for _, place in parts))  # fmt: skip
    return found


def _field_of(fields: set[str], head: str, words: int) -> str:
    """Return what words of a name are, by the fields of those that the encoder found."""
    if words == 1:
        return "jobs" if fields == {"model"} and head in NEEDS_JOBS - {"ask jobs"} else ""
    if fields and fields <= (_LIKE_JOBS if head in NEEDS_JOBS else {"jobs", "group"}):
        return "jobs"
    return next(iter(fields)) if len(fields) == 1 and fields <= OF_JOBS else ""


def _windows(request: str, names: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, int, int]]:
    """Yield names, and where words stand in a row that only this name has together."""
    words = [_Word(_plain(match[0]), *match.span()) for match in _WORD.finditer(request)]
    done = 0
    for i, one in enumerate(words):
        having = [name for name in names if _counts(one.said) and one.said in names[name]]
        if i < done or not having:
            continue
        last, said = i, {one.said}
        for j in range(i + 1, len(words)):
            if not _BETWEEN.fullmatch(request[words[j - 1].last : words[j].first]):
                break
            word = words[j].said
            if word in _LINKS:
                continue
            with_it = [name for name in having if word in names[name] - said and _counts(word)]
            if not with_it:
                break
            having, last, said = with_it, j, said | {word}
        done = last + 1
        if len(having) == 1:
            yield having[0], one.first, words[last].last


def _counts(word: str) -> bool:
    """Return whether a word may be one of a name: a number alone is that of a job."""
    return not word.isdecimal()


def _said(text: str) -> list[str]:
    return [_plain(word) for word in _WORD.findall(text)]


def _plain(word: str) -> str:
    return unaccented(word.casefold())
