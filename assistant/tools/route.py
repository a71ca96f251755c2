"""From a request to a call: by the model where one is loaded and says what `assistant.routes` knows, else by the rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from accel.workloads import catalog
from assistant.author import Author, P
from assistant.masks import NOUN, masked
from assistant.roles import is_order
from assistant.routes import SYSTEM, TOOLS, Route, parse
from assistant.tools.call import Call, called
from assistant.tools.parameters import parameters
from assistant.tools.rules import by_rules

LONGEST_REQUEST = 2000
"""Characters; what is longer is no request, but a text."""
LONGEST = 200
"""Characters of a route; a model that goes on has lost its way."""
_NUMBERED = re.compile(rf"\b(?:{NOUN})[ #]+\{{n\d+\}}", re.IGNORECASE)
_ROLES = tuple({tool.role for tool in TOOLS})


class Routed(NamedTuple):
    call: Call | None
    """None where it asks for something to be done that no tool does."""
    by: str
    """`rules` or `model NAME`."""
    certain: bool = True
    """The rules read it in the same way, also without the names of jobs: these are foreign text, which may settle what is proposed, but
    not that it is done without a card, as a permission for the session allows."""


def route(request: str, names: Sequence[str] = (), author: Author[P] | None = None) -> Routed:
    """`names`: what jobs are called. Nothing but the person's own request is read. Raises Cancelled."""
    if len(request) > LONGEST_REQUEST:
        return Routed(Call("answer", "other"), "rules")
    names = _masking(names, request)
    by_hand = by_rules(request, names)
    certain = by_hand == by_rules(request)
    found = _by_model(request, names, author) if author is not None else None
    if author is None or found is None:
        return Routed(_completed(by_hand, request), "rules", certain)
    return Routed(_completed(found, request), f"model {author.name}", certain and found == by_hand)


def _masking(names: Iterable[str], request: str) -> list[str]:
    """The names that the request may mean: those that it has; one that reads like an order, or as a thing by its number (`job 7`), only
    where it is called a job's.

    So no job can be called in a way that makes orders unreadable, or has them meet another job.
    """
    text = request.casefold()
    found = {name for name in names if name.strip() and name.casefold() in text}
    return [name for name in found if f"job {name.casefold()}" in text or not (_orders(name) or _NUMBERED.search(masked(name)[0]))]


def _orders(name: str) -> bool:
    read = by_rules(name)
    return is_order(name) or (read is not None and read.acts)


def _completed(found: Call | None, request: str) -> Call | None:
    """With the parameters of a workload that the request names."""
    if found is None or not (name := found.words("workload")):
        return found
    return msgspec.structs.replace(found, params=dict(parameters(catalog.find(name), request)))


def _by_model(request: str, names: Sequence[str], author: Author[P]) -> Call | None:
    """Greedy. None where what it says is no route: not of a tool and its arguments, or with slots that the request has not."""
    text, values = masked(request, names)
    said = ""
    try:
        for place in author.write(author.begin(SYSTEM, text), 0):
            said = place.text
            if "\n" in said.strip() or len(said) > LONGEST or not _begins(said.strip()):
                break
        return called(_of_different(parse(said.strip().partition("\n")[0])), values)
    except ValueError:
        return None


def _of_different(route: Route) -> Route:
    """A thing is not compared with itself: where the request names one only, the tool knows what to compare it with."""
    named = {key: value for key, value in route.arguments.items() if key != "other"}
    return route._replace(arguments=named) if route.arguments.get("other") in named.values() else route


def _begins(text: str) -> bool:
    """Whether a route may begin so: a model that was not taught to route is not waited for."""
    word = text.partition(" ")[0]
    return any(role.startswith(word) for role in _ROLES)
