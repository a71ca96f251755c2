"""Check comparisons and superlatives against the values of what is compared."""

from __future__ import annotations

from gpudeck.assistant.facts import FIELDS_SPAN
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, kind_of, owners
from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import VALUE, Known
from gpudeck.assistant.writing.checker.lengths import in_base_unit, step_of
from gpudeck.assistant.writing.checker.operands import Operand, gap_after, operands, same_kind
from gpudeck.assistant.writing.checker.stats import is_best

_TWICE = lexicon.words("twice double")


def check_comparisons(clause: Clause, of: Known) -> None:
    """Check every comparing word of a clause. Raises Refused."""
    for place, word in list(clause.words()):
        if place in clause.used and clause.tokens[place].number is None and _bounds(clause, place):
            continue
        if word in _TWICE and clause.has(lexicon.words("more less")):
            continue  # `more than twice`
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


def _bounds(clause: Clause, place: int) -> bool:
    """Return True for the `more` of `no more than 3 GPUs`, which `amounts` checked."""
    after = clause.tokens[place + 1 : place + 3]
    return [t.text for t in after[:1]] == ["than"] and after[-1].number is not None


def _compare(clause: Clause, place: int, how: lexicon.Comparative, of: Known) -> None:
    if _compares_all(clause, place, how, of) or _within_a_check(clause, place, how.sign):
        return
    word = clause.tokens[place].text
    denied = {i for i, text in clause.words() if text in lexicon.NEGATIONS and i < place}
    if denied:  # `neither is warmer than` claims that both are as warm or cooler
        how = how._replace(sign=-how.sign)
    left, right = operands(clause, place, how, of)
    if left is not None and any(clause.tokens[i].text == "never" for i in denied):
        left = _farthest(clause, place, left[1], how, of)
    if left is None or right is None or not same_kind(left[1], right[1]):
        raise Refused(f"it says {word!r}, but not clearly of what")
    clause.used |= {i for i, text in clause.words() if left[1] in lexicon.FIELD_WORDS.get(text, ())}
    twice = {i for i, text in clause.words() if text in _TWICE}
    if not _is_so(left[0], right[0], how.sign, bool(twice), bool(denied)):
        raise Refused(f"it says {word!r}, which the facts do not say")
    clause.used |= denied | twice
    _check_gap(clause, gap_after(clause, place) or place - 1, left, right)


def _compares_all(clause: Clause, place: int, how: lexicon.Comparative, of: Known) -> bool:
    """Check a comparison with all others, and return True if it is one. Raises Refused."""
    rest = [token.text for token in clause.tokens[place + 1 : place + 4]]
    if clause.tokens[0].text == "no" and clause.tokens[1].text in lexicon.NOUNS:
        _check_none(clause, place, how, of)
    elif rest == ["of", "the", "two"] or _is_the_one_of_two(clause, place, of):
        _check_best(clause, place, how, of)
        clause.used |= {i for i, text in clause.words() if i == place + 3 and text == "two"}
    elif _any_other(clause, place):
        fields = how.fields or {b.field for c in (clause, clause.before) if c for b in c.values}
        _check_best(clause, place, how._replace(fields=frozenset(fields)), of)
    else:
        return False
    return True


def _is_the_one_of_two(clause: Clause, place: int, of: Known) -> bool:
    """Return True for `the hotter GPU`, where there are two."""
    before, after = clause.tokens[max(0, place - 1) : place], clause.tokens[place + 1 : place + 2]
    kind = lexicon.NOUNS.get(after[0].text, "") if after else ""
    return [t.text for t in before] == ["the"] and bool(kind) and len(everyone(of, kind)) == 2


def _is_so(left: float, right: float, sign: int, twice: bool, denied: bool) -> bool:
    """Return True if a comparison is right; with the sign 0, if both are nearly the same."""
    factor = 2.0 if twice else 1.0
    if sign == 0:
        near = abs(left / factor - right) <= (0.12 if twice else 0.05) * right
        return near is not denied
    apart = sign * (left - factor * right)
    return apart >= 0 if denied else apart > 0


