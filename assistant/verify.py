"""Whether a text says nothing but the facts: its numbers with their units, its names and its claims.

It works on sets, sentence by sentence: a sentence about job 7 may use numbers of job 7 and of no other, and call it done only
if job 7 is. A sentence that begins with "it" is about what the one before was about, too. It cannot tell whether a sentence
makes sense; it makes sure that nothing in it was invented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from assistant.facts import Fact

_UNITS = r"%|°C|TFLOP/s|FLOP/s|[KMGT]iB/s|[KMGT]iB|[KMGT]B/s|[KMGT]B|B/s|MHz|GHz|kWh|Wh|kW|mW|W|ms|µs|us|ns|min|h|d|s|J|lanes|B|F|C|K"
_NUMBER = re.compile(
    r"(?P<noun>\b(?:REPLAY GPU|GPU|CPU|[Jj]ob|pid|P)[ #]*)?(?<![^\W_])(?P<number>\d+(?:[.,:-]\d+)*(?:e[+-]?\d+)?)"
    rf"(?:\s*(?P<unit>{_UNITS})(?![\w/]))?"
)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NUMBER_WORDS = _set(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen "
    "twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen half quarter twice thrice "
    "double triple first second third"
)
_CLAIMS = _set(
    "done failed fail fails failure cancelled lost queued running starting idle busy pass passed passes error errors crashed paused full "
    "flash cudnn efficient math reference auto replay simulated nvidia amd intel cuda"
)
"""Words that claim something: each must be in a fact."""
_SAME = {"passed": "pass", "passes": "pass"}
"""Other forms of a claim: as good as the one in the fact."""
_OPENERS = _set(
    "a after all although an and are as at average before both but by during each for from further has have here highest however "
    "idle in it its job jobs just mean mind more no none not note nothing now of on only other others report since so somebody "
    "sources summary that the then there these they this to was were what when while with"
)
"""Words that may begin a sentence in upper case without being a name."""
_WORD = re.compile(r"[^\W\d_](?:[\w./'-]*\w)?|\w*\d\w*[A-Za-z]\w*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_IT = re.compile(r"its?\b", re.IGNORECASE)
_BROKEN = "\ufffd"
"""What stands for bytes that are no character."""
_SLOT = re.compile(r"\{([^{}]*)\}")


class Refused(Exception):
    """The text cannot be shown; the message is the reason, in one line."""


def fill(text: str, facts: Sequence[Fact]) -> str:
    """Put the facts into their slots: `{gpu0.temp}` becomes `71 °C`. Raises Refused for a slot that names no fact."""
    said = {fact.name: fact.said for fact in facts}

    def value(slot: re.Match[str]) -> str:
        if slot[1] not in said:
            raise Refused(f"it names a fact that does not exist: {{{slot[1][:40]}}}")
        return said[slot[1]]

    return _SLOT.sub(value, text)


def verify(text: str, facts: Sequence[Fact], required: Iterable[Fact] = ()) -> None:
    """Raises Refused where `text` (slots filled) has a number, unit, name or claim that is in no fact, or misses a `required` one."""
    if not text.strip():
        raise Refused("it is empty")
    if strange := next(
        (c for c in text if not (c.isprintable() or c == "\n") or (c.isnumeric() and not c.isascii()) or c == "\ufffd"), None
    ):
        raise Refused(f"it has a character that no fact has: U+{ord(strange):04X}")
    named: set[str] = set()
    for sentence in filter(None, map(str.strip, _SENTENCE.split(text))):
        named = _named(sentence, facts) | (named if _IT.match(sentence) else set())
        others = {s for s, _ in _subjects(facts)} - named if named else set()
        about = [fact for fact in facts if fact.subject not in others]
        claims = [fact for fact in about if not named or fact.subject in named]
        _check_numbers(sentence, about)
        _check_words(sentence, _vocabulary(about), {word.lower() for word in _vocabulary(claims)})
    for fact in required:
        if fact.said not in text:
            raise Refused(f"it does not mention: {fact.text}")


def last_end(text: str) -> int:
    """Where the last sentence that is complete ends."""
    return max((found.end() for found in _SENTENCE.finditer(text)), default=0)


def _subjects(facts: Sequence[Fact]) -> list[tuple[str, str]]:
    """Devices and jobs, each with what it is called in a text."""
    devices = [(fact.subject, fact.said) for fact in facts if fact.name.endswith(".label")]
    return devices + [(fact.subject, f"Job {fact.subject.removeprefix('job')}") for fact in facts if fact.name.endswith(".state")]


def _named(sentence: str, facts: Sequence[Fact]) -> set[str]:
    """The devices and jobs a sentence names: it may use their facts and those about no device or job, and claim only theirs."""
    return {s for s, called in _subjects(facts) if re.search(rf"(?<!REPLAY )\b{re.escape(called)}\b", sentence, re.IGNORECASE)}


def _check_numbers(sentence: str, facts: Sequence[Fact]) -> None:
    known = set().union(*(_known_numbers(fact.text) for fact in facts))
    known |= {("job", fact.subject.removeprefix("job"), "") for fact in facts if fact.name.endswith(".state")}
    for noun, number, unit in _numbers(sentence):
        if (noun, number, unit) not in known:
            shown = " ".join(filter(None, (noun, number, unit)))
            raise Refused(f"it says {shown!r}, which is in none of the facts{' with this unit' if _bare(number, known) else ''}")


def _bare(number: str, known: set[tuple[str, str, str]]) -> bool:
    return any(number == other for _, other, _ in known)


def _numbers(text: str) -> list[tuple[str, str, str]]:
    """Every number in `text` with the noun before it (GPU, job) and the unit after it."""
    return [((m["noun"] or "").strip(" #").lower(), m["number"], m["unit"] or "") for m in _NUMBER.finditer(text)]


@lru_cache(4096)  # a text is looked at again with each of its sentences, and its facts with it
def _known_numbers(fact: str) -> frozenset[tuple[str, str, str]]:
    return frozenset(_numbers(fact))


@lru_cache(4096)
def _known_words(fact: str) -> frozenset[str]:
    return frozenset(_words(fact))


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _vocabulary(facts: Sequence[Fact]) -> set[str]:
    return set().union(*(_known_words(fact.text) for fact in facts))


def _check_words(sentence: str, exact: set[str], claims: set[str]) -> None:
    known = {word.lower() for word in exact}
    for i, word in enumerate(_words(sentence)):
        lower = word.lower()
        if lower in _NUMBER_WORDS | _CLAIMS and not {lower, _SAME.get(lower)} & claims:
            raise Refused(f"it says {word!r}, which no fact says")
        if lower in known and (word in exact or i == 0):
            continue
        opens = i == 0 and word[1:] == lower[1:] and lower in _OPENERS
        if not opens and (lower != word or any(c.isdigit() or c in "_/." for c in word)):
            raise Refused(f"it names {word!r}, which is in none of the facts")
