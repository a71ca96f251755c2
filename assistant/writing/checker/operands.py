"""Find what a comparison compares: values of the text, of facts, or a threshold."""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Bound, Clause, kind_of, owners
from gpudeck.assistant.writing.checker.known import VALUE, Known
from gpudeck.assistant.writing.checker.lengths import in_base_unit
from gpudeck.assistant.writing.checker.tokens import Token

Operand = tuple[float, str]
"""A value in the unit of facts, with its field."""


def operands(
    clause: Clause, place: int, how: lexicon.Comparative, of: Known
) -> tuple[Operand | None, Operand | None]:
    """Return both operands, each with its field."""
    gap = gap_after(clause, place)
    right = next((_number(b) for b in clause.values if b.place > place and b.place != gap), None)
    left = _before(clause, place, right, how)
    apart = clause.tokens[place - 1] if place else None
    if left is None and right is None and apart is not None and apart.kind == "value":
        given = in_base_unit(apart.text)  # of `3 °C above its mean` only the unit is told
        devices = owners(clause, place).get("device", frozenset())
        left = _of_one(of, devices, {given[1]}, "") if given is not None else None
    if left is None and right is None and clause.has({"limit"}):
        kept = "power.max" if clause.has(lexicon.LASTING) else "power"
        power = _of_one(of, owners(clause, place).get("device", ()), {kept}, "")
        left = (power[0], "power") if power is not None else None
    field = right[1] if right else left[1] if left else ""
    fields = how.fields or ({field} if field else _fields(clause))
    alone = not any(t.kind == "subject" for t in clause.tokens[:place])
    subjects = clause.inherited if alone and clause.inherited else owners(clause, place)
    if right is None:
        right = _not_told(clause, place, of, fields, left)
    if left is None and right is not None:
        first = [s for t in clause.tokens[:place] if t.kind == "subject" for s in t.subjects]
        kind = kind_of(first[0]) if first else ""
        who = frozenset(first) if first else subjects.get(kind or "device", frozenset())
        left = _of_one(of, who, how.fields or _part(right[1]), "", how.sign)
    return left, right


def _not_told(
    clause: Clause, place: int, of: Known, fields: Iterable[str], left: Operand | None
) -> Operand | None:
    """Return the second operand where the text names no value of a fact for it."""
    others = [t for t in clause.tokens[place + 1 :] if t.kind == "subject"]
    if not others and not clause.has({"than"}):
        clauses = (clause.before, clause.after)
        others = next((found for at in clauses if at and (found := _compared(at))), [])
    if gap_after(clause, place) is not None:
        if others:
            return _of_one(of, others[0].subjects, fields, left[1] if left else "")
        than = any(text == "than" for i, text in clause.words() if i > place)
        return None if than else _of_the_other(clause, place, of, fields)
    beside = any(t.kind == "value" for t in clause.tokens[place + 1 : place + 3])
    if beside and (threshold := _threshold(clause, place)) is not None:
        return threshold
    if others:
        return _of_one(of, others[0].subjects, fields, left[1] if left else "")
    return _of_stat(clause, place, of, left) or _threshold(clause, place)


def _compared(clause: Clause) -> list[Token]:
    """Return what stands after the comparing word of a clause, for one that goes on from it."""
    words = [i for i, text in clause.words() if text in lexicon.COMPARATIVES]
    return [t for t in clause.tokens[words[-1] :] if t.kind == "subject"] if words else []


def _part(field: str) -> set[str]:
    """Return the field that is compared with a field: power with its limit."""
    return {"power"} if field == "power_limit" else {field}


def _fields(clause: Clause) -> set[str]:
    found = {f for _, text in clause.words() for f in lexicon.FIELD_WORDS.get(text, ())}
    compared = frozenset[str]().union(*lexicon.FAMILIES) - {"use", "process"}
    return {"mem_free"} if "mem_free" in found else found & compared


def _before(
    clause: Clause, place: int, right: Operand | None, how: lexicon.Comparative
) -> Operand | None:
    """Return the last value before the comparing word that can be compared."""
    at: Clause | None = clause
    found = [b for b in clause.values if b.place < place]
    named = any(t.kind == "subject" for t in clause.tokens[:place])
    while at is not None:
        for bound in reversed(found):
            number = _number(bound)
            fits = right is None or same_kind(number[1], right[1])
            if fits and (not how.fields or number[1] in how.fields or right is not None):
                return number
        if named:
            return None
        at = at.before
        found = at.values if at is not None else []
    return None


