"""Find the part of a reading that its order does not use: it would be lost without a word.

There is no list of what each order uses: a part is used if the order is another one without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpudeck.assistant.intents.moments import with_digits
from gpudeck.assistant.intents.priorities import priority_of
from gpudeck.assistant.intents.values import Unread
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.reader.reading import Reading

_TOGETHER = frozenset({"jobs", "except", "pid", "priority", "notes", "setting", "value",
                       "command", "gpu_type"})  # fmt: skip
"""Fields all letters of which are read, so that two may say the same."""
_OWN = frozenset({"user", "group", "states", "preemptible", "hold"})
"""Fields whose marks say what no letters say besides."""


def lost_part(
    request: str, found: Reading, order: Order, read: Callable[[str, Reading], Order]
) -> str:
    """Return the letters of a part without which the order is the same, or the name of its field.

    The text is empty if the order uses all parts.

    Args:
        request: The request.
        found: What was read in it.
        order: The order that was made of that.
        read: Makes the order of a request and its reading.
    """

    def is_same(text: str, rest: Reading) -> bool:
        try:
            return read(text, rest) == order
        except (Unread, ValueError, KeyError):
            return False

    for index, (field, letters) in enumerate(found.spans):
        if not _says_nothing(field, letters) and is_same(
            *_without(request, found, {*_with(found, index)})
        ):
            return letters
    for mark in sorted(found.marks):
        field = mark.partition("=")[0]
        same = {mark, "jobs=@all"} if field == "states" else {mark}  # all are those in its states
        if field in _OWN and is_same(request, found._replace(marks=found.marks - same)):
            return field
    return ""


def _says_nothing(field: str, letters: str) -> bool:
    """Return whether letters say nothing besides what an order has.

    They are the day on which a job failed that is run again, which `order_refusals` has compared
    with now, and a word such as `bump` for the place that a job gets.
    """
    is_level = priority_of(letters) is not None or re.search(r"\d", with_digits(letters))
    return field == "time" or (field == "priority" and not is_level)


def _with(found: Reading, index: int) -> Iterator[int]:
    """Yield a span with those that are one value with it, by their places in the reading."""
    field = found.spans[index][0]
    yield index
    if field in _TOGETHER:
        yield from (at for at, span in enumerate(found.spans) if span[0] == field)


def _without(request: str, found: Reading, left_out: set[int]) -> tuple[str, Reading]:
    """Return a request and its reading without some spans, which are blanks in the request."""
    letters = list(request)
    for first, last in (found.places[index] for index in left_out):
        letters[first:last] = " " * (last - first)
    kept = [index for index in range(len(found.spans)) if index not in left_out]
    spans = tuple(found.spans[index] for index in kept)
    places = tuple(found.places[index] for index in kept)
    return "".join(letters), found._replace(spans=spans, places=places)
