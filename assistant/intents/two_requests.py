"""Read two requests that are asked at once, each by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from msgspec.structs import replace

from gpudeck.assistant.intents.composed import Composed
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.reader.reading import Reading

_JOINS = re.compile(
    r"(?i)\s*[,;]?\s+(?:and|und|et|y|then|dann|puis|luego|&|sowie|plus)\s+(?:then |dann |also "
    r"|auch |aussi )?|[?;.!,]\s+"
)
_MOST_JOINS = 4


def are_asked(found: Reading) -> bool:
    """Return whether a request has a second meaning that is no small talk."""
    return bool(found.second) and not found.second.startswith("talk")


def halves(
    request: str, heads: Collection[str], read: Callable[[str], Composed | None]
) -> tuple[Composed, Composed, str] | None:
    """Return what the halves of a request ask for, and the words between them.

    Args:
        request: The request.
        heads: What the first half may be about.
        read: Reads a half by itself.
    """
    for cut in list(_JOINS.finditer(request))[:_MOST_JOINS]:
        sides = request[: cut.start()], request[cut.end() :]
        if not all(side.strip() for side in sides):
            continue
        first, second = map(read, sides)
        if first is not None and second is not None and first.head in heads:
            return first, second, cut[0].strip()
    return None


def undivided(found: Reading) -> Iterator[Reading]:
    """Yield the two readings of questions that no word parts, which share what is said."""
    if {found.head.partition(" ")[0], found.second.partition(" ")[0]} <= {"ask", "manual"}:
        yield found
        yield found._replace(heads=((found.second, found.chance),))


def together(first: Composed, second: Composed, *, shares: bool) -> Composed | None:
    """Return two questions as one request; None if one of them is an order.

    Args:
        first: What is asked for first.
        second: What is asked for besides.
        shares: Both have the same parts, so that one is left out where both leave it out.
    """
    one, other = first.request, second.request
    if not (isinstance(one, Query) and isinstance(other, Query)):
        return None
    other = other if shares else _about_the_same(one, other)
    left = (tuple(part for part in first.left if part in second.left) if shares
            else (*first.left, *second.left))  # fmt: skip
    resolved = first.resolved if shares else (*first.resolved, *second.resolved)
    return Composed(one, (*first.also, other, *second.also), resolved, first.head, left)


def _about_the_same(first: Query, second: Query) -> Query:
    """Return the second of two questions, with the measure of the first where it names none."""
    if second.measure or first.subject != "devices":
        return second
    if second.subject == "jobs" and first.measure == "energy":
        return replace(second, measure="energy", aggregate="sum")
    return replace(second, measure=first.measure) if second.subject == "devices" else second
