"""Bind each value of a clause to a fact: to its owner, the field its words name, and its time."""

from __future__ import annotations

from collections.abc import Iterator

from gpudeck.assistant.facts import FIELDS_SPAN, Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Bound, Clause, Owners, kind_of, owners
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.tokens import Token

_OF_DEVICE = lexicon.words("mem_used mem_free mem_total")
_STATS = (".mean", ".max", ".min")
_AFTER = lexicon.words("done complete finished more")
"""Words that name a field only right after a value; the others with % only before one."""
_DEFAULTS = {
    "device": lexicon.words("temp power util tflops energy clock_sm fan when covered"),
    "job": lexicon.words("progress tflops median ended energy bandwidth used.energy"),
    "alert": frozenset(),
}
"""The fields that a value belongs to if no word names another, by the kind of its owner."""


def field_of(fact: Fact) -> str:
    """Return the field of a fact: `temp` for gpu0.temp.mean, `process` for gpu0.process1."""
    name = fact.name.partition(".")[2].partition("~")[0]
    for stat in _STATS:
        name = name.removesuffix(stat) if name.removesuffix(stat) in FIELDS_SPAN else name
    return name.rstrip("0123456789") if name.startswith(("process", "check", "notice")) else name


def stat_of(fact: Fact) -> str:
    """Return mean, max or min for a value over the span; now for others that have these."""
    name = fact.name.partition(".")[2].partition("~")[0]
    if field_of(fact) not in FIELDS_SPAN or kind_of(fact.subject) != "device":
        return ""
    last = name.rpartition(".")[2]
    return last if f".{last}" in _STATS else "now"


def family_of(facts: tuple[Fact, ...]) -> frozenset[str]:
    """Return the fields that are measured in the same unit as these facts."""
    fields = {field_of(fact) for fact in facts}
    return frozenset[str]().union(*(f for f in lexicon.FAMILIES if f & fields))


def bind(clause: Clause, place: int, of: Known) -> list[Bound]:
    """Return the facts that a value can be, one for each of its owners; none if there is none."""
    token = clause.tokens[place]
    family, who, stat = _family(token), owners(clause, place), stat_at(clause, place)
    alone = clause.names_nobody()
    right = [f for f in token.facts if _timed(f, stat, clause) and _owned(f, who, of, alone)]
    told = [f for t in clause.tokens if t.kind == "text" for f in t.facts if ".process" in f.name]
    if told:  # the memory is that of the process
        right = [f for f in right if f in told or field_of(f) not in _OF_DEVICE]
    named = _fields(clause, place, family)
    for fields in [named] if named else [*_inherited(clause, family), frozenset[str]()]:
        own_field = token.slot and not named
        fits = [f for f in right if own_field or _named(f, fields, family, clause)]
        for kind in {kind_of(fact.subject) for fact in fits}:
            if {fact.subject for fact in fits} >= who.get(kind, frozenset()):
                own = [fact for fact in fits if kind_of(fact.subject) == kind]
                if not named:
                    _use_words(clause.before, fields)
                return [Bound(fact, field_of(fact), place) for fact in own]
    return []


def _use_words(clause: Clause | None, fields: frozenset[str]) -> None:
    """Mark the words of the clauses before that name the field of a value as checked."""
    while clause is not None:
        for i, text in clause.words():
            if lexicon.FIELD_WORDS.get(text, frozenset()) & fields:
                clause.used.add(i)
        clause = clause.before


