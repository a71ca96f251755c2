"""Find what exists for what people call it: by parts of its name, or by their meaning.

"the onnx one" is the job `export-onnx`, and "le nettoyage de texte" the job `clean-text`. Whatever
people call a thing is compared with the names that exist; no words have a meaning of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudeck.assistant.intents.names import Known, misspelt, named
from gpudeck.assistant.intents.spoken_names import NEEDS_JOBS, OF_JOBS
from gpudeck.assistant.intents.tokens import unaccented
from gpudeck.assistant.reader.encoder import Array
from gpudeck.assistant.reader.reading import Reading, shipped_reader

_LIKE = 0.865
"""From this likeness on a name is meant. Of 15 callings in four languages 10 had it, all for the
right name; of 6 things without a name none had it."""
_NEAR = 0.015
"""Names that are so much less like it may be meant as well."""
_MOST = 3
_SHORTEST = 6
"""Letters of what has a meaning that can be compared."""
_STEM = 4
"""Letters at least that two words have to begin with in common, if one of them is longer."""
_CALLING = re.compile(r"[^\W\d_]{2}|(?<![^\W_])\d+[^\W\d_](?![^\W_])")
"""Letters that may be a name, as those of `70b` are; a number is none."""
_WORD = re.compile(r"(?<![^\W_])(?:[^\W_]{3,}|\d[^\W\d_])(?![^\W_])")
_AT_ONCE, _KEPT = 15, 1000
_VECTORS: dict[str, Array] = {}
"""The vectors of names that were compared."""
_WHICH = frozenset({"jobs", "group", "user", "tag", "gpus", "time", "limit", "above", "below"})
_OF_ENDED = frozenset({"order retry", "order submit"})


def alternatives(found: Reading, known: Known, request: str) -> tuple[Reading, ...]:
    """Return a reading with names that exist in place of what things are called in it.

    Where several may be meant there are several readings, the likeliest first. Where nothing says
    which jobs are meant, the request may have a part of a name.
    """
    if found.head in NEEDS_JOBS and not _says_which(found):
        words = " ".join(word for word in _words(request) if len(word) >= _STEM)
        names = _best(words, known.jobs)
        # A whole word names an ended job; "my training" may be another than `train`.
        said = set(_words(words))
        whole = tuple(name for name in names if said & set(_words(name)))
        names = tuple(name for name in names if name in known.active) or whole
        return tuple(_with(found, len(found.spans), ("jobs", name)) for name in names[:_MOST]) or (
            found,
        )
    for place, (field, letters) in enumerate(found.spans):
        names = _names(field, known)
        if not names or not _CALLING.search(letters) or letters in names:
            continue
        called = () if field == "user" else _best(letters, names)
        called = called or misspelt(letters, names)
        if not called and field != "group":  # "weekly" is like "nightly", and not meant by it
            called = _like(letters, names, known)
        if not _is_about_ended(found):
            called = tuple(name for name in called if name in known.active) or called
        called = tuple(filter(None, (named(letters, names),))) or called
        if not called and field == "jobs" and _is_ones_own(found):
            return alternatives(_without(found, place), known, request)
        if called and called != (letters,):
            each = [_with(found, place, (field, name)) for name in called[:_MOST]]
            return tuple(one for of in each for one in alternatives(of, known, request))[:_MOST]
    return (found,)


def _names(field: str, known: Known) -> tuple[str, ...]:
    """Return the names of what a field is for; jobs may be called by their group."""
    if field == "user":
        return known.users
    if field == "group":
        return known.groups
    if field not in OF_JOBS:
        return ()
    return tuple(dict.fromkeys((*known.jobs, *(known.groups if field == "jobs" else ()))))


def _says_which(found: Reading) -> bool:
    """Return whether anything says which jobs are meant."""
    fields = {field for field, _ in found.spans} - {"command", "notes", "words"}
    marks = {mark.partition("=")[0] for mark in found.marks} - {"measure", "change", "place"}
    return bool(fields & _WHICH or marks & (_WHICH | {"states", "which", "combine", "queue", "by"}))


def _is_about_ended(found: Reading) -> bool:
    return found.head in _OF_ENDED or "measure=why_failed" in found.marks


def _is_ones_own(found: Reading) -> bool:
    """Return whether a question is about something of the person's own, such as `my training`."""
    return found.head == "ask jobs" and "user=@me" in found.marks


def _without(found: Reading, place: int) -> Reading:
    spans = (*found.spans[:place], *found.spans[place + 1 :])
    return found._replace(spans=spans, places=(*found.places[:place], *found.places[place + 1 :]))


def _with(found: Reading, place: int, span: tuple[str, str]) -> Reading:
    spans = (*found.spans[:place], span, *found.spans[place + 1 :])
    places = found.places if len(spans) == len(found.places) else (*found.places, (0, 0))
    return found._replace(spans=spans, places=places)


def _like(letters: str, names: tuple[str, ...], known: Known) -> tuple[str, ...]:
    """Return the names whose meaning is most like that of letters; a user is no job."""
    if len(letters) < _SHORTEST or named(letters, known.users):
        return ()
    asked = _vector(letters)
    ordered = sorted(names, key=lambda name: name not in known.active)
    near = sorted(((float(one @ asked), name) for name, one in _compared(ordered)), reverse=True)
    return tuple(name for like, name in near if like >= max(_LIKE, near[0][0] - _NEAR))


def _best(letters: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that have the most words in common with letters."""
    said = _words(letters)
    scores = [_shared(said, name) for name in names]
    best = max(scores, default=0.0)
    return tuple(name for name, at in zip(names, scores, strict=True) if at == best) if best else ()


def _shared(said: list[str], name: str) -> float:
    """Return how many words of a name are among those that were said; its first one counts more."""
    same = [any(_is_same(word, part) for word in said) for part in _words(name)]
    return sum(same) + 0.5 * bool(same and same[0])


def _words(text: str) -> list[str]:
    return _WORD.findall(unaccented(text.casefold()))


def _is_same(word: str, part: str) -> bool:
    short, long = sorted((word, part), key=len)
    return word == part or (len(short) >= _STEM and long.startswith(short))


def _compared(names: Iterable[str]) -> Iterator[tuple[str, Array]]:
    """Yield names with their vectors: all that were encoded before, and the first of the others.

    A name takes some 18 ms of a core, so that one request encodes a few, and the next ones more.
    """
    left = _AT_ONCE
    for name in names:
        if name not in _VECTORS and left > 0:
            left -= 1
            if len(_VECTORS) >= _KEPT:
                _VECTORS.pop(next(iter(_VECTORS)))
            _VECTORS[name] = _vector(name)
        if name in _VECTORS:
            yield name, _VECTORS[name]


def _vector(text: str) -> Array:
    return shipped_reader().encoder.vector("query: " + " ".join(re.split(r"[\W_]+", text)))
