"""Refuse an order whose words forbid, limit or delay what was read in it.

Nothing is understood here: an order that the encoder read is proposed only if no word of the
request speaks against it and each number, time and name has its place in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from gpudeck.assistant.intents import thresholds
from gpudeck.assistant.intents.names import Known, is_word
from gpudeck.assistant.intents.times import words_of_time
from gpudeck.assistant.intents.tokens import JOIN, unaccented
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.reader.reading import Reading

Problem = Literal["unread", "command", "forbidden", "condition", "time", "several", "target",
                  "lacking", "change", "arguments", "setting", "priority"]  # fmt: skip


class Refusal(NamedTuple):
    """Say why an order is not proposed."""

    problem: Problem
    words: tuple[str, ...] = ()
    """The words that speak against it."""


def _of(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{'|'.join(words.split())})(?![\w-])")


_ALWAYS = "not don'?t never nicht nich nie niemals pas jamais nunca jamas"
_NEGATIONS = _of(
    f"{_ALWAYS} doesn'?t won'?t shouldn'?t mustn'?t cannot kein\\w* bloss\\snicht ne n' "
    "aucun\\w* no ningun\\w* tampoco without ohne sans "
    "sin avoid nothing nichts nix rien nada pity shame schade dommage pena lastima"
)
"""Words that forbid something, or regret that it was done."""
_NOT_SO = _of(f"{_ALWAYS} isn'?t aren'?t wasn'?t doesn'?t don'?t no ne n' without ohne sans sin")
"""Words that say in which state jobs are not."""
_FORBIDDING = _of(f"{_ALWAYS} keinesfalls auf\\skeinen\\sfall no(?!\\smore\\sthan)")
"""Those that are never filler in an order of _UNTAUGHT."""
_UNTAUGHT = frozenset({"submit", "book", "set", "limit"})
"""The reader of 26 November 2026 has not learnt what it looks like that these are forbidden."""
_WITH_NEGATION = frozenset({"begin", "timeout", "after", "after_any", "until"})
"""Options of a new job that may be said by a negation: "not before 22:00"."""
_CONDITIONS = _of(
    "if whether ob unless when whenever once until till while provided assuming wenn falls "
    "sobald solange sofern bis ausser\\swenn vorausgesetzt si quand lorsqu\\w* des\\squ\\w* "
    "jusqu\\w* tant\\sque pourvu cuando hasta mientras siempre\\sque en\\scuanto apenas as\\ssoon "
    "in\\scase only\\safter s'(?:ils?|elles?)(?!\\s(?:te|vous))"
)
_POLITE = re.compile(
    r"(?<![\w-])(?:if (?:(?:that|it)(?: is|'s) |at all )?(?:possible|ok|okay|fine)"
    r"|if you (?:can|could|don't mind)|(?:wenn|falls)(?:'s| es)? (?:irgendwie )?(?:moglich|geht)"
    r"|wenn du (?:kannst|magst)|si (?:c'est )?possible|si tu (?:peux|veux bien)"
    r"|si vous (?:pouvez|voulez bien)|si (?:se puede|puedes|es posible|no es molestia)"
    r"|si (?:es|eres|fuera) tan amable)(?=\s*(?:[,.!?;:)]|$))"
)
"""Courtesies that are no conditions."""
_BEHIND = _of(
    "when once wenn sobald quand lorsqu\\w* des\\squ\\w* cuando en\\scuanto apenas as\\ssoon "
    "only\\safter despues luego danach anschliessend apres afterwards"
)
_OF_OPTIONS = {
    "until": _of("until till bis jusqu\\w* hasta"),
    "begin": _of("until till bis jusqu\\w* hasta"),
    "after": _BEHIND,
    "after_any": _BEHIND,
    "retries": _of("if when wenn falls si quand cuando s'(?:ils?|elles?)"),
}
"""The conditions that an option of an order says, such as the end of another job."""
_LATER = _of(
    "later afterwards tomorrow tonight spater nachher morgen demain plus\\stard ensuite luego "
    "despues manana"
)
"""The encoder takes some of them for filler even where it is sure."""
_THEN = _of("danach anschliessend apres")
"""They tell a later time, a place, or a job to wait for."""
_ORDERED = _of("after before nach vor bevor apres avant despues antes")
"""Between two targets one of them is only what the order waits for: `cancel 7 after 8`."""
_EVERY = _of("every jede[nrsm]? chaque tous\\sles cada todos\\slos daily taglich")
"""A booking has one time."""
_EXCEPTING = _of(
    "except exept exempt excluding but besides apart other\\sthan ausser bis\\sauf sauf hormis "
    "excepte menos excepto salvo keep\\sonly"
)
_LIMITING = _of(
    "old alte\\w* vieux vieil\\w* viej\\w* big gross\\w* grand\\w* slow langsam\\w* lent\\w* "
    "last first newest oldest latest longest shortest older newer half some few most only other "
    "others rest remaining biggest largest smallest letzte\\w* erste\\w* neueste\\w* alteste\\w* "
    "langste\\w* halfte einige nur andere\\w* rest derniere?s? premiere?s? moitie quelques autres? "
    "reste seule?s? seulement statt ultim\\w* primer\\w* mitad algun\\w* otr\\w* solo resto idle "
    "nobody niemand personne nadie nowhere"
)
"""Words that make fewer jobs of all jobs."""
_ANOTHER = re.compile(
    r"(?<![\w-])(?:other|others|another|andere\w*|autres?|otr[ao]s?)(?![\w-])(?:\s[^\W\d_]+)?"
)
"""Something else than what an order names, such as `the other machine`, with the word for it."""
_WITHOUT_CHOICE = frozenset({"undo", "limit", "set", "book"})
"""Orders that choose no jobs: `only two at once` is the limit itself."""
_ARTICLES = _of("the der die das den dem le la les el los las")
"""They say nothing without the word behind them, which has its own place."""
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
    r"|doch nicht|vergiss es|laisse tomber|plutot pas|mejor no|olvidalo|dejalo"
    r"|(?:(?:i'?m |i was )?(?:just |only )?(?:kidding|joking)|(?:(?:that|it) was |war |das war |"
    r"c'etait |c'est |era |es )?(?:just |only |nur |juste |solo )?(?:a |ein |une |una )?(?:joke|"
    r"scherz|witz|spass|blague|plaisanterie|broma|chiste))))"
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


def is_supposed(request: str, found: Reading) -> bool:
    """Return whether a request asks what an order would do, or may ask that."""
    return "what_if=yes" in found.marks or (
        found.plain < thresholds.PLAIN and _SUPPOSED.search(plain(request)) is not None
    )


def against(request: str, found: Reading, order: Order, known: Known, now: float) -> Refusal | None:
    """Return what in a request speaks against an order that was read in it, or None."""
    if order.verb == "submit" and _AS_ROOT.search(plain(request)):
        return Refusal("forbidden", ("sudo",))
    if order.verb == "submit":
        return None  # `new_job` has asked
    if refused := doubted(request, found, order, now):
        return refused
    words = (*_split_list(request, found), *_lost(request, found, known, order))
    if order.verb != "set":  # the value of a setting may be any word
        words += unplaced(request, found)
    if words:
        # "Ben" is a name and a word that is in no field, and told once
        return Refusal("unread", tuple({word.casefold(): word for word in words}.values()))
    if refused := _of_other_states(plain(outside(request, found)), order):
        return refused
    named = order.jobs or order.devices or points(found)
    return None if named else _of_many(plain(outside(request, found)), order)


def doubted(request: str, found: Reading, order: Order, now: float) -> Refusal | None:
    """Return what may forbid, limit or delay an order.

    Where the encoder is sure that an order for now is meant, it has read these words, too. It takes
    some later times, and words behind an order that take it back, for filler even then.
    """
    rest = _POLITE.sub(" ", plain(outside(request, found)))
    if refused := _in_order(request, found, order):
        return refused
    said = [words for option, words in _OF_OPTIONS.items() if option in order.options]
    said += [_BEHIND] * (order.beside is not None)
    against: list[tuple[Problem, re.Pattern[str]]] = [("time", _LATER)]
    if found.plain < thresholds.UNCONDITIONAL:
        against.insert(0, ("condition", _CONDITIONS))
    doubtful = found.plain < thresholds.PLAIN
    if order.verb != "note" and _TAKEN_BACK.search(plain(request)):
        return Refusal("forbidden")
    if doubtful:
        against.append(("time", _THEN))
        against.insert(0, ("forbidden", _NEGATIONS))
        if not order.exclude:
            against += [("unread", _EXCEPTING), ("unread", _ANOTHER)]
    says_option = order.verb == "submit" and _WITH_NEGATION & {*order.options}
    if order.verb in _UNTAUGHT and not says_option:
        against.insert(0, ("forbidden", _FORBIDDING))
    for problem, pattern in against:
        words = [match[0] for match in pattern.finditer(rest)]
        for its in said:  # each option says one of them
            words = [*_without_first(words, its)]
        if words:
            return Refusal(problem, tuple(dict.fromkeys(words)))
    timed = words_of_time(outside(request, found), now) if doubtful else ()
    return Refusal("time", timed) if timed else None


def _in_order(request: str, found: Reading, order: Order) -> Refusal | None:
    """Return the words by which one target waits for another, or a booking is for several times."""
    ordered = _words(_ORDERED, plain(outside(request, found))) if parted(request, found) else ()
    if ordered and order.beside is None:
        return Refusal("condition", ordered)
    every = _words(_EVERY, plain(request)) if order.verb == "book" else ()
    return Refusal("time", every) if every else None


def _without_first(words: list[str], pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield words without the first one that a pattern matches."""
    first = next((i for i, word in enumerate(words) if pattern.fullmatch(word)), None)
    yield from (word for i, word in enumerate(words) if i != first)