def _inherited(clause: Clause, family: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield the fields of the clauses before, the nearest first."""
    before = clause.before
    while before is not None:
        named = [lexicon.FIELD_WORDS.get(text, frozenset()) for _, text in before.words()]
        for fields in (frozenset(b.field for b in before.values), frozenset[str]().union(*named)):
            if fields & family:
                yield fields & family
        before = before.before


def _owned(fact: Fact, who: Owners, of: Known, alone: bool) -> bool:
    """Return True if the fact is about an owner, or nobody owns it.

    Where nobody was named (`alone`), it may be about the only device or job with such a fact.
    """
    kind = kind_of(fact.subject)
    if not kind:
        return fact.subject != "jobs"  # counts are claims of their own
    if kind in who:
        return fact.subject in who[kind]
    name = fact.name.partition(".")[2]
    sharing = [s for s in of.subjects if kind_of(s) == kind and of.of(s, name)]
    return alone and len(sharing) == 1


def _fields(clause: Clause, place: int, family: frozenset[str]) -> frozenset[str]:
    """Return the fields that the words nearest to a value name; none if no word does."""
    best, nearest, at = frozenset[str](), 99, -1
    for i, text in clause.words():
        near = lexicon.FIELD_WORDS.get(text, frozenset())
        distance = place - i if i < place else i - place
        beside = i == place + 1 if text in _AFTER else 0 < place - i <= 2
        if beside and (text != "of" or _is_part(clause, place, family)):
            near |= lexicon.FIELD_WORDS.get(f"{text}%", frozenset())
        if near & family and distance < nearest:
            best, nearest, at = near & family, distance, i
    if best:
        clause.used |= {
            i
            for i, text in clause.words()
            if i == at or lexicon.FIELD_WORDS.get(text, frozenset()) & family
        }
    return best


def _is_part(clause: Clause, place: int, family: frozenset[str]) -> bool:
    """Return True if `of` before a value says that another one is a part of it."""
    earlier = [t for t in clause.tokens[:place] if t.kind in ("value", "text")]
    return clause.tokens[0].text == "of" or any(family_of(t.facts) & family for t in earlier)


def _family(token: Token) -> frozenset[str]:
    """Return the family of a value with a unit, or of an exit status."""
    family = family_of(token.facts)
    return family & {"code"} if token.number is not None else family


def _named(fact: Fact, fields: frozenset[str], family: frozenset[str], clause: Clause) -> bool:
    """Return True if the fact's field is one that the words name, or the one they need not name."""
    found = field_of(fact)
    if fields:
        return found in fields
    if found in family:
        shared = lexicon.words("length when") if clause.names_nobody() else frozenset[str]()
        return found in _DEFAULTS.get(kind_of(fact.subject), shared)
    return _shares_word(fact, clause)


def _shares_word(fact: Fact, clause: Clause) -> bool:
    """Return True if the clause, or that before it, has a word of the fact beside its number."""
    words = set(fact.text.lower().replace(":", " ").replace("(", " ").split())
    words |= {"error"} if field_of(fact) == "check" else set()
    words -= {"job", "gpu", "the", "of", "for", "it", "its", "with", "is"}
    at: Clause | None = clause
    while at is not None:
        if any(text in words for _, text in at.words()):
            return True
        at = at.before
    return False


def stat_at(clause: Clause, place: int) -> str:
    """Return which value over time is meant: now, mean, max or min; empty if that is not clear."""
    found = [
        (abs(i - place), i, lexicon.STAT_WORDS[text])
        for i, text in clause.words()
        if text in lexicon.STAT_WORDS and not is_best(clause, i)
    ]
    if found:
        clause.stat = min(found)[2]
        clause.used |= {i for _, i, _ in found}
        return clause.stat
    if clause.has(lexicon.PRESENT):
        clause.stat = "now"
    elif clause.before is not None:
        clause.stat = clause.before.stat
    elif not clause.has(lexicon.PAST):
        clause.stat = "now"
    return clause.stat


def _reached(clause: Clause | None) -> bool:
    """Return True if it is a result that was reached, not a highest value over time."""
    return clause is not None and (clause.has({"reached", "reaching"}) or _reached(clause.before))


def is_best(clause: Clause, place: int) -> bool:
    """Return True for the `most` of `draws the most power`, which compares devices, not times."""
    texts = [token.text for token in clause.tokens[max(0, place - 2) : place]]
    if clause.tokens[place].text not in ("highest", "most", "lowest", "least") or len(texts) < 2:
        return False
    return texts[1] == "the" and texts[0] in lexicon.PRESENT | {"drew", "used"}


def _timed(fact: Fact, stat: str, clause: Clause) -> bool:
    known = stat_of(fact)
    if kind_of(fact.subject) == "job" and not field_of(fact).startswith("used."):
        return stat not in ("mean", "max", "min") or _reached(clause)
    return not known or known == (stat or "now")


def check_extreme(clause: Clause, of: Known) -> None:
    """Check `its highest value` without a number: that of the clause before is meant.

    A clause before the one with the value, such as `at most`, selects that one's value.
    """
    stats = [
        (i, lexicon.STAT_WORDS[text])
        for i, text in clause.words()
        if text in lexicon.STAT_WORDS and not is_best(clause, i)
    ]
    if not stats or any(token.kind in ("value", "text") for token in clause.tokens):
        return
    clause.stat = stats[-1][1]
    if len(clause.tokens) < 4 and clause.after is not None and not clause.has(lexicon.PRESENT):
        clause.used |= {i for i, _ in stats}
    for bound in clause.before.values if clause.before is not None else ():
        selected = of.of(bound.fact.subject, f"{bound.field}.{clause.stat}")
        if any(fact.said == bound.fact.said for fact in selected):
            clause.used |= {i for i, _ in stats}
