"""Refuse an order whose words forbid, limit or delay what was read in it.

Nothing is understood here: an order that the encoder read is proposed only if no word of the
request speaks against it and each number, time and name has its place in it.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from gpudeck.assistant.intents.names import Known, is_word
from gpudeck.assistant.intents.times import read_time
from gpudeck.assistant.intents.tokens import JOIN, tokens, unaccented
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.query.table import VERBS
from gpudeck.assistant.reader.reading import Reading

Problem = Literal["unread", "command", "forbidden", "condition", "time", "several", "target"]
WORDS = Path(__file__).with_name("order_words.txt")
"""Words of orders for several jobs; `gpudeck.assistant.training.order_words` makes it."""


class Refusal(NamedTuple):
    """Say why an order is not proposed."""

    problem: Problem
    words: tuple[str, ...] = ()
    """The words that speak against it."""


def _of(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{'|'.join(words.split())})(?![\w-])")


_NEGATIONS = _of(
    "not don'?t doesn'?t won'?t shouldn'?t mustn'?t cannot never nicht nich nie niemals kein\\w* "
    "bloss\\snicht ne n' pas jamais aucun\\w* no nunca jamas ningun\\w* tampoco without ohne sans "
    "sin avoid nothing nichts nix rien nada"
)
_OPENING_NO = re.compile(r"^\W*(?:no|non|nein|nee|nope)(?:\s+\w+)?\s*[,.!:;]+\s*(?=\w)")
"""It answers what was said before, and forbids nothing."""
_NEEDLESS = re.compile(
    r"\b(?:(?:i |we |you |he |she |they )?(?:do not|don'?t|doesn'?t|no longer) need "
    r"(?:it|them|that|this|those|him)"
    r"|(?:is |its |it's |are )?not needed|(?:brauch\w*|benotig\w*)(?: \w+){0,3} nicht mehr"
    r"|(?:wird |werden )?nicht mehr (?:gebraucht|benotigt|notig)"
    r"|(?:\S+ )?(?:ai|a|avons|ont) (?:plus|pas) besoin"
    r"|(?:ya )?no (?:lo|la|los|las) necesit\w+|(?:ya )?no (?:me |nos )?hacen? falta)"
    r"(?: any ?more| now| at all| mehr| ya)?(?=\s*(?:[,.;!)]|$))"
)
"""It says why something shall end, and forbids nothing; "you don't need to cancel it" goes on."""
_OF_EXCEPTED = re.compile(rf"{_NEGATIONS.pattern}\s+(?:\w+\s+)?$")
"""It stands before what is excepted: `15, not 14`, `le 13, pas le 12`."""
_REGRETS = _of("pity shame schade dommage pena lastima")
"""They are about what somebody has done."""
_CONDITIONS = _of(
    "if whether ob unless when whenever once until till while provided assuming wenn falls "
    "sobald solange "
    "sofern bis ausser\\swenn vorausgesetzt si quand lorsqu\\w* des\\squ\\w* jusqu\\w* tant\\sque "
    "pourvu cuando hasta mientras siempre\\sque en\\scuanto apenas as\\ssoon in\\scase only\\safter"
)
_BEHIND = _of(
    "when once wenn sobald quand lorsqu\\w* des\\squ\\w* cuando en\\scuanto apenas as\\ssoon "
    "only\\safter"
)
_OF_OPTIONS = {
    "until": _of("until till bis jusqu\\w* hasta"),
    "after": _BEHIND,
    "after_any": _BEHIND,
    "retries": _of("if when wenn falls si quand cuando"),
}
"""The conditions that an option of an order says, such as the end of another job."""
_NOT_BEFORE = re.compile(r"\b(?:do not|don'?t|not|nicht|pas|no)\b"
                         r"(?=.*\b(?:before|bevor|vor|avant|antes)\b)")  # fmt: skip
_SAID_BY = {
    "timeout": _of("(?:no|not)\\s(?:longer|more)\\sthan nicht\\s(?:langer|mehr)\\sals "
                   "pas\\splus(?:\\slongtemps)?\\s(?:de|que) no\\s(?:\\w+\\s)?mas\\s(?:de|que) "
                   "no\\spase\\sde"),
    "after": _NOT_BEFORE,
    "begin": _NOT_BEFORE,
}  # fmt: skip
"""The negations that an option of an order says: a longest time, or what comes first."""
_NOT_YET = re.compile(
    r"(?:that|which|who) (?:have|has|are|is|did)(?: not|n'?t)\b"
    r"|, (?:die|der|das)(?: \w+){0,2} nicht(?: \w+)?|qui (?:ne |n')\w+(?: \w+)? pas\b"
    r"|que (?:todavia|aun) no(?: \w+){0,2}"
)
"""It says in what state the jobs are that are meant, and forbids nothing."""
_LATER = _of(
    "later afterwards tomorrow tonight spater nachher morgen demain plus\\stard ensuite luego "
    "despues manana"
)
_THEN = _of("danach anschliessend apres")
"""They tell a later time, but for a place or a job to wait for."""
_EXCEPTING = _of(
    "except exept exempt excluding but besides apart other\\sthan ausser bis\\sauf sauf hormis "
    "excepte menos excepto salvo keep\\sonly"
)
_ALONE = _of("alone in\\sruhe tranquilles? en\\spaz")
_OF_ONE = _of("it its itself ihn ihm er celui celle lui aquel aquella")
"""They stand for one thing, which an order for all jobs in a state would pass over."""
_KEEPING = _of(
    "keep leave spare behalt\\w* lass\\w* garde\\w* laisse\\w* conserv\\w* deja\\w* manten\\w* "
    "mantien\\w*"
)
"""What shall stay is not to be ended."""
_STATES = {
    "running": _of("running active in\\sprogress laufend\\w* lauft laufen aktive\\w* en\\scours "
                   "tournent corriendo corren en\\scurso"),
    "queued": _of("queued waiting pending wartend\\w* warten en\\sattente attendent en\\sespera "
                  "esperan\\w* pendientes? en\\scola"),
    "failed": _of("failed crashed died errored broken fehlgeschlagen\\w* gescheitert\\w* "
                  "abgesturzt\\w* kaputt\\w* echoue\\w* plante\\w* fallid\\w* fallado\\w* "
                  "fallaron"),
    "done": _of("finished completed fertig\\w* beendet\\w* abgeschlossen\\w* "
                "termine(?:s|es?) finie?s? "
                "terminad\\w* acabad\\w*"),
    "cancelled": _of("cancell?ed abgebrochen\\w* annule(?:s|es?) cancelad\\w*"),
    "held": _of("held angehalten\\w* retenus? retenid\\w*"),
}  # fmt: skip
_LIMITING = _of(
    "last first newest oldest latest longest shortest older newer half some few most only other "
    "others rest remaining biggest largest smallest letzte\\w* erste\\w* neueste\\w* alteste\\w* "
    "langste\\w* halfte einige nur andere\\w* rest derniere?s? premiere?s? moitie quelques autres? "
    "reste seule?s? seulement statt ultim\\w* primer\\w* mitad algun\\w* otr\\w* solo resto idle "
    "nobody niemand personne nadie nowhere"
)
"""Words that make fewer jobs of all jobs."""
_SUPPOSED = re.compile(
    r"what (?:if|(?:would|will|happens?|changes)\b.*\bif\b)|what happens (?:when|to)"
    r"|was (?:ware|passiert|wurde|wird|geschieht)\b.*\bwenn\b|angenommen"
    r"|(?:que|qu'est-ce qui) se passe\w*\b.*\bsi\b|qu'arriver\w+ .*\bsi\b|et si (?:je|j'|on)"
    r"|que (?:pasa|pasaria|ocurre|ocurriria|sucede) .*\bsi\b|y si (?:yo )?\w+o\b"
)
_TAKEN_BACK = re.compile(
    r"(?<=[\w`'\"”»)])\s*(?:[.…,;!]|\s[-–—]\s)[\s.…,;!]*"
    r"(?:\b(?:uh+|um+|er+|oops|sorry|wait|oh|ah|ach|actually|doch|eigentlich|en fait|bueno)\b"
    r"[\s,.…]*)*(?:no+|nope|nah|nein|nee|no|non|(?:never ?mind|rather not|don'?t|lieber nicht"
    r"|doch nicht|vergiss es|laisse tomber|plutot pas|mejor no|olvidalo|dejalo))"
    r"(?:[\s,]+(?:no|non|nein|thanks|thank you|danke|merci|gracias|sorry|wait|stop))*\s*[.!…]*$"
)
"""`…, no?` asks for agreement, and takes nothing back."""
_SECRET = re.compile(
    r"\b(?:password|passwd|passwort|mot de passe|contrasena|ssh key|private key)s?\b"
    r"|(?<![\w.])/etc/(?:shadow|passwd)"
)
_AS_ROOT = re.compile(r"(?<![\w.-])(?:sudo|doas|pkexec|su)(?!\w)")


def plain(text: str) -> str:
    """Return a text without capitals and accents, letter by letter."""
    return "".join(unaccented(letter)[:1] or letter for letter in text.casefold().replace("’", "'"))


def is_secret(request: str) -> bool:
    """Return whether a request is about what is never read or told."""
    return _SECRET.search(plain(request)) is not None


def is_supposed(request: str) -> bool:
    """Return whether a request asks what an order would do."""
    return _SUPPOSED.search(plain(request)) is not None


def against(request: str, found: Reading, order: Order, known: Known, now: float) -> Refusal | None:
    """Return what in a request speaks against an order that was read in it, or None."""
    if order.verb == "submit" and _AS_ROOT.search(plain(request)):
        return Refusal("forbidden", ("sudo",))
    if found.head == "order submit":
        return None  # `read_submission` has read every word
    rest = _without_values(request, found, order)
    if _TAKEN_BACK.search(plain(request)):
        return Refusal("forbidden")
    if words := _words(_REGRETS, rest):
        return Refusal("forbidden", words)
    stops = order.verb in ("pause", "hold", "drain")
    if refused := None if stops else _negated(rest):
        return refused
    read = [words for option, words in _OF_OPTIONS.items() if option in order.options]
    conditions = [word for word in _words(_CONDITIONS, rest)
                  if not any(words.fullmatch(word) for words in read)]  # fmt: skip
    if conditions:
        return Refusal("condition", tuple(conditions))
    timed = read_time(tokens(outside(request, found)), now)
    placed = order.place or {"after", "after_any"} & {*order.options}
    words = _words(_LATER, rest) or (() if placed else _words(_THEN, rest))
    if words or timed is not None:
        return Refusal("time", words)
    if words := _split_list(request, found):
        return Refusal("unread", words)
    if words := _lost(request, found, known, order):
        return Refusal("unread", words)
    excepting = [word for word in _words(_EXCEPTING, rest)
                 if not (order.options and word == "but")]  # fmt: skip
    if excepting and not order.exclude:
        return Refusal("unread", tuple(excepting))
    if not order.exclude and (words := _words(_ALONE, rest)):
        return Refusal("unread", words)
    if order.verb in ("cancel", "kill") and not order.exclude and (words := _words(_KEEPING, rest)):
        return Refusal("unread", words)
    named = order.jobs or order.devices or points(found)
    return None if named else _of_many(rest, found, order)


def _without_values(request: str, found: Reading, order: Order) -> str:
    """Return the words of a request that are no part of its reading, and forbid something."""
    rest = _OPENING_NO.sub(" ", _without_excepting(plain(outside(request, found)), found))
    rest = _NEEDLESS.sub(" ", rest)
    for option in {*_SAID_BY} & {*order.options}:
        rest = _SAID_BY[option].sub(" ", rest)
    told = any(mark.startswith("states=") for mark in found.marks)
    return _NOT_YET.sub(" ", rest) if told else rest


def points(found: Reading) -> bool:
    """Return whether an order is for "it", which may be the only job that it can be for."""
    return found.head.startswith("order") and "jobs=@it" in found.marks


def _without_excepting(rest: str, found: Reading) -> str:
    """Return a text with blanks in place of negations that stand before what is excepted."""
    for (field, _), (first, _) in zip(found.spans, found.places, strict=True):
        if field == "except" and (match := _OF_EXCEPTED.search(rest[:first])) is not None:
            rest = rest[: match.start()] + " " * (first - match.start()) + rest[first:]
    return rest


def negated(words: tuple[str, ...]) -> Refusal | None:
    """Return a refusal if one of the words that no part of an order has forbids it."""
    return _negated(" ".join(map(plain, words)))


def _negated(rest: str) -> Refusal | None:
    words = _words(_NEGATIONS, rest)
    return Refusal("forbidden", words) if words else None


def _of_many(rest: str, found: Reading, order: Order) -> Refusal | None:
    """Return the words that an order for all jobs, a group or the queue has no place for."""
    if order.verb == "undo":
        return None  # it is for the last clean-up, whatever is said of it
    if order.states and (words := _words(_OF_ONE, rest)):
        return Refusal("unread", words)
    for state, pattern in _STATES.items():
        for_these = f"states={state}" in found.marks or VERBS[order.verb].states == (state,)
        if not for_these and (words := _words(pattern, rest)):
            return Refusal("unread", words)
    if not order.exclude and (words := _words(_LIMITING, rest)):
        return Refusal("unread", words)
    if order.verb in ("set", "kill", "acknowledge", "submit", "book", "unbook"):
        return None
    read = order_words()
    named = plain(order.group).split("-")
    words = tuple(word for word in re.findall(r"[^\W\d_]{2,}", rest)
                  if word not in read and word not in named)  # fmt: skip
    return Refusal("unread", words) if words else None


def _words(pattern: re.Pattern[str], rest: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[0] for match in pattern.finditer(rest)))


def outside(request: str, found: Reading, fields: frozenset[str] = frozenset()) -> str:
    """Return a request with blanks in place of the letters that have a field."""
    letters = list(request)
    for (field, _), (first, last) in zip(found.spans, found.places, strict=True):
        if not fields or field in fields:
            letters[first:last] = " " * (last - first)
    return "".join(letters)


def _split_list(request: str, found: Reading) -> tuple[str, ...]:
    """Return two numbers of one list if the order is for one of them and not for the other."""
    for (one, (_, end)), (other, (begin, last)) in pairwise(
        (field, place) for (field, _), place in zip(found.spans, found.places, strict=True)
    ):
        if {one, other} == {"jobs", "except"} and JOIN.fullmatch(request[end:begin]):
            return (request[end:last].strip(),)
    return ()


def _lost(request: str, found: Reading, known: Known, order: Order) -> tuple[str, ...]:
    """Return the numbers and names of a request that its order has no place for."""
    rest = outside(request, found)
    low, read = rest.casefold(), order_words()
    names = [name for name in (*known.jobs, *known.groups, *known.users)
             if name.casefold() not in read and name != order.group
             and is_word(name.casefold(), low)]  # fmt: skip
    return (*re.findall(r"\S*\d\S*", rest), *names)


def numbers(request: str, found: Reading) -> tuple[str, ...]:
    """Return the numbers of a request that are in none of its parts."""
    return tuple(re.findall(r"(?<!\w)\d\S*", outside(request, found)))


@cache
def order_words() -> frozenset[str]:
    """Return the words that orders for several jobs are made of."""
    return frozenset(WORDS.read_text("utf-8").split())
