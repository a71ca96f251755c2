"""Check words that grade a value without a number: `hot`, `nearly full`, `constant`."""

from __future__ import annotations

from gpudeck.assistant.facts import FIELDS_SPAN
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, owners
from gpudeck.assistant.writing.checker.known import Known

_GRADES = {
    "overheating": ("temp", 80.0, 999.0),
    "hot": ("temp", 65.0, 999.0),
    "cool": ("temp", 0.0, 55.0),
    "cold": ("temp", 0.0, 45.0),
    "full": ("mem_share", 85.0, 100.0),
    "plenty-free": ("free_share", 40.0, 100.0),
    "little-free": ("free_share", 0.0, 12.0),
    "full-load": ("util", 90.0, 100.0),
    "warm": ("temp", 50.0, 999.0),
    "immediately": ("duration", 0.0, 5.0),
    "soon": ("left", 0.0, 300.0),
    "shortly": ("left", 0.0, 300.0),
    "nearly-done": ("progress", 80.0, 100.0),
}
"""By word: the field, and between which values it may be used of it."""
_STEADY = ("constant", "steady", "unchanged", "stable", "flat")


def check_grades(clause: Clause, of: Known) -> None:
    """Check every grading word that is told of a device. Raises Refused."""
    for place, text in clause.words():
        if text in _STEADY:
            values = [b for b in clause.values if b.field in FIELDS_SPAN]
            if not values or not all(_is_steady(of, b.fact.subject, b.field) for b in values):
                raise Refused(f"it says {text!r}, which no fact says")
            clause.used.add(place)
        if text not in _GRADES:
            continue
        if text == "full" and any(token.text.endswith("%") for token in clause.tokens):
            continue
        field, least, most = _GRADES[text]
        kind = "job" if field in ("progress", "left", "duration") else "device"
        devices = owners(clause, place).get(kind, frozenset())
        if not devices:
            continue
        past = field == "util" and clause.has(lexicon.PAST | {"throughout"})
        field = "util.mean" if past else field
        graded = [v for d in devices if isinstance(v := of.value(d, field), int | float)]
        if not graded and text not in lexicon.FIELD_WORDS:
            continue
        denied = {i for i, t in clause.words() if i < place and t in lexicon.NEGATIONS}
        clause.used |= denied
        if not graded or not all((least <= v <= most) is not bool(denied) for v in graded):
            raise Refused(f"it says {text!r}, which no fact says")
        clause.used.add(place)


def _is_steady(of: Known, device: str, field: str) -> bool:
    return of.value(device, f"{field}.mean") == of.value(device, f"{field}.max")