def unplaced(request: str, found: Reading) -> tuple[str, ...]:
    """Return the words of a request that are in no field, and of which this is not sure."""
    within = outside(request, found)
    return tuple(
        request[one.first : one.last]
        for one in found.loose
        if one.filler < thresholds.FILLER
        and within[one.first : one.last].strip()
        and not _ARTICLES.fullmatch(plain(request[one.first : one.last]))
    )


def _of_other_states(rest: str, order: Order) -> Refusal | None:
    """Return the words by which an order is for jobs that are in other states than it says.

    The encoder marks what runs in `all that are not running`. `Not yet running` is what waits.
    """
    words = _words(_NOT_SO, rest) if "running" in order.states else ()
    if order.states and not order.exclude:
        words += _words(_EXCEPTING, rest)
    return Refusal("unread", words) if words else None


def points(found: Reading) -> bool:
    """Return whether an order is for "it", which may be the only job that it can be for."""
    return found.head.startswith("order") and "jobs=@it" in found.marks


def _of_many(rest: str, order: Order) -> Refusal | None:
    """Return the words that may choose among all jobs, the jobs of a group or the queue."""
    if order.verb in _WITHOUT_CHOICE or order.exclude:
        return None
    words = _words(_LIMITING, rest)
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
    """Return the numbers and names of a request that its order has no place for.

    A job may be called as an ordinary word is; what is surely such a word names nothing.
    """
    rest = outside(request, found)
    surely = {request[one.first : one.last].casefold() for one in found.loose
              if one.filler >= thresholds.NO_NAME}  # fmt: skip
    low = rest.casefold()
    names = [name for name in (*known.jobs, *known.groups, *known.users)
             if name != order.group and name.casefold() not in surely
             and is_word(name.casefold(), low)]  # fmt: skip
    return (*re.findall(r"\S*\d\S*", rest), *names)


