"""Recognize clauses that quote a fact, word by word, and check the reasons that clauses give."""

from __future__ import annotations

import re
from functools import lru_cache

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Owners, kind_of, owners
from gpudeck.assistant.writing.checker.known import Known, plain

_EMPTY = lexicon.words(
    "a an the is are was were be been it its that this they and has have had of to on "
    "for in by so because since as due with at there gpu job cpu alert only just still "
    "already ran got gets get"
)
"""Words that a quotation may add or leave out."""
_OF_DEVICE = lexicon.words("idle busy held")
"""The states of devices; how one is used is no reason why a job does something."""
_WORD = re.compile(r"[^\W_]+(?:[./'-]\w+)*|%|°")
_REASONS = re.compile(r"\.(?:reason|text|choice|paused|any|result|note|use)$")


@lru_cache(4096)
def content(text: str) -> tuple[str, ...]:
    """Return the words of a text that a quotation must keep."""
    found = (w for w in _WORD.findall(plain(text).lower()) if w not in _EMPTY)
    return tuple(str(lexicon.NUMERALS.get(w, "needs" if w == "requires" else w)) for w in found)


def quoted(clause: Clause, of: Known, who: Owners) -> Fact | None:
    """Return the fact that a clause quotes, if it quotes one about its owners."""
    spoken = tuple(w for t in clause.tokens if t.kind != "subject" for w in content(t.text))
    if len(spoken) < 2 and not (clause.is_cause() and spoken):
        return None
    values = [token for token in clause.tokens if token.kind == "value"]
    if any(token.bound != "=" for token in values):
        return None
    effect = clause.effect or clause.before
    of_job = effect is not None and any(
        lexicon.STATES.get(text, "idle") not in _OF_DEVICE for _, text in effect.words()
    )
    quoting = dict[str, Fact]()
    for fact in of.facts:
        if not all(fact in value.facts for value in values):
            continue
        if not isinstance(fact.value, str | None) or not _concerns(fact, who):
            continue
        if fact.name.endswith((".name", ".source")):
            continue
        own = [t for t in clause.tokens if fact.subject in t.subjects]
        words = tuple(w for t in clause.tokens if t not in own for w in content(t.text))
        if fact.subject.startswith("alert") and sum(w.isalpha() and len(w) > 2 for w in words) < 2:
            continue  # an alert's figures are those of its time
        if clause.is_cause() and (not is_reason(fact) or (of_job and fact.name.endswith(".use"))):
            continue
        if _within(words, content(f"{fact.text}")):
            quoting[fact.subject] = fact
            named = who.get(kind_of(fact.subject), frozenset())
            if named <= quoting.keys() or fact.subject.startswith("alert"):
                return fact
    return None


def titled_facts(clause: Clause, of: Known) -> list[Fact]:
    """Return the facts of which a clause is the title: `GPU 1 power limit`."""
    subjects = frozenset(s for t in clause.tokens if t.kind == "subject" for s in t.subjects)
    words = tuple(w for t in clause.tokens if t.kind != "subject" for w in content(t.text))
    if words == ("memory",):  # it is said of the used memory, too
        return []
    return [
        fact
        for fact in of.facts
        if fact.subject in subjects and words and _title(fact)[-len(words) :] == words
    ]


def _title(fact: Fact) -> tuple[str, ...]:
    return content(fact.text.removesuffix(fact.said))


def is_reason(fact: Fact) -> bool:
    """Return True if a fact says why something is as it is."""
    return fact.value is None or bool(_REASONS.search(fact.name))


def _concerns(fact: Fact, who: Owners) -> bool:
    kind = kind_of(fact.subject)
    return kind in ("", "alert") or not who or fact.subject in who.get(kind, frozenset())


def _within(words: tuple[str, ...], fact: tuple[str, ...]) -> bool:
    """Return True if all the words occur in the fact in this order."""
    at = -1
    counts = any(word.isdigit() for word in words)
    for i, word in enumerate(words):
        beside = i and counts  # of `needs 4 GPUs; 3 free` nobody may quote `4 free`
        found = [j for j in range(at + 1, len(fact)) if fact[j] == word]
        if not found or (beside and found[0] != at + 1):
            return False
        at = found[0]
    return True


def quotes_reason(clause: Clause, of: Known) -> bool:
    """Return True if a clause gives the reason that a fact gives, in its words."""
    at = clause if clause.effect is None else clause.effect
    who = {**clause.inherited, **owners(at, 0)} if at is not clause else dict(clause.inherited)
    before = clause.before
    while before is not None:
        who = {**dict(before.inherited), **who}
        before = before.before
    if any(t.kind == "text" and all(is_reason(f) for f in t.facts) for t in clause.tokens):
        facts = [f for t in clause.tokens for f in t.facts]
        if any(_concerns(fact, who) for fact in facts) and not clause.has(lexicon.NEGATIONS):
            return True
    return quoted(clause, of, who) is not None
