"""Verify that a text states only facts: its numbers with signs and units, its names and its claims.

The check works on sets, sentence by sentence: a sentence about job 7 may use numbers of job 7 and
of no other, and call it done only if job 7 is done. A sentence that begins with "it" is also about
the subject of the one before. Names are words in upper case or with digits, what stands in brackets
after a job, and the word after `by` and `on`. Claims are the words listed here, and such a word
denied. A sentence that names no device or job may use all facts.

The check cannot decide whether a sentence makes sense, nor which value of job 7 a number is: it
makes sure that numbers, such names and such claims are those of facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile

from assistant.facts import Fact

_UNITS = (
    r"%|°C|TFLOP/s|FLOP/s|[KMGT]iB/s|[KMGT]iB|[KMGT]B/s|[KMGT]B|B/s|MHz|GHz|kWh|Wh|kW|mW|W"
    r"|ms|µs|us|ns|min|h|d|s|J|lanes|B|F|C|K"
)
_NUMBER = re.compile(
    r"(?P<noun>\b(?:REPLAY GPU|GPU|CPU|[Jj]ob|pid|P)[ "
    r"#]*)?(?P<minus>(?<![\w)\]%])(?:[-\u2010-\u2015\ufe63\uff0d]|\u2212\s?))?"
    r"(?<![^\W_])(?P<number>\d+(?:[.,:-]\d+)*(?:e[+-]?\d+)?)"
    rf"(?:\s*(?P<unit>{_UNITS})(?![\w/]))?"
)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NUMBER_WORDS = _set(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen "
    "twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion "
    "trillion dozen half quarter twice thrice "
    "double triple first second third minus negative"
)
_CLAIMS = _set(
    "done failed fail fails failure cancelled canceled aborted stopped stopping killed "
    "terminated interrupted lost queued running starting "
    "idle busy pass passed passes error errors crash crashes crashed broke broken dead died "
    "hung stuck stalled frozen paused full "
    "throttled throttling overheated overheating flash cudnn efficient math reference auto "
    "replay simulated nvidia amd intel cuda"
)
"""Words that claim something: each must be in a fact."""
_OF_MANY = _set("highest lowest average mean peak")
"""Words that select one of many values: each must be in a fact as well."""
_SAME = {
    "passed": _set("pass"),
    "passes": _set("pass"),
    "canceled": _set("cancelled"),
    "aborted": _set("cancelled"),
    "stopped": _set("cancelled failed lost stopping"),
    "died": _set("failed killed lost"),
    "throttled": _set("throttling"),
    "throttling": _set("throttled"),
    "average": _set("mean"),
    "peak": _set("highest"),
}
"""Other words for a claim, as good as those in the fact."""
_GAP = r"[\s*_`\"'(]+"
_DENIED = re.compile(
    rf"(?:\b(?:not|never|no{_GAP}longer|cannot|hardly|yet{_GAP}to|far{_GAP}from|nothing{_GAP}is)|n['’]t){_GAP}"
    rf"(?:(?:yet|ever|been|be|being|really|actually|currently|fully|quite|completely|entirely|get|got|now){_GAP})*(\w+)",
    re.IGNORECASE,
)
_IN_BRACKETS = re.compile(r"\bjob[ #]*(\d+)[\s*_`]*\(([^()]*)", re.IGNORECASE)
_BY_OR_ON = re.compile(rf"\b(?:by|on){_GAP}([^\W\d_](?:[\w./'-]*\w)?)", re.IGNORECASE)
_OPENERS = _set(
    "a after all although an and are as at average before both but by during each for from "
    "further has have here highest however "
    "idle in it its job jobs just mean mind more no none not note nothing now of on only "
    "other others report since so somebody "
    "sources summary that the then there these they this to was were what when while with"
)
"""Words that may begin a sentence in upper case without being a name."""
_LITTLE = _OPENERS | _set(
    "about another any anything behalf board but completion course default demand design "
    "device devices disk either every everything far "
    "gpu gpus hand hardware hold how if itself least me memory mistake most my name number "
    "off one or our own power purpose request "
    "schedule several so some something still such temperature than their them those time to "
    "top track us utilisation where whether "
    "which you your code compute computing currently data exit finished completed complete "
    "successfully recent previous current person "
    "sensors someone user see next line through done passed"
)
"""Words that may stand in brackets after a job, or after `by` and `on`, without being a name."""
_WORD = re.compile(r"[^\W\d_](?:[\w./'-]*\w)?|\w*\d\w*[A-Za-z]\w*")
_COUNTABLE = _set(
    "job jobs times calls runs attempts errors alerts gpus devices ran running starting "
    "queued done failed cancelled lost"
)
_BETWEEN = _set("more other further that have has are is were was got been still")
"""Words that may stand between a count and what is counted."""
_SUBJECT = re.compile(r"(gpu|replay|cpu|job)(\d*)")
_CALLED = {"gpu": "GPU", "replay": "REPLAY GPU", "cpu": "CPU", "job": "Job"}
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_IT = re.compile(r"its?\b", re.IGNORECASE)
_BROKEN = "\ufffd"
"""The character that stands for bytes that are not text."""
_SLOT = re.compile(r"\{([^{}]*)\}")


class Refused(Exception):
    """Report that a text cannot be shown; the message is the reason, in one line."""


def fill(text: str, facts: Sequence[Fact]) -> str:
    """Replace each slot by its fact: `{gpu0.temp}` becomes `71 °C`. Raises Refused for an unknown
    slot.
    """
    said = {fact.name: fact.said for fact in facts}

    def value(slot: re.Match[str]) -> str:
        if slot[1] not in said:
            raise Refused(f"it names a fact that does not exist: {{{slot[1][:40]}}}")
        return said[slot[1]]

    return _SLOT.sub(value, text)


def verify(text: str, facts: Sequence[Fact], required: Iterable[Fact] = ()) -> None:
    """Check a text with filled slots against the facts.

    Raises:
        Refused: It has a number, sign, unit, name or claim that is in no fact, or lacks a required
            one.
    """
    if not text.strip():
        raise Refused("it is empty")
    if strange := next(
        (
            c
            for c in text
            if not (c.isprintable() or c == "\n")
            or (c.isnumeric() and not c.isascii())
            or c == "\ufffd"
        ),
        None,
    ):
        raise Refused(f"it has a character that no fact has: U+{ord(strange):04X}")
    named: set[str] = set()
    for sentence in filter(None, map(str.strip, _SENTENCE.split(text))):
        named = _named(sentence, facts) | (named if _IT.match(sentence) else set())
        others = {s for s, _ in _subjects(facts)} - named if named else set()
        about = [fact for fact in facts if fact.subject not in others]
        claims = [fact for fact in about if not named or fact.subject in named]
        _check_numbers(sentence, about)
        _check_counts(sentence, about)
        _check_words(sentence, _vocabulary(about), _lower(claims))
        _check_denials(sentence, claims)
        _check_names(sentence, about)
    for fact in required:
        if fact.said not in text:
            raise Refused(f"it does not mention: {fact.text}")


def last_end(text: str) -> int:
    """Return the end of the last complete sentence."""
    return max((found.end() for found in _SENTENCE.finditer(text)), default=0)


def _subjects(facts: Sequence[Fact]) -> list[tuple[str, str]]:
    """Return devices and jobs, each with its name in a text."""
    found = (
        _SUBJECT.fullmatch(subject) for subject in dict.fromkeys(fact.subject for fact in facts)
    )
    return [
        (subject[0], f"{_CALLED[subject[1]]} {subject[2]}".strip()) for subject in found if subject
    ]


def _named(sentence: str, facts: Sequence[Fact]) -> set[str]:
    """Return the devices and jobs that a sentence names.

    It may use their facts and those about no device or job, and make claims only about them.
    """
    return {
        s
        for s, called in _subjects(facts)
        if re.search(rf"(?<!REPLAY )\b{re.escape(called)}\b", sentence, re.IGNORECASE)
    }


def _check_numbers(sentence: str, facts: Sequence[Fact]) -> None:
    known = set().union(*(_known_numbers(fact.text) for fact in facts))
    known |= {
        ("job", subject.removeprefix("job"), "")
        for subject, called in _subjects(facts)
        if called.startswith("Job")
    }
    for noun, number, unit in _numbers(sentence):
        if (noun, number, unit) not in known:
            shown = " ".join(filter(None, (noun, number, unit)))
            raise Refused(
                f"it says {shown!r}, which is in none of the "
                f"facts{' with this unit' if _bare(number, known) else ''}"
            )


def _check_counts(sentence: str, facts: Sequence[Fact]) -> None:
    """Check that each count (`3 jobs failed`) is in a single fact, not in another fact's number."""
    for found in _NUMBER.finditer(sentence):
        clause = (
            re.split(r"[^\w\s*]", sentence[found.end() :], maxsplit=1)[0].lower().replace("*", " ")
        )
        words = clause.split()
        what = list(takewhile((_COUNTABLE | _BETWEEN).__contains__, words))
        counted = {"jobs" if word == "job" else word for word in what} & _COUNTABLE
        if found["noun"] or found["unit"] or not counted or not found["number"].isdigit():
            continue
        if "".join(words[len(what) : len(what) + 1]).isdigit() or sentence[
            : found.start()
        ].rstrip().endswith(" of"):
            continue  # a date before `job 7`, or `1 of 3 jobs`
        if not any(
            counted <= _lower([fact]) and ("", found["number"], "") in _known_numbers(fact.text)
            for fact in facts
        ):
            raise Refused(f"it says '{found['number']} {' '.join(what)}', which no fact counts")