Span = tuple[str, str]
"""A field with its letters."""


def parted(request: str, found: Reading) -> tuple[tuple[Span, ...], ...]:
    """Return the jobs or GPUs of an order by the parts of its sentence, if they are no one list.

    Between two targets of a list is no more than `, job` or `and the`. In `cancel job 7; wait,
    cancel job 8` the second part may take the first one back, and `7 or 8` leaves open which.
    """
    for field in ("jobs", "gpus"):
        parts: list[list[Span]] = []
        last = 0
        for span, (first, end) in zip(found.spans, found.places, strict=True):
            if span[0] != field or first == end:
                continue
            if not parts or not _joins(plain(request[last:first])):
                parts.append([])
            parts[-1].append(span)
            last = end
        if len(parts) > 1:
            return tuple(map(tuple, parts))
    return ()


def _joins(text: str) -> bool:
    """Return whether letters only join two targets of one list."""
    return not re.search(r"[.!?…:]", text.replace("nr.", "").replace("no.", "")) and all(
        word in _JOINING for word in re.findall(r"[^\W\d_]+", text)
    )


_JOINING_WORDS = """
and und et y e plus sowie as well also auch aussi tambien too both please bitte
the der die das den dem le la les l el los las on auf sur en of von de du del my mein meine
mon mi mes mis job jobs run runs task tasks auftrag auftrage tache taches trabajo trabajos
tarea tareas gpu gpus card cards karte karten carte cartes tarjeta tarjetas grafica graficas
placa placas number numero nummer nr
"""
_JOINING = frozenset(_JOINING_WORDS.split())


def numbers(request: str, found: Reading) -> tuple[str, ...]:
    """Return the numbers of a request that are in none of its parts."""
    return tuple(re.findall(r"(?<!\w)\d\S*", outside(request, found)))
