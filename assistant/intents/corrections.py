"""Read `not 19, hold 11` and `hold 19... uh no, 11` as the order that they end with."""

from __future__ import annotations

import re

from assistant.intents.parser import parse
from assistant.intents.spots import Known
from assistant.intents.state import State
from assistant.query.request import Order

_JOB = r"(?:(?:the|job|den|die|das|le|la|el|al|no\.|nr\.)\s+)*"
_NOT_THAT = re.compile(
    rf"(?i)^\s*(?:not|nicht|pas|no|non|nein)\s+{_JOB}(?P<wrong>\d+)\s*[,;:]\s*(?P<rest>\D.*)$"
)
_HESITATION = (
    r"(?:(?:\.\.\.?|…|,)?\s*\b(?:uh+|um+|er+|oops|sorry|wait|i mean|euh+|pardon|attends|äh+m?"
    r"|warte|ich meine|eh+|perd[oó]n|espera|digo)\b|\.\.\.?|…)"
)
_RATHER = re.compile(
    rf"(?i)^(?P<order>.*?\D)(?P<wrong>\d+)\s*{_HESITATION}[\s,.…]*(?:no|non|nein|nee)?[\s,]*"
    rf"{_JOB}(?P<right>\d+)\s*[.!]?$"
)
"""A bare `no` or `not` before a number may forbid it, so that a sign of hesitation is needed."""


def corrected(request: str, known: Known, state: State, now: float) -> str:
    """Return the order that a correction ends with, or the request if it is none.

    It is one only if it is an order for numbered jobs alone, and not for the one taken back.
    """
    if (found := _NOT_THAT.match(request)) is not None:
        meant = found["rest"]
    elif (found := _RATHER.match(request)) is not None:
        meant = found["order"] + found["right"]
    else:
        return request
    order = parse(meant, known, state, now).request
    if not isinstance(order, Order) or order != Order(order.verb, jobs=order.jobs):
        return request
    whole = bool(order.jobs) and all(isinstance(job, int) for job in order.jobs)
    return meant if whole and int(found["wrong"]) not in order.jobs else request
