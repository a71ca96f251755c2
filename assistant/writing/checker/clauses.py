"""Divide a sentence into clauses, and find the devices and jobs that each part is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.tokens import Token

_JOINTS = lexicon.words("and but while whereas although though which so if")
_OVER = lexicon.words("started starts finishes ends releases frees stops leaves completes")
_ENDED = ("done", "ended", "idle", "cleared")
_OF = lexicon.words("of on for from")
_ARTICLES = frozenset(["the", "a", "an"])
_SUBJECT = re.compile(r"(gpu|replay|cpu|job|alert)\d*")
_KINDS = {"gpu": "device", "replay": "device", "cpu": "device", "job": "job", "alert": "alert"}
Owners = Mapping[str, frozenset[str]]
"""The subjects that something is about, by kind: device, job and alert."""


class Refused(Exception):
    """Report that a text cannot be shown; the message is the reason, in one line."""


class Bound(NamedTuple):
    """Hold a value that was found to be a subject's."""

    fact: Fact
    field: str
    place: int
    """The index of its token in its clause."""


@dataclass(eq=False)
class Clause:
    """Represent a part of a sentence that makes one claim or more."""

    opener: str
    """The word or mark before it."""
    tokens: list[Token]
    before: Clause | None
    """The clause from which it inherits what it does not name itself."""
    after: Clause | None = None
    inherited: Owners = field(default_factory=dict)
    values: list[Bound] = field(default_factory=list)
    stat: str = ""
    used: set[int] = field(default_factory=set)
    """The indices of tokens whose claim was checked."""
    state: tuple[str, bool] | None = None
    """The last state that it claimed, and whether it denied it."""
    fronted: bool = False
    """True if a value that belongs to it stands in the clause before it."""
    quotes: bool = False
    """True if it gives a reason in the words of a fact."""
    effect: Clause | None = None
    """The clause whose reason it gives, where that is the one after it."""

    def words(self) -> Iterator[tuple[int, str]]:
        """Yield the index and the text of each word."""
        return ((i, token.text) for i, token in enumerate(self.tokens) if token.kind == "word")

    def words_before(self) -> set[str]:
        """Return the nouns of the clauses before it, in the singular."""
        texts = (
            {text.removesuffix("s") for _, text in self.before.words()} if self.before else set()
        )
        return texts | (self.before.words_before() if self.before else set())

    def has(self, words: frozenset[str] | set[str]) -> bool:
        """Return True if one of the words is in it."""
        return any(text in words for _, text in self.words())

    def names_nobody(self) -> bool:
        """Return True if neither it nor a clause that it goes on from names a subject."""
        named = any(token.kind == "subject" for token in self.tokens)
        return not named and (self.before is None or self.before.names_nobody())

    def is_cause(self) -> bool:
        """Return True if it gives a reason."""
        return self.opener in lexicon.CAUSES


def kind_of(subject: str) -> str:
    """Return device, job or alert; for other subjects an empty string."""
    found = _SUBJECT.fullmatch(subject)
    return _KINDS[found[1]] if found else ""


def by_kind(subjects: frozenset[str]) -> dict[str, frozenset[str]]:
    """Return subjects by their kind."""
    kinds: dict[str, frozenset[str]] = {}
    for subject in subjects:
        kinds[kind_of(subject)] = kinds.get(kind_of(subject), frozenset()) | {subject}
    return kinds


def divide(
    tokens: Sequence[Token], inherited: Owners, previous: Clause | None = None
) -> list[Clause]:
    """Return the clauses of a sentence, of which the first inherits these owners.

    `previous` is the last clause of the sentence before, if this one goes on about its subject.
    """
    clauses: list[Clause] = []
    opener, current = "", list[Token]()
    outside: list[Clause | None] = []

    def close(mark: str) -> None:
        nonlocal opener, current
        if current:
            before = clauses[-1] if clauses else previous
            if opener == ")" and outside:
                before = outside.pop() or before
            owners = last_owners(before) if before else inherited
            clauses.append(Clause(opener, current, before, inherited=owners))
            if before is not None:
                before.after = clauses[-1]
            if len(clauses) == 2 and (clauses[0].is_cause() or clauses[0].opener == "until"):
                clauses[0].effect = clauses[1]
        if mark == "(":
            outside.append(clauses[-1] if clauses else None)
        opener, current = mark, []

    for place, token in enumerate(tokens):
        rest = tokens[place + 1 :]
        causal = opener in lexicon.CAUSES
        if token.kind == "mark":
            close(token.text)
        elif token.kind == "word" and _is_cause(token.text, current, opener, rest):
            close("because")
        elif token.kind == "word" and _is_until(token.text, rest):
            close("until")
        elif token.kind == "word" and token.text in _JOINTS and not causal:
            close(token.text)
        else:
            current.append(token)
    close("")
    return clauses


