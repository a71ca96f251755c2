"""Read `not 19, hold 11` and `hold 19... uh no, 11` as the order that they end with, and
`hold 19... no` as none."""

from __future__ import annotations

import re

from gpudeck.assistant.intents.parser import parse
from gpudeck.assistant.intents.spots import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.request import Order

_JOB = r"(?:(?:the|job|den|die|das|le|la|el|al|no\.|nr\.)\s+)*"
_NOT_THAT = re.compile(
    rf"(?i)^\s*(?:not|nicht|pas|no|non|nein)\s+{_JOB}(?P<wrong>\d+)\s*[,;:]\s*(?P<rest>\D.*)$"
)
_UM = (
    r"\b(?:uh+|um+|er+|oops|sorry|wait|i mean|euh+|pardon|attends|äh+m?|warte|ich meine|eh+"
    r"|perd[oó]n|espera|digo)\b"
)
_HESITATION = rf"(?:(?:\.\.\.?|…|,)?\s*{_UM}|\.\.\.?|…)"
_RATHER = re.compile(
    rf"(?i)^(?P<order>.*?\D)(?P<wrong>\d+)\s*{_HESITATION}[\s,.…]*(?:no|non|nein|nee)?[\s,]*"
    rf"{_JOB}(?P<right>\d+)\s*[.!]?$"
)
"""A bare `no` or `not` before a number may forbid it, so that a sign of hesitation is needed."""
_TAKEN_BACK = re.compile(
    rf"(?i)(?<=[\w`'\"”»)])\s*(?:[.…,;!]|\s[-–—]\s)[\s.…,;!]*"
    rf"(?:(?:{_UM}|\b(?:oh|ah|ach|actually|doch|eigentlich|en fait|en realidad|bueno)\b)[\s,.…]*)*"
    r"(?:no+|nope|nah|nein|nee|nö|non|(?:never ?mind|rather not|don'?t|lieber nicht|doch nicht"
    r"|vergiss es|laisse tomber|plutôt pas|mejor no|olv[ií]dalo|d[eé]jalo))"
    r"(?:[\s,]+(?:no|non|nein|thanks|thank you|danke|merci|gracias|sorry|wait|stop))*\s*[.!…]*$"
)
"""`…, no?` asks for agreement, and takes nothing back."""
_LONGEST_END = 80
"""Characters at the end of a request in which an order may be taken back."""


def taken_back(request: str, known: Known, state: State, now: float) -> bool:
    """Report if a request is an order that its last word takes back."""
    request = request.strip()
    found = _TAKEN_BACK.search(request, max(len(request) - _LONGEST_END, 0))
    if found is None:
        return False
    return isinstance(parse(request[: found.start()], known, state, now).request, Order)


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
