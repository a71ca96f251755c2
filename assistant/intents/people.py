"""Find the user whose jobs or processes a request is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpudeck.assistant.intents.lexicon import Meaning, phrases
from gpudeck.assistant.intents.repair import common_words
from gpudeck.assistant.intents.tokens import Token, unaccented

_USER = frozenset({"user", "benutzer", "nutzer", "utilisateur", "usuario"})
_OF = frozenset({"of", "by", "von", "durch", "de", "d", "par", "por"})
"""What stands before the name of a user."""
_POSSESSIVE = frozenset({"of", "von", "de", "d"})
_MY = frozenset({"my", "mine", "mein", "meine", "meinen", "meiner", "mes", "mon", "mis", "mi"})
_NOBODY = _MY | {"everyone", "everybody", "anyone", "anybody", "someone", "others", "anderen",
                 "jemand", "quelqu", "chacun", "autres", "alguien", "otros"}  # fmt: skip
"""Words that stand for people, and for nobody by name."""
_OWNED = frozenset({"noun", "measure", "topic", "state", "time"})
"""The kinds of words that stand before it: `jobs of`, `used by`."""
_SHORTEST = 3
"""Letters of a name that nobody knows."""
_DOES = frozenset({"did", "does", "has", "is", "hat", "ist", "lasst", "liess", "ha", "tiene",
                   "usa", "uso"})  # fmt: skip
_ACTS = ("use", "usi", "run", "ran", "having", "have", "submi", "consum", "lauf", "benutz",
         "nutz", "verbrauch", "utilis", "lanc", "ejecut", "lanz")  # fmt: skip
"""How the words begin that say what a user does."""
_I = frozenset({"i", "ich", "je", "yo"})
_DO_I = frozenset({"did", "have", "do", "am", "habe", "hab", "hatte", "bin", "ai", "j"})


class Person(NamedTuple):
    """Hold the user whom a request names, if any."""

    name: str = ""
    places: frozenset[int] = frozenset()
    """The tokens of the name."""
    doubtful: frozenset[int] = frozenset()
    """Ordinary words that may be the names of users, too."""


def find_person(
    tokens: Sequence[Token], users: Collection[str], me: str, taken: Collection[int]
) -> Person:
    """Return the user whom a request names.

    Args:
        tokens: Of the request.
        users: The users of this machine.
        me: Who asks, where several users have jobs.
        taken: The tokens of the names of jobs, and of times.
    """
    doubtful: set[int] = set()
    for i, token in enumerate(tokens):
        if i in taken or token.kind not in ("word", "name", "quoted"):
            continue
        numbered = token.text + "".join(one.text for one in tokens[i + 1 : i + 2])  # "user1"
        said = (token.norm, token.text.casefold(), numbered.casefold())
        name = next((one for one in users if one.casefold() in said), "")
        owns, ours = _owns(tokens, i), bool(_kinds(token.norm))
        if name and (owns or not ours or token.text != name):
            return Person(name, _places(tokens, i, name))
        if ours or token.kind != "word" or len(token.norm) < _SHORTEST or token.norm in _NOBODY:
            continue
        proper = i > 0 and token.text[:1].isupper()
        unknown = token.norm not in common_words()
        named = owns and (proper or unknown or _owns_jobs(tokens, i))
        if named or (unknown and _acts(tokens, i)):
            return Person(token.text, _places(tokens, i))
        if owns:
            doubtful.add(i)
    if me and _first_person(tokens):
        return Person(me)
    return Person(doubtful=frozenset(doubtful))


def _owns(tokens: Sequence[Token], i: int) -> bool:
    """Return whether a word stands as in `of bob` or `bob's`."""
    before = tokens[i - 1].norm if i else ""
    behind = before in _OF and i > 1 and _kinds(tokens[i - 2].norm) & _OWNED
    return bool(behind) or before in _USER or _possessive(tokens, i)


def _owns_jobs(tokens: Sequence[Token], i: int) -> bool:
    """Return whether a word stands as in `jobs of alice`, where it can only be a user."""
    behind = _meanings(tokens[i + 1].norm) if i + 1 < len(tokens) else ()
    adjective = i + 1 < len(tokens) and (not behind or any(m.value == "user" for m in behind))
    if i < 2 or tokens[i - 1].norm not in _POSSESSIVE or adjective:
        return False
    return any(m.value in ("job", "process") for m in _meanings(tokens[i - 2].norm))


def _kinds(word: str) -> set[str]:
    return {meaning.kind for meaning in _meanings(word)}


def _meanings(word: str) -> tuple[Meaning, ...]:
    """Return what a word of the lexicon may stand for."""
    return phrases().get((word,)) or phrases().get((unaccented(word),), ())


def _possessive(tokens: Sequence[Token], i: int) -> bool:
    return i + 1 < len(tokens) and tokens[i + 1].text == "s"


def _acts(tokens: Sequence[Token], i: int) -> bool:
    """Return whether a word stands as in `what is bob running`."""
    behind = tokens[i + 1].norm if i + 1 < len(tokens) else ""
    return i > 1 and tokens[i - 1].norm in _DOES and behind.startswith(_ACTS)


def _places(tokens: Sequence[Token], i: int, name: str = "") -> frozenset[int]:
    """Return the tokens of a name, of which one with hyphens has several, with its ending."""
    last = i
    if name[-1:].isdigit() and tokens[i].text.casefold() != name.casefold():
        last += 1
    while last + 1 < len(tokens) and tokens[last + 1].text == tokens[i].text:
        last += 1
    return frozenset(range(i, last + 1 + _possessive(tokens, last)))


def _first_person(tokens: Sequence[Token]) -> bool:
    norms = [token.norm for token in tokens]
    asks = any({one, other} & _I and {one, other} & _DO_I
               for one, other in pairwise(norms))  # fmt: skip
    return asks or bool(_MY & set(norms))
