"""Check comparisons and superlatives against the values of what is compared."""

from __future__ import annotations

from gpudeck.assistant.facts import FIELDS_SPAN
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, kind_of, owners
from gpudeck.assistant.writing.checker.known import Known, in_base_unit, step_of
from gpudeck.assistant.writing.checker.operands import gap_after, operands, same_kind
from gpudeck.assistant.writing.checker.values import is_best


def check_comparisons(clause: Clause, of: Known) -> None:
    """Check every comparing word of a clause. Raises Refused."""
    for place, word in list(clause.words()):
        if word in lexicon.COMPARATIVES:
            _compare(clause, place, lexicon.COMPARATIVES[word], of)
            clause.used.add(place)
        elif word in lexicon.SUPERLATIVES:
            _check_best(clause, place, lexicon.SUPERLATIVES[word], of)
            clause.used.add(place)
        elif word.startswith("never "):
            _check_bound(clause, place, of)
        elif word == "close to limit":
            _check_near_limit(clause, place, of)


def _compare(clause: Clause, place: int, how: lexicon.Comparative, of: Known) -> None:
    word = clause.tokens[place].text
    refused = f"it says {word!r}, which the facts do not say"
    if (others := _any_other(clause, place)) or _within_a_check(clause, place, how.sign):
        if others:
            fields = how.fields or {b.field for c in (clause, clause.before) if c for b in c.values}
            _check_best(clause, place, how._replace(fields=frozenset(fields)), of)
        return
    denied = {i for i, text in clause.words() if text in lexicon.NEGATIONS and i < place}
    if denied:  # `neither is warmer than` claims that both are as warm or cooler
        how = how._replace(sign=-how.sign)
    left, right = operands(clause, place, how, of)
    if left is not None and any(clause.tokens[i].text == "never" for i in denied):
        left = _farthest(clause, place, left[1], how, of)
    if left is None or right is None or not same_kind(left[1], right[1]):
        raise Refused(f"it says {word!r}, but not clearly of what")
    clause.used |= {i for i, text in clause.words() if left[1] in lexicon.FIELD_WORDS.get(text, ())}
    factor = 2.0 if any(text == "twice" for _, text in clause.words()) else 1.0
    apart = how.sign * (left[0] - factor * right[0])
    if not (apart >= 0 if denied else apart > 0):
        raise Refused(refused)
    clause.used |= denied | {i for i, text in clause.words() if text == "twice"}
    at = gap_after(clause, place) or place - 1
    gap = clause.tokens[at] if at >= 0 else None
    if gap is not None and gap.kind == "value" and not any(b.place == at for b in clause.values):
        given = in_base_unit(gap.text)
        if given is None or abs(abs(left[0] - right[0]) - given[0]) > 0.5 * step_of(gap.text):
            raise Refused(refused)
        clause.used.add(at)


def _farthest(
    clause: Clause, place: int, field: str, how: lexicon.Comparative, of: Known
) -> tuple[float, str] | None:
    """Return the highest value of a device, or the lowest, for `never drew more than V`."""
    end = "max" if how.sign < 0 else "min"
    devices = owners(clause, place).get("device", frozenset())
    values = [of.value(device, f"{field}.{end}") for device in devices]
    known = [float(value) for value in values if isinstance(value, int | float)]
    return (max(known) if end == "max" else min(known), field) if known else None


def _any_other(clause: Clause, place: int) -> bool:
    """Return True for `more than any other GPU`, and mark its words as checked."""
    rest = [token.text for token in clause.tokens[place + 1 : place + 5]]
    found = rest[:1] == ["than"] and any(r in ("other", "others") for r in rest)
    if found:
        clause.used |= {
            i for i, text in clause.words() if i > place and text in ("any", "all", "every", "each")
        }
    return found


def _within_a_check(clause: Clause, place: int, sign: int) -> bool:
    """Return True for `0.03 is above the 0.001 allowed`, two values of one check, if it is so."""
    before = [i for i, t in enumerate(clause.tokens[:place]) if t.kind == "value"][-1:]
    after = [i for i, t in enumerate(clause.tokens) if t.kind == "value" and i > place][:1]
    for one, other in zip(before, after, strict=False):
        left, right = clause.tokens[one], clause.tokens[other]
        checks = [f for f in left.facts if ".check" in f.name and f in right.facts]
        try:
            apart = sign * (float(left.text) - float(right.text))
        except ValueError:
            return False
        if checks and apart > 0:
            clause.used |= {one, other}
            return True
    return False


def _check_near_limit(clause: Clause, place: int, of: Known) -> None:
    """Check `close to its limit`: at least nine tenths of the power limit are drawn now."""
    for device in owners(clause, place).get("device", frozenset()):
        power, limit = of.value(device, "power"), of.value(device, "power_limit")
        known = isinstance(power, int | float) and isinstance(limit, int | float)
        if not known or power < 0.9 * limit:  # type: ignore[operator]
            raise Refused("it says that a limit is near, which no fact says")
        clause.used.add(place)


def _check_bound(clause: Clause, place: int, of: Known) -> None:
    """Check `never above V`: V is the highest value itself, or a limit that it did not exceed."""
    for bound in clause.values:
        if bound.field == "power_limit":
            who = owners(clause, place).get("device", frozenset())
            highest = [of.value(subject, "power.max") for subject in who or {bound.fact.subject}]
            limit = bound.fact.value
            if not all(_at_most(h, limit) for h in highest):
                raise Refused("it says that a limit was kept, which no fact says")
    if not any(bound.place > place for bound in clause.values):
        raise Refused(f"it says {clause.tokens[place].text!r}, but not of what value")
    clause.used.add(place)


def _at_most(value: object, limit: object) -> bool:
    known = isinstance(value, int | float) and isinstance(limit, int | float)
    return known and value <= limit  # type: ignore[operator]


def _check_best(clause: Clause, place: int, how: lexicon.Comparative, of: Known) -> None:
    """Check that a device or job is the hottest, fastest, ... of all."""
    named = [t for t in clause.tokens if t.kind == "subject"]
    who = named[0].subjects if len(named) == 1 else frozenset[str]()
    if not who and clause.inherited:
        who = frozenset().union(*clause.inherited.values())
    refused = f"it says {clause.tokens[place].text!r}, which the facts do not say"
    if len(who) != 1:
        raise Refused(refused)
    (subject,) = who
    for field in how.fields:
        peers = {
            s: float(v)
            for s in of.subjects
            if kind_of(s) == kind_of(subject) and isinstance(v := of.value(s, field), int | float)
        }
        if subject in peers:
            best = max(peers, key=lambda s: how.sign * peers[s])
            if best == subject and list(peers.values()).count(peers[best]) == 1:
                return
            raise Refused(refused)
    raise Refused(refused)


def check_most(clause: Clause, of: Known) -> None:
    """Check `has the highest rate` and `draws the most power`, where several devices have one."""
    for i, text in list(clause.words()):
        if not is_best(clause, i):
            continue
        sign = 1 if text in ("highest", "most") else -1
        clause.used.add(i)
        fields = {f for _, t in clause.words() for f in lexicon.FIELD_WORDS.get(t, ())}
        fields &= {*FIELDS_SPAN, "mem_free", "energy"}
        fields |= {b.field for b in clause.values if b.field in FIELDS_SPAN}
        _check_best(clause, i, lexicon.Comparative(sign, frozenset(fields)), of)
