"""Read how an amount is said in relation to what a job has: `twice the memory`, `4 hours longer`.

What a relation comes to is computed by who plans the order, and stands on its card.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from gpudeck.assistant.intents.moments import LENGTH, NUMBER, with_digits

_LENGTH = re.compile(rf"(?i)(?<!\w){LENGTH}")
_MEMORY = r"(?:(?:gpu[- ]?)?(?:v?ram|memory|speicher|m[eé]moire|memoria)(?: (?:gpu|vid[eé]o))?)"
_FACTORS = {
    2.0: r"twice|double|doppel\w*|zweifach\w*|doble",
    3.0: r"thrice|triple|dreifach\w*",
    0.5: r"half|halb\w*|h[aä]lfte|moiti[eé]|mitad",
}
_N_TIMES = r"(?:(?P<n>\d+(?:[.,]\d+)?) ?(?:x|×|times|-?mal|fois|veces)|(?:x|×) ?(?P<n_>\d+))"
_NAMED = r"(?:two|three|zwei|drei|deux|trois|dos|tres)(?:mal| (?:times|mal|fois|veces))"
_BEHIND = r"(?:(?: (?:as|so|the|of|de|que|plus|m[aá]s|more|much|viel|the|amount|la|le|les|el))*)"
_MULTIPLE = (
    rf"(?:(?:the|das|die|den|dem|le|la|el) )?"
    rf"(?:{'|'.join(_FACTORS.values())}|{_N_TIMES}|{_NAMED}){_BEHIND}"
)
MULTIPLE_OF_MEMORY = re.compile(rf"(?i)(?<![\w.])(?P<list>{_MULTIPLE} {_MEMORY})(?!\w)")
"""So many times the memory that a job has."""
_WHOLE = re.compile(rf"(?i)(?:{_MULTIPLE})(?: (?:{_MEMORY}|time|limit|long|lang\w*|zeit\w*|temps"
                    r"|tiempo|longtemps))?")  # fmt: skip
_WORDS_FOR = {2.0: r"two|zwei|deux|dos", 3.0: r"three|drei|trois|tres"}
_THAN = r"(?!\w)(?! (?:than|als|que|de)\b)"
_ADDED = (
    r"(?:(?:de )?(?:longer|more|extra|additional|mehr|l[aä]nger|zus[aä]tzlich\w*"
    r"|plus(?: longtemps)?(?! t[aôo])|suppl[eé]mentaires?|m[aá]s(?: tiempo)?(?! ta?[er])"
    rf"|adicional(?:es)?)){_THAN}"
)
_TAKEN = rf"(?:(?:de )?(?:shorter|less|fewer|weniger|k[uü]rzer|moins|menos){_THAN})"
_LATER = rf"(?:later|sp[aä]ter|plus tard|m[aá]s tarde|despu[eé]s{_THAN})"
_EARLIER = rf"(?:earlier|sooner|fr[uü]her|plus t[oô]t|antes|m[aá]s temprano){_THAN}"
_SIGNS = tuple(
    (sign, re.compile(rf"(?i)(?:^|(?<=\s))\s*(?:{words})"))
    for sign, words in (("-", _TAKEN), ("-", _EARLIER), ("+", _ADDED), ("+", _LATER))
)
_OF_CLOCK = re.compile(rf"(?i)(?<!\w)(?:{_LATER}|{_EARLIER})")
_BEHIND_AMOUNT = re.compile(rf"(?i)\s+(?:{_ADDED}|{_TAKEN})")
_BEHIND_LENGTH = re.compile(rf"(?i)\s+(?:{_ADDED}|{_TAKEN}|{_LATER}|{_EARLIER})")
_INSIDE = re.compile(
    rf"(?i)^(?:(?P<n>{NUMBER}) (?:more|extra|additional|mehr|weitere[nr]?|zus[aä]tzliche[nr]?"
    r"|m[aá]s)"
    r"|another|otr[ao]) (?=\w)"
)
_ANOTHER = re.compile(r"(?i)(?<!\w)(?:another|additional|weitere\w*|noch|zus[aä]tzlich\w*|encore"
                      r"|otr[ao]s?) +$")  # fmt: skip
_BY = re.compile(r"(?i)(?<!\w)(by|um|de|en)\s*$")
_TO = re.compile(
    r"(?i)(?:(?<!\w)(?:to|at|than|auf|als|[aà]|al|que|hasta|bis|with|mit|avec|con)|jusqu'[aà]"
    r"|[:,=(])\s*$"
)
"""Before an amount that is the new one, and none that is added."""
_NOT = re.compile(
    r"(?i)(?<!\w)(?:not|never|without|nicht|nie|ohne|pas|jamais|sans|no|nunca|sin)"
    r"(?: (?:with|mit|avec|con|any|the|more|mehr|plus|de|m[aá]s|less|weniger|moins|menos))*\s*$"
)
_GPU = r"(?:gpus?|cards?|karten?|grafikkarten?|cartes?|tarjetas?|gr[aá]ficas?|placas?)"
MORE_GPUS = re.compile(
    rf"(?i)(?<![\w-])(?P<list>(?:{NUMBER} (?:more|extra|additional|mehr|weitere\w*|m[aá]s"
    rf"|fewer|less|weniger|menos)|another|otra) {_GPU}"
    rf"|{NUMBER} {_GPU}(?: (?:more|mehr|de plus|m[aá]s|fewer|less|weniger|de moins|menos)))(?!\w)"
)
"""GPUs that a job shall have besides its own, or without which it shall do."""


def factor(letters: str) -> float | None:
    """Return how many times as much is meant, or None: 2 for `twice the memory`."""
    text = " ".join(letters.split())
    found = _WHOLE.fullmatch(text)
    if found is None:
        return None
    if number := found["n"] or found["n_"]:
        return float(number.replace(",", "."))
    for known in (_FACTORS, _WORDS_FOR):
        for times, words in known.items():
            if re.search(rf"(?i)(?<!\w)(?:{words})", text):
                return times
    return None


def sign(text: str, letters: str, change: Collection[str]) -> str:
    """Return `+` or `-` for an amount that is added to another or taken from it, else nothing.

    It is `?` where the amount is one of these, and nothing says which.

    Args:
        text: The request.
        letters: Its letters that are the amount, such as `4 hours` or `half an hour later`.
        change: The encoder's marks: `more` or `less`.
    """
    before = text.partition(letters)[0]
    for known, words in _SIGNS:
        if words.search(letters):
            return known
    if _INSIDE.match(letters) or _ANOTHER.search(before):
        return "+"
    by = _BY.search(before)
    if by is None:
        return "?" if change and not _TO.search(before) else ""
    marked = "".join("+" if one == "more" else "-" for one in change if one in ("more", "less"))
    return marked[:1] or ("?" if by[1].casefold() != "de" else "")


def widened(text: str, first: int, last: int) -> tuple[int, int]:
    """Return the place of an amount with the words that say what it is added to or taken from.

    They stand behind it, as in `4 hours longer`, or before it, as in `another hour`. Only a length
    of time is later or earlier.
    """
    length = next((found.span() for found in _LENGTH.finditer(text)
                   if found.start() < last and found.end() > first), (first, last))  # fmt: skip
    first, last = min(first, length[0]), max(last, length[1])
    is_length = _LENGTH.search(f"1 {text[first:last]}") is not None
    behind = (_BEHIND_LENGTH if is_length else _BEHIND_AMOUNT).match(text, last)
    before = _ANOTHER.search(text[:first])
    return before.start() if before else first, behind.end() if behind else last


def bare(letters: str) -> str:
    """Return an amount without a word for more in it: `2 hours` for `2 more hours`."""
    said = _INSIDE.sub(lambda found: f"{found['n'] or 1} ", letters)
    return re.sub(r"(?i)^(?:noch|weitere\w*|encore|another|additional) ", "", said)


def is_negated(text: str, letters: str) -> bool:
    """Return whether an amount is denied, as in `not with more memory`."""
    return _NOT.search(text.partition(letters)[0]) is not None


def is_related(letters: str) -> bool:
    """Return whether an amount has words that say that it is added to another or taken from it."""
    return any(words.search(letters) for _, words in _SIGNS)


def has_number(letters: str) -> bool:
    """Return whether letters have a number, in digits or in words."""
    return re.search(r"\d", with_digits(letters)) is not None or (
        _LENGTH.search(bare(letters)) is not None
    )


def is_of_clock(letters: str) -> bool:
    """Return whether a length of time is how much later or earlier something begins."""
    return _LENGTH.search(letters) is not None and _OF_CLOCK.search(letters) is not None
