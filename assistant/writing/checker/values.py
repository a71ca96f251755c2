"""Bind each value of a clause to a fact: to its owner, the field its words name, and its time."""

from __future__ import annotations

from collections.abc import Iterator

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Bound, Clause, Owners, kind_of, owners
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.lengths import DENIED
from gpudeck.assistant.writing.checker.stats import extreme_of, field_of, is_timed, stat_at
from gpudeck.assistant.writing.checker.tokens import Token

_OF_DEVICE = lexicon.words("mem_used mem_free mem_total")
_LENGTHS, _MOMENTS = (
    next(family for family in lexicon.FAMILIES if field in family) for field in ("left", "expected")
)
_COMING = lexicon.words("left expected")
"""What is known of times to come."""
_OF_MEMORY = lexicon.words("mem_used used.memory mem_share used.share")
"""What `memory` is about if nothing else says so."""
_MEMORY = lexicon.words("memory ram vram")
_FIRST = lexicon.words("sustained median p95 p99")
"""Words that name the field also before a noun of another one: `P99 latency`."""
_REACHED = lexicon.words("reached reach exceeded exceed hit")
_AFTER = lexicon.words("full done complete finished more left remaining")
"""Words that name a field only right after a value; the others with % only before one."""
_DEFAULTS = {
    "device": lexicon.words("temp power util tflops energy clock_sm fan when covered"),
    "job": lexicon.words("progress tflops median ended energy bandwidth used.energy"),
    "alert": frozenset(),
}
"""The fields that a value belongs to if no word names another, by the kind of its owner."""


def family_of(facts: tuple[Fact, ...]) -> frozenset[str]:
    """Return the fields that are measured in the same unit as these facts."""
    fields = {field_of(fact) for fact in facts}
    return frozenset[str]().union(*(f for f in lexicon.FAMILIES if f & fields))


def bind(clause: Clause, place: int, of: Known) -> list[Bound]:
    """Return the facts that a value can be, one for each of its owners; none if there is none."""
    token = clause.tokens[place]
    facts = _described(clause, place, of)
    family, who, stat = _family(token, facts), owners(clause, place), stat_at(clause, place)
    alone = clause.names_nobody()
    stat = extreme_of(clause, token) or stat
    facts = tuple(f for f in facts if token.bound == "=" or kind_of(f.subject))
    right = [
        f
        for f in facts
        if is_timed(f, stat, clause) and _owned(f, who, of, alone) and _counted(f, clause, place)
    ]
    said = clause.tokens
    if clause.opener == "which" and clause.before is not None:
        said = [*clause.before.tokens, *said]
    told = [f for t in said if t.kind == "text" for f in t.facts if ".process" in f.name]
    if told:  # the memory is that of the process
        right = [f for f in right if f in told or field_of(f) not in _OF_DEVICE]
    named = _fields(clause, place, family)
    if clause.has(lexicon.FUTURE) and family & (_LENGTHS | _MOMENTS):
        named = _COMING
    vague = family & _OF_MEMORY if clause.has(_MEMORY) else frozenset[str]()
    inherited, default = list(_inherited(clause, family)), [vague, frozenset[str]()]
    if not inherited or token.bound == "=":
        inherited += default[bool(inherited) :]
    for fields in [named] if named else inherited:
        own_field = token.slot and not named
        fits = [f for f in right if own_field or _named(f, fields, family, clause)]
        for kind in {kind_of(fact.subject) for fact in fits}:
            if {fact.subject for fact in fits} >= who.get(kind, frozenset()):
                own = [fact for fact in fits if kind_of(fact.subject) == kind]
                if not named:
                    _use_words(clause.before, fields)
                return [Bound(fact, field_of(fact), place) for fact in own]
    return []


def _counted(fact: Fact, clause: Clause, place: int) -> bool:
    """Return False for a count that stands in a reason beside another word than here."""
    if clause.tokens[place].number is None or field_of(fact) != "reason":
        return True
    before, after = clause.tokens[max(0, place - 1) : place], clause.tokens[place + 1 : place + 2]
    number = clause.tokens[place].text
    pairs = [f"{t.text} {number}" for t in before] + [f"{number} {t.text}" for t in after]
    return any(pair in fact.said.lower() for pair in pairs)


def _described(clause: Clause, place: int, of: Known) -> tuple[Fact, ...]:
    """Return the facts that a value with its bound describes; a denied one is turned round."""
    token = clause.tokens[place]
    denials = lexicon.NEGATIONS | {"no", "none"}
    denied = {i for i, text in clause.words() if i < place and text in denials}
    reached = token.bound == "=" and clause.has(_REACHED)
    if not denied or (token.bound not in DENIED and not reached):
        return token.facts
    clause.used |= denied
    return of.within(token.text, "<" if reached else DENIED[token.bound])


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
            told = {field_of(fact) for fact in clause.tokens[place].facts}
            near |= lexicon.FIELD_WORDS.get(f"{text}%", frozenset()) & told
        if near & family and distance < nearest:
            best, nearest, at = near & family, distance, i
            before = clause.tokens[i - 1].text if i else ""
            if before in _FIRST and text not in _FIRST:  # `P99 latency`
                best = lexicon.FIELD_WORDS[before] & family or best
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


def _family(token: Token, facts: tuple[Fact, ...]) -> frozenset[str]:
    """Return the family of a value with a unit, or of an exit status."""
    family = family_of(facts)
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
