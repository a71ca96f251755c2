"""Read what a request means: the encoder's states, and heads on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from gpudeck.assistant.reader.encoder import Array, Encoded, Encoder
from gpudeck.assistant.reader.labels import SPANS
from gpudeck.language.languages import LANGUAGES, Language
from gpudeck.scheduler.protocol import paths

TAGS = ("", *(f"{start}-{name}" for name in SPANS for start in "BI"))
CLASSES = "classes.json"
_MOST = 3
_KEPT = 8
"""Requests whose states are kept: one is read as a whole, by its parts, and to search for it."""
_FAR = 1000.0
"""A request is in another language than the usual one if that is so many times as probable."""
_WORD = re.compile(r"(?:(?:~|\.{1,2})?/)?[@\w](?:[\w*@%°€$]|[-.:/=,'’](?=\w))*%?|-+\w[\w=.-]*")
"""A word of a request: a name, a number with its sign, a path or a time."""


_LETTERS = re.compile(r"[^\W_]+(?:[-'’_.][^\W_]+)*")
_LATER = frozenset({"if", "at"})
"""Fields of what makes an order none for now."""
_LISTED = frozenset({"jobs", "gpus", "except", "after", "after_any", "user", "group", "tag"})
"""Fields that may have several values, so that one that was found says nothing of another."""


class Loose(NamedTuple):
    """Hold a word of a request that is in no field."""

    first: int
    last: int
    filler: float
    """How probably it says nothing more: no piece of it has a field, or only that of the letters
    directly behind it, or one that was found and has one value, as the article before a day may."""


class Reading(NamedTuple):
    """Hold what a request probably means, in the words of `labels`."""

    heads: tuple[tuple[str, float], ...]
    """The likeliest heads with their probabilities, the likeliest first."""
    second: str
    """The head of a second meaning, or an empty text."""
    marks: frozenset[str]
    spans: tuple[tuple[str, str], ...]
    """Fields with their letters, in the order of the request."""
    places: tuple[tuple[int, int], ...]
    """Where these letters stand."""
    pages: tuple[float, ...]
    """How probably each page of the manual has the answer, if the question is for it."""
    languages: tuple[float, ...] = ()
    """How probably the request is in each of LANGUAGES."""
    certainty: float = 1.0
    """How probably all marks and the fields of all letters are right, if the head is."""
    loose: tuple[Loose, ...] = ()
    """The words that the encoder finds in no field."""
    plain: float = 1.0
    """How probably this is an order for now: no talk and no question, not only supposed, and with
    no condition and no later time but those that are found."""

    @property
    def head(self) -> str:
        """Return the likeliest head."""
        return self.heads[0][0]

    def language_for(self, usual: Language) -> Language:
        """Return the language of the request, or the usual one where that may be meant."""
        chances = dict(zip(LANGUAGES, self.languages, strict=False))
        best = max(chances, key=chances.__getitem__, default=usual)
        return best if chances.get(best, 0.0) >= _FAR * chances.get(usual, 1.0) else usual

    @property
    def chance(self) -> float:
        """Return the probability of the likeliest head."""
        return self.heads[0][1]


class Classes(msgspec.Struct, frozen=True):
    """Name what the weights tell apart: a table of labels may grow before they do."""

    heads: tuple[str, ...]
    marks: tuple[str, ...]


class Reader:
    """Hold the encoder and its heads."""

    def __init__(self, encoder: Encoder, weights: dict[str, Array], classes: Classes) -> None:
        self.encoder, self._weights, self._classes = encoder, weights, classes
        self.encoded = lru_cache(_KEPT)(self._encoded)
        """Return the states of a request behind what the last one meant, which are kept for the
        search in the manual."""

    @classmethod
    def load(cls, folder: Path) -> Reader:
        """Load the reader from its folder."""
        encoder = Encoder.load(folder)
        names = ("head", "second", "mark", "page", "tag", "language")
        weights = {f"{name}.{kind}": encoder.weights[f"{name}.{kind}"] for name in names
                   for kind in "wb"}  # fmt: skip
        classes = msgspec.json.decode((folder / CLASSES).read_bytes(), type=Classes)
        return cls(encoder, weights, classes)

    def read(self, request: str, before: str = "") -> Reading:
        """Return what a request means.

        Args:
            request: The request as it was typed.
            before: What the last request meant (`labels.described`).
        """
        start, encoded = opening(before), self.encoded(request, before)
        x = encoded.states
        whole = whole_of(x)
        chances = _softmax(self._logits("head", whole))
        best = np.argsort(-chances)[:_MOST]
        second = int(self._logits("second", whole).argmax())
        marking, tagging = self._logits("mark", whole), self._logits("tag", x)
        marked, tags = np.flatnonzero(marking > 0), tagging.argmax(axis=-1)
        inside = [i for i, (_, end) in enumerate(encoded.places) if end > len(start)]
        heads, marks = self._classes.heads, self._classes.marks
        found = _whole(request, _joined(tags.tolist(), encoded.places, len(start)))
        places = tuple((first, last) for _, first, last in found)
        by_tag = _softmax(tagging[inside])
        pieces = [encoded.places[i] for i in inside]
        return Reading(
            tuple((heads[i], float(chances[i])) for i in best),
            heads[second] if second < len(heads) else "",
            frozenset(marks[i] for i in marked),
            tuple((field, request[first:last]) for field, first, last in found),
            places,
            self.pages(whole),
            tuple(map(float, _softmax(self._logits("language", whole)))),
            _certainty(marking, tagging[inside]),
            tuple(_loose(request, found, pieces, by_tag, len(start))),
            self._plain(chances, marking, by_tag),
        )

    def _encoded(self, request: str, before: str = "") -> Encoded:
        return self.encoder.encode(opening(before) + request, trained=True)

    def _plain(self, chances: Array, marking: Array, by_tag: Array) -> float:
        """Return `Reading.plain`: chances of heads [H] and tags [T, F], logits of marks [M]."""
        heads, marks = self._classes.heads, self._classes.marks
        orders = [i for i, head in enumerate(heads) if head.startswith("order")]
        supposed = _softmax(np.array([marking[marks.index("what_if=yes")], 0.0]))[0]
        of_later = [i for i, tag in enumerate(TAGS) if tag[2:] in _LATER]
        later = by_tag[~np.isin(by_tag.argmax(axis=-1), of_later)][:, of_later].sum(axis=-1)
        return float(chances[orders].sum() * (1 - supposed) * (1 - later.max(initial=0.0)))

    def pages(self, whole: Array) -> tuple[float, ...]:
        """Return how probably each page of the manual answers a request, from `whole_of`."""
        return tuple(map(float, _softmax(self._logits("page", whole))))

    def _logits(self, head: str, x: Array) -> Array:
        found: Array = x @ self._weights[f"{head}.w"] + self._weights[f"{head}.b"]
        return found


def opening(before: str) -> str:
    """Return what stands before a request: what the last request meant."""
    return f"query: {before} | " if before else "query: "


def whole_of(states: Array) -> Array:
    """Return what stands for a whole request: [T, 384] -> [768]."""
    return np.concatenate((states[0], states.mean(axis=0)))


@cache
def shipped_reader() -> Reader:
    """Return the reader that ships with the program; it is loaded once."""
    return Reader.load(paths.request_reader())


def _certainty(marks: Array, tags: Array) -> float:
    """Return the probability of the likeliest marks and tags together: logits [M] and [T, F]."""
    of_marks = -np.log1p(np.exp(-np.abs(marks))).sum()
    highest = tags.max(axis=-1)
    of_tags = -np.log(np.exp(tags - highest[:, None]).sum(axis=-1)).sum()
    return float(np.exp(of_marks + of_tags))


def _softmax(logits: Array) -> Array:
    """Return chances along the last axis."""
    found: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    found /= found.sum(axis=-1, keepdims=True)
    return found


def _filling(by_tag: Array, fields: set[str]) -> Array:
    """Return how probably each piece has no field, or one of these: [T, F] -> [T]."""
    nothing = [i for i, tag in enumerate(TAGS) if not tag or tag[2:] in fields]
    chances: Array = by_tag[:, nothing].sum(axis=-1)
    return chances


def _loose(
    request: str, found: list[tuple[str, int, int]], pieces: list[tuple[int, int]],
    by_tag: Array, start: int,
) -> Iterator[Loose]:  # fmt: skip
    """Yield the words outside of all fields, with the least of `_filling` among their pieces."""
    single = {field for field, _, _ in found} - _LISTED
    for word in _LETTERS.finditer(request):
        first, last = word.span()
        if any(first < end and last > begin for _, begin, end in found):
            continue
        behind = {field for field, begin, _ in found if request[last:begin].isspace()}
        inside = [i for i, (begin, end) in enumerate(pieces)
                  if begin - start < last and end - start > first]  # fmt: skip
        chances = _filling(by_tag[inside], single | behind)
        yield Loose(first, last, float(chances.min(initial=1.0)) if inside else 0.0)


def _whole(request: str, found: Iterator[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Return the fields with their letters extended to whole words, each word for one of them."""
    words = [(match.start(), match.end()) for match in _WORD.finditer(request)]
    made: list[tuple[str, int, int]] = []
    for field, begin, end in found:
        over = [(a, b) for a, b in words if a < end and b > begin]
        if not over:
            continue
        first, last = over[0][0], over[-1][1]
        if made and made[-1][2] > first:
            if made[-1][0] == field:
                made[-1] = (field, made[-1][1], max(last, made[-1][2]))
            continue
        made.append((field, first, last))
    return made


def _joined(
    tags: list[int], places: tuple[tuple[int, int], ...], start: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the fields with the places of their letters in the request."""
    field, first, last = "", 0, 0
    for tag, (begin, end) in zip(tags, places, strict=True):
        kind, _, name = TAGS[tag].partition("-") if end > start else ("", "", "")
        if name and name == field and kind == "I":
            last = end - start
            continue
        if field:
            yield field, first, last
        field, first, last = name, max(begin - start, 0), end - start
    if field:
        yield field, first, last