def _of_one(
    of: Known, subjects: Iterable[str], fields: Iterable[str], preferred: str, sign: int = -1
) -> Operand | None:
    """Return the value now of a subject in the field that it has.

    Of several subjects it is that of the one for which a comparison is least likely to hold.
    """
    who = list(subjects)
    order = sorted(set(fields), key=lambda f: (f != preferred, f))
    for field in order:
        values = [_amount(of, subject, field) for subject in who]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            return (min if sign > 0 else max)(known), field
    return None


def _amount(of: Known, subject: str, field: str) -> float | None:
    """Return a value now; for `idle for 2 h 5 min` the time in seconds."""
    value = of.value(subject, field)
    if field == "use":
        found = [VALUE.search(fact.said) for fact in of.of(subject, field) if value == "idle"]
        lengths = [in_base_unit(m[0]) for m in found if m is not None]
        return lengths[0][0] if lengths and lengths[0] is not None else None
    return float(value) if isinstance(value, int | float) else None


def gap_after(clause: Clause, place: int) -> int | None:
    """Return the place of the difference in `cooler by 15 °C`."""
    by = [token.text for token in clause.tokens[place + 1 : place + 2]] == ["by"]
    value = [token.kind for token in clause.tokens[place + 2 : place + 3]] == ["value"]
    return place + 2 if by and value else None


def _of_the_other(clause: Clause, place: int, of: Known, fields: Iterable[str]) -> Operand | None:
    """Return the value of the other device where there are two, as a difference names one only."""
    devices = owners(clause, place).get("device", frozenset())
    peers = {s for s in of.subjects if kind_of(s) == "device"}
    if len(devices) != 1 or len(peers) != 2:
        return None
    return _of_one(of, peers - devices, fields, "")


def _of_stat(clause: Clause, place: int, of: Known, left: Operand | None) -> Operand | None:
    """Return what `its peak` is after a comparing word, of the device that is spoken of."""
    named = [(i, lexicon.STAT_WORDS.get(text)) for i, text in clause.words() if i > place]
    stats = [(i, stat) for i, stat in named if stat is not None]
    devices = owners(clause, place).get("device", frozenset())
    limit = [i for i, text in clause.words() if i > place and text in ("limit", "limit of")]
    if left is not None and left[1] == "power" and limit and not stats and len(devices) == 1:
        found = of.value(next(iter(devices)), "power_limit")
        clause.used |= set(limit)
        return (float(found), "power_limit") if isinstance(found, int | float) else None
    if left is None or len(stats) != 1 or len(devices) != 1:
        return None
    value = of.value(next(iter(devices)), f"{left[1]}.{stats[0][1]}")
    if not isinstance(value, int | float):
        return None
    clause.used.add(stats[0][0])
    return float(value), left[1]


def _threshold(clause: Clause, place: int) -> Operand | None:
    """Return a value after the comparing word that is no fact: `more than two hours`."""
    bound = {b.place for b in clause.values}
    for i, token in enumerate(clause.tokens[place:], place):
        between = [t.text for t in clause.tokens[place + 1 : i]]
        if token.kind == "value" and any(
            t in lexicon.STAT_WORDS or t in lexicon.STRICT for t in between
        ):
            return None  # it is the value of a fact, or of none
        given = in_base_unit(token.text) if token.kind == "value" and i not in bound else None
        if given is not None:
            clause.used.add(i)
            family = next(f for f in lexicon.FAMILIES if given[1] in f)
            named = [lexicon.FIELD_WORDS.get(text, frozenset()) for _, text in clause.words()]
            fields = sorted(frozenset[str]().union(*named) & family) or [given[1]]
            return (given[0], fields[0]) if len(fields) == 1 else None
    return None


def _number(bound: Bound) -> tuple[float, str]:
    value = bound.fact.value
    return (float(value) if isinstance(value, int | float) else float("nan")), bound.field


def same_kind(one: str, other: str) -> bool:
    return one == other or any(one in f and other in f for f in lexicon.FAMILIES)