def _check_gap(clause: Clause, at: int, left: Operand, right: Operand) -> None:
    """Check how far apart two values are said to be: `7 °C below`, `10 % slower`."""
    gap = clause.tokens[at] if at >= 0 else None
    given = in_base_unit(gap.text) if gap is not None and gap.kind == "value" else None
    if gap is None or gap.kind != "value" or any(b.place == at for b in clause.values):
        return
    apart = abs(left[0] - right[0])
    if gap.text.endswith("%") and right[0] and left[1] not in lexicon.FAMILIES[2]:
        share = 100 * apart / abs(right[0])
        right_gap = abs(share - float(gap.text[:-2])) <= max(1.0, 0.1 * share)
    else:
        right_gap = given is not None and abs(apart - given[0]) <= 0.5 * step_of(gap.text)
    if not right_gap:
        raise Refused(f"it says {gap.text!r} between two values, which the facts do not say")
    clause.used.add(at)


def _check_none(clause: Clause, place: int, how: lexicon.Comparative, of: Known) -> None:
    """Check `no GPU is hotter than GPU 1`. Raises Refused."""
    after = [t.subjects for t in clause.tokens[place:] if t.kind == "subject"][:1]
    for field in how.fields if after else ():
        values = {s: of.value(s, field) for s in of.subjects if of.of(s, field)}
        known = {s: how.sign * v for s, v in values.items() if isinstance(v, int | float)}
        own = [known[s] for s in after[0] if s in known]
        if own and len(own) == len(after[0]) and max(known.values()) <= min(own):
            clause.used |= {0, place}
            return
    raise Refused(f"it says {clause.tokens[place].text!r}, which the facts do not say")


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
    error = clause.has({"error"}) or "error" in clause.words_before()
    if not before and after and error:
        return _is_error(clause, after[0], sign)
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


def _is_error(clause: Clause, place: int, sign: int) -> bool:
    """Return True for `the error is below the allowed 0.001` if the check says so."""
    token = clause.tokens[place]
    checks = [f for f in token.facts if ".check" in f.name]
    who = owners(clause, place).get("job", frozenset())
    own = [f for f in checks if not who or f.subject in who]
    errors = [VALUE.search(fact.said.partition(":")[2]) for fact in own]
    known = [float(found["number"]) for found in errors if found is not None]
    if not known or not all(sign * (error - float(token.text)) > 0 for error in known):
        return False
    clause.used.add(place)
    return True


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
        if bound.field == "power_limit" and clause.tokens[place].text.endswith("below"):
            raise Refused("it says that a limit was exceeded, which no fact says")
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
    before = [t for t in clause.tokens[:place] if t.kind == "subject"][-1:]
    named = before or [t for t in clause.tokens if len(t.subjects) == 1][:1]
    who = named[0].subjects if named else frozenset[str]()
    if not who and clause.inherited:
        who = frozenset().union(*clause.inherited.values())
    refused = f"it says {clause.tokens[place].text!r}, which the facts do not say"
    if not who:
        raise Refused(refused)
    subject = next(iter(who))
    group = [t.subjects for t in clause.tokens[place + 1 :] if len(t.subjects) > 1][:1]
    for field in how.fields:
        peers = {
            s: float(v)
            for s in (group[0] if group and who <= group[0] else of.subjects)
            if kind_of(s) == kind_of(subject) and isinstance(v := of.value(s, field), int | float)
        }
        if subject in peers:
            others = [how.sign * value for s, value in peers.items() if s not in who]
            own = [how.sign * peers[s] for s in who if s in peers]
            if len(own) < len(who) or (others and min(own) <= max(others)) or not others:
                raise Refused(refused)
            return
    raise Refused(refused)


def check_most(clause: Clause, of: Known) -> None:
    """Check `has the highest rate` and `draws the most power`, where several devices have one."""
    for i, text in list(clause.words()):
        if not is_best(clause, i):
            continue
        sign = 1 if text in ("highest", "most") else -1
        clause.used.add(i)
        fields = {f for _, t in clause.words() for f in lexicon.FIELD_WORDS.get(t, ())}
        fields &= {*FIELDS_SPAN, "mem_free", "energy", "left", "running", "waiting"}
        fields |= {b.field for b in clause.values if b.field in FIELDS_SPAN}
        _check_best(clause, i, lexicon.Comparative(sign, frozenset(fields)), of)