def _is_cause(word: str, current: Sequence[Token], opener: str, rest: Sequence[Token]) -> bool:
    """Return True if a word opens a reason, as in `as job 8 runs`; `since 02:10` tells a time."""
    if word in ("because", "due"):
        return True
    told = (
        not rest
        or rest[0].kind == "value"
        or rest[0].text == "then"
        or any(t.text == "ago" for t in rest[:3])
    )
    if word == "since":
        return not told
    initial = not current and opener in ("", ",")
    return word == "as" and initial and not told and rest[0].text not in ("of", "for", "before")


def is_end(word: str) -> bool:
    """Return True if a word says that a job is over or a device free."""
    return word in _OVER or lexicon.STATES.get(word) in _ENDED


def _is_until(word: str, rest: Sequence[Token]) -> bool:
    """Return True for the `once` of `once job 8 is finished`."""
    return (
        word in ("until", "once", "when", "after")
        and any(t.kind == "subject" for t in rest[:2])
        and (word == "until" or any(is_end(t.text) for t in rest[1:5]))
        and any(t.text in _OVER | {"is", "has", "are", "have"} for t in rest[1:4])
    )


def owners(clause: Clause, place: int) -> Owners:
    """Return the devices, jobs and alerts that the token at a place is about.

    Of each kind, they are what stands after it with `of` or `on`, else the nearest before it. If
    none stands before it, they are those that the clause names later or inherits.
    """
    before = [token for token in reversed(clause.tokens[:place]) if token.kind == "subject"]
    named = any(token.text not in lexicon.NOUNS for token in before)
    rest = clause.tokens[place:]
    against = next((i for i, t in enumerate(rest) if t.text == "against"), len(rest))
    later = [token for token in rest[:against] if token.kind == "subject"]
    waits = [t.text in lexicon.STATES for t in clause.tokens[place : place + 1]] == [True] and [
        t.text for t in clause.tokens[place + 1 : place + 2]
    ] == ["for"]
    found = {} if waits else by_kind(_following(clause.tokens, place))
    for token in before or later:
        for kind, subjects in by_kind(token.subjects).items():
            found.setdefault(kind, subjects)
    return found if named or (found and is_default(clause)) else {**clause.inherited, **found}


def _following(tokens: Sequence[Token], place: int) -> frozenset[str]:
    rest = list(tokens[place + 1 :])
    if not rest or rest[0].text not in _OF:
        return frozenset()
    after = next((token for token in rest[1:] if token.text not in _ARTICLES), None)
    return after.subjects if after is not None and after.kind == "subject" else frozenset()


def last_owners(clause: Clause) -> Owners:
    """Return what a clause is about, for the clause after it.

    What stands after a comparing word is only compared with.
    """
    found: dict[str, frozenset[str]] = {}
    for token in clause.tokens:
        if token.kind == "word" and token.text in lexicon.COMPARATIVES and found:
            break
        if token.kind == "subject":
            found |= by_kind(token.subjects)
    return found if found and is_default(clause) else {**clause.inherited, **found}


def is_default(clause: Clause) -> bool:
    """Return True if nothing before the clause was named, so that it inherits the only device."""
    return clause.before is None or clause.before.names_nobody()


def only_owners(of: Known) -> Owners:
    """Return the only device and the only job, if there is but one of each."""
    kinds: dict[str, frozenset[str]] = {}
    for subject in of.subjects:
        if kind := kind_of(subject):
            kinds[kind] = kinds.get(kind, frozenset()) | {subject}
    return {kind: subjects for kind, subjects in kinds.items() if len(subjects) == 1}
