"""Split a sentence into tokens: values and words of facts, devices and jobs, and other words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.bounds import BOUND, BOUND_OF, WORD_NUMBER
from gpudeck.assistant.writing.checker.known import NAMED, VALUE, Known, value_key
from gpudeck.assistant.writing.checker.lengths import in_base_unit
from gpudeck.assistant.writing.checker.names import (
    NAMED_JOB,
    PID,
    without_hyphens,
    without_name,
    without_pid,
)
from gpudeck.assistant.writing.checker.paraphrases import rewritten
from gpudeck.assistant.writing.checker.spoken_times import with_numbers

_SPELT = re.compile(
    rf"\b(?P<spelt>{WORD_NUMBER}|\d+) (?P<of>{'|'.join(lexicon.UNIT_WORDS)})\b"
    r"|\b(?:last|the|an|this) (?P<alone>hour)\b",
    re.IGNORECASE,
)


_SLOT = re.compile(r"\{([\w.~]+)\}")


_IDIOMS = {
    "at most": "at most",
    "as high as": "at most",
    "up to": "at most",
    "at least": "at least",
    "as low as": "at least",
    "at the highest": "highest",
    "at the lowest": "lowest",
    "at the moment": "at the moment",
    "right now": "right now",
    "fell to": "fell to",
    "no longer": "no longer",
    "yet to": "yet to",
    "to go": "left",
    "not used by": "not used by",
    "not used": "idle",
    "not been used": "idle",
    "not in use": "idle",
    "in use": "used",
    "not yet": "not",
    "close to limit": "close to limit",
    "nearly all calls below": "p95",
    **{
        f"{no} {verb}": f"never {verb.removeprefix('been ')}"
        for no in ("never", "not")
        for verb in ("above", "been above", "exceeded", "below", "been below")
    },
}
"""Words that mean one together, and the word of the lexicon that means the same."""
_IDIOM = re.compile(rf"\b(?:{'|'.join(sorted(_IDIOMS, key=len, reverse=True))})\b", re.IGNORECASE)
_UNCLAIMED = re.compile(
    r"\b(?:no such (?:job|device)s?|no data (?:on|about) (?:that|such an? (?:job|device))"
    r"|no (?:job|device)s? (?:here )?(?:has that number(?: or name)?|match(?:es)?|is in that state)"
    r"|this (?:job|device) is not known|not listed here|left out here"
    r"|more jobs (?:than are listed here|exist)"
    r"|no data(?= is available|\.))",
    re.IGNORECASE,
)
"""Words about the request and the text itself, which are no claims about the machine."""


_WORD = re.compile(r"n['’]t\b|[^\W\d_]+?(?=n['’]t\b)|[^\W\d_](?:[\w./-]*\w)?|\w+")


_PUNCTUATION = re.compile(r"[,;:()|]|[.!?]+(?=\s|$)")


_POSSESSIVE = re.compile(r"['’]s?\b")


Kind = Literal["value", "text", "subject", "word", "mark"]


@dataclass(eq=False)
class Token:
    """Represent a piece of a sentence."""

    kind: Kind
    text: str
    """The piece in lower case."""
    facts: tuple[Fact, ...] = ()
    """The facts that have this value or these words."""
    subjects: frozenset[str] = frozenset()
    """The devices, jobs or alerts that it names."""
    number: int | None = None
    """The number of a count."""
    slot: bool = False
    """True if the text names the fact itself, so that its field needs no word."""
    bound: str = "="
    """What the words before a value say of it: one of `lengths.BOUNDS`."""


def tokens(sentence: str, of: Known, slots: dict[str, Fact]) -> list[Token]:
    """Return the tokens of a sentence, in which slots stand for the facts of `slots`."""
    sentence = rewritten(without_hyphens(with_numbers(sentence), of), of.words)
    sentence = PID.sub(lambda found: without_pid(found, of), sentence)
    sentence = NAMED_JOB.sub(lambda found: without_name(found, of), sentence)
    for name in of.shared:
        sentence = re.sub(rf"\b{re.escape(name)}s\b", f"{name} jobs", sentence)
    found: list[Token] = []
    at = 0
    while at < len(sentence):
        if sentence[at].isspace():
            at += 1
            continue
        token, at = _bounded(sentence, at, of, slots, found) or _next(
            sentence, at, of, slots, found
        )
        if token is not None and token.text == "ago" and found and found[-1].kind == "value":
            _rounded(found[-1], of)
        if token is not None:
            found.append(token)
    return found


def _bounded(
    text: str, at: int, of: Known, slots: dict[str, Fact], before: Sequence[Token]
) -> tuple[Token, int] | None:
    """Return a value and the words before it that say `about` or `more than`; None if another
    thing than a value with a unit follows.
    """
    words = BOUND.match(text, at)
    gap = bool(before) and before[-1].kind == "value"  # in `7 °C below` it is a difference
    if words is None or gap or (at and text[at - 1].isalnum()):
        return None
    token, end = _next(text, words.end(), of, slots, before)
    if token is None or token.kind != "value" or in_base_unit(token.text) is None:
        return None
    token.bound = BOUND_OF[str(words.lastgroup)]
    token.facts = of.within(token.text, token.bound)
    return token, end


def _rounded(token: Token, of: Known) -> None:
    """Let `five minutes ago` be a rounded time."""
    if token.bound == "=" and (found := of.within(token.text, "~")):
        token.bound, token.facts = "~", found


def _next(
    text: str, at: int, of: Known, slots: dict[str, Fact], before: Sequence[Token]
) -> tuple[Token | None, int]:
    if slot := _SLOT.match(text, at):
        return _from_slot(slots[slot[1]]), slot.end()
    if spelt := _SPELT.match(text, at):
        number = lexicon.NUMERALS.get((spelt["spelt"] or "").lower(), spelt["spelt"])
        key = f"{number} {lexicon.UNIT_WORDS[spelt['of'].lower()]}" if spelt["of"] else "1 h"
        return Token("value", key, _with_value(of, key)), spelt.end()
    if unclaimed := _UNCLAIMED.match(text, at):
        return None, unclaimed.end()
    phrase = of.pattern.match(text, at) if of.pattern else None
    if phrase and (phrase.start() == 0 or not re.match(r"\w", text[phrase.start() - 1])):
        token = _from_phrase(phrase[0].lower(), of, before)
        if token is not None:
            return token, phrase.end()
    if named := NAMED.match(text, at):
        return Token("subject", named[0].lower(), subjects=_subjects(named)), named.end()
    if idiom := _IDIOM.match(text, at):
        return Token("word", _IDIOMS[idiom[0].lower()]), idiom.end()
    if (value := VALUE.match(text, at)) and not re.match(r"[A-Za-z_]", text[value.end() :][:1]):
        key = value_key(value)
        number = int(key) if key.isdigit() and len(key) < 9 else None
        return Token("value", key, _with_value(of, key), number=number), value.end()
    if mark := _PUNCTUATION.match(text, at):
        return Token("mark", mark[0][0]), mark.end()
    if possessive := _POSSESSIVE.match(text, at):
        return None, possessive.end()
    if word := _WORD.match(text, at):
        return _from_word(word[0]), word.end()
    return None, at + 1


def _with_value(of: Known, key: str) -> tuple[Fact, ...]:
    """Return the facts with a value."""
    return tuple(of.numbers.get(key, ())) or of.within(key)


def _from_slot(fact: Fact) -> Token:
    if fact.name.endswith((".called", ".label")):
        return Token("subject", fact.said.lower(), (fact,), frozenset({fact.subject}))
    if fact.name.endswith((".state", ".verdict")) and is_word(fact.said.lower()):
        return Token("word", fact.said.lower())
    kind: Kind = "text" if isinstance(fact.value, str) else "value"
    number = fact.value if isinstance(fact.value, int) and not fact.unit else None
    return Token(kind, fact.said.lower(), (fact,), number=number, slot=True)


def _from_phrase(words: str, of: Known, before: Sequence[Token]) -> Token | None:
    """Return a token for words of facts; None if they are better read as words of the language."""
    facts = tuple(of.phrases[words])
    named = frozenset(
        f.subject for f in facts if f.name.endswith(".name") and f.subject[:3] == "job"
    )
    in_place = bool(before) and before[-1].kind in ("mark", "subject")
    alone = len(named) == 1 and len(facts) == 1
    if named and (in_place or (alone and not is_word(words))):
        job = next((t.subjects for t in reversed(before) if t.subjects & named), named)
        return Token("subject", words, facts, named & job)
    if is_word(words):
        return None
    return Token("text", words, facts)


def _from_word(word: str) -> Token:
    lower = word.lower()
    lower = lower.replace("’", "'")
    one = lower.removesuffix("s")
    if lower.endswith("ing") and not is_word(lower):
        stem = lower.removesuffix("ing")
        known = lexicon.FIELD_WORDS.keys() | lexicon.STATES.keys()
        lower = next((s for s in (f"{stem}s", f"{stem}es") if s in known), lower)
    plural = one in lexicon.STRICT | {"error", "value"} and not is_word(lower)
    lower = one if plural else lower  # `rates`
    return Token("word", lower, number=lexicon.NUMERALS.get(lower))


def is_word(words: str) -> bool:
    """Return True if this is a word of the language that the checker knows."""
    return any(
        words in table
        for table in (
            lexicon.FIELD_WORDS, lexicon.STAT_WORDS, lexicon.STATES, lexicon.NEGATIONS,
            lexicon.CAUSES, lexicon.TOTAL, lexicon.NOUNS, lexicon.NUMERALS, lexicon.COMPARATIVES,
            lexicon.SUPERLATIVES, lexicon.PRESENT, lexicon.PAST, lexicon.GLUE,
        )
    )  # fmt: skip


def _subjects(named: re.Match[str]) -> frozenset[str]:
    if named["cpu"]:
        return frozenset({"cpu"})
    kind = "replay" if named["replay"] else next(k for k in ("gpu", "job", "alert") if named[k])
    listed = named["gpu"] or named["job"] or named["alert"]
    numbers = [int(number) for number in re.findall(r"\d+", listed)]
    if " to " in listed and len(numbers) == 2:
        numbers = list(range(numbers[0], min(numbers[1], numbers[0] + 1000) + 1))
    return frozenset(f"{kind}{number}" for number in numbers)