def _bare(number: str, known: set[tuple[str, str, str]]) -> bool:
    return any(number == other for _, other, _ in known)


def _numbers(text: str) -> list[tuple[str, str, str]]:
    """Yield every number with the noun before it (GPU, job), its sign, and the unit after it."""
    found = _NUMBER.finditer(text)
    return [
        (
            (m["noun"] or "").strip(" #").lower(),
            ("-" if m["minus"] else "") + m["number"],
            m["unit"] or "",
        )
        for m in found
    ]


@lru_cache(4096)  # A text is checked again with each of its sentences, and its facts with it.
def _known_numbers(fact: str) -> frozenset[tuple[str, str, str]]:
    return frozenset(_numbers(fact))


@lru_cache(4096)
def _known_words(fact: str) -> frozenset[str]:
    return frozenset(_words(fact))


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _vocabulary(facts: Sequence[Fact]) -> set[str]:
    return set().union(*(_known_words(fact.text) for fact in facts))


def _lower(facts: Sequence[Fact]) -> set[str]:
    return {word.lower() for word in _vocabulary(facts)}


def _check_words(sentence: str, exact: set[str], claims: set[str]) -> None:
    known = {word.lower() for word in exact}
    for i, word in enumerate(_words(sentence)):
        lower = word.lower()
        if (
            lower in _NUMBER_WORDS | _CLAIMS | _OF_MANY
            and not {lower, *_SAME.get(lower, ())} & claims
        ):
            raise Refused(f"it says {word!r}, which no fact says")
        if lower in known and (word in exact or i == 0):
            continue
        opens = i == 0 and word[1:] == lower[1:] and lower in _OPENERS
        if not opens and (lower != word or any(c.isdigit() or c in "_/." for c in word)):
            raise Refused(f"it names {word!r}, which is in none of the facts")


def _check_denials(sentence: str, facts: Sequence[Fact]) -> None:
    """Check that denied claims are denied by a fact: job 7 being done does not make "not done"
    true.
    """
    for denied in _DENIED.finditer(sentence):
        if denied[1].lower() in _CLAIMS and not any(
            denied[0].lower() in fact.text.lower() for fact in facts
        ):
            raise Refused(f"it says {denied[0]!r}, which no fact says")


def _check_names(sentence: str, facts: Sequence[Fact]) -> None:
    """Check lower-case names: in brackets after a job, which must be its own, and after `by` and
    `on`.
    """
    for job, inside in _IN_BRACKETS.findall(sentence):
        own = _lower([fact for fact in facts if fact.subject == f"job{job}"])
        if strange := [word for word in _words(inside) if word.lower() not in own | _LITTLE]:
            raise Refused(f"it names {strange[0]!r}, which is in none of the facts about job {job}")
    known = _lower(facts) | _LITTLE
    for word in _BY_OR_ON.findall(sentence):
        if word.lower() not in known and not word.endswith(
            "ing"
        ):  # "by computing", "on hearing": an activity, not a name
            raise Refused(f"it names {word!r}, which is in none of the facts")
