"""The names that a request may mention."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudeck.assistant.intents.tokens import unaccented


class Known(NamedTuple):
    """Hold the names that a request may mention. They are foreign text, and only names."""

    jobs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """The users of this machine, and those who have jobs."""
    me: str = ""
    """Who asks, where several users have jobs."""
    active: tuple[str, ...] = ()
    """The names of jobs that have not ended."""
    gpus: int = 0
    """How many GPUs this machine has; 0: not known."""


def named(letters: str, names: tuple[str, ...]) -> str:
    """Return the one name that the letters of a request stand for, or an empty text.

    It is the letters themselves, whatever their case and accents, or the only name among their
    words.
    """
    said = unaccented(letters.casefold())
    low = {unaccented(name.casefold()): name for name in names if name}
    if said in low:
        return low[said]
    inside = [name for one, name in low.items() if is_word(one, said)]
    longest = [one for one in inside if not any(one != other and one in other for other in inside)]
    return longest[0] if len(longest) == 1 else ""


def is_word(name: str, text: str) -> bool:
    """Return whether a name stands in a text as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def misspelt(letters: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of which a word is nearest to one of the letters', if that is near enough.

    One letter may be added, left out or wrong, or two swapped; from six letters on, this may
    happen twice. Words with digits are as they are: `llama-7b` is no misspelt `llama-8b`.
    """
    typos = {name: min((_typos(word, part) for word in _words(letters) for part in _words(name)),
                       default=_FAR) for name in names}  # fmt: skip
    least = min(typos.values(), default=_FAR)
    return tuple(name for name, of in typos.items() if of == least < _FAR)


_INTRODUCTION = (
    r"\b(?:this is|it's|i am|i'm|hier (?:ist|spricht)|ich bin|je suis|soy)(?: (?:still|immer noch"
    r"|noch|wieder|again|toujours|encore|todavía|otra vez))?"
)
"""Words with which a person says who types."""


def introduced(text: str, users: tuple[str, ...]) -> str:
    """Return the user who says who types, or an empty text: `lea here`, `this is still lea`."""
    for name in users:
        who = re.escape(name)
        if re.search(rf"(?i){_INTRODUCTION} {who}\b|\b{who}[\s,]+(?:here|hier|ici|aquí)\b", text):
            return name
    return ""


_SHORTEST, _LONG = 4, 6
_FAR = 3
"""More typos than a word may have."""


def _words(text: str) -> list[str]:
    return re.findall(r"(?<![^\W_])[^\W\d_]+(?![^\W_])", unaccented(text.casefold()))


def _typos(word: str, part: str) -> int:
    """Return how many typos make one word of another, or _FAR if they are too many for it."""
    short, long = sorted((len(word), len(part)))
    most = 2 if short >= _LONG else 1
    if short < _SHORTEST or long - short > most:
        return _FAR
    found = typos_between(word, part)
    return found if found <= most else _FAR


def typos_between(one: str, other: str) -> int:
    """Return how many letters are added, left out, replaced, or swapped with the next one."""
    before, last = list[int](), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, its in enumerate(other, 1):
            least = min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != its))
            if i > 1 and j > 1 and (letter, one[i - 2]) == (other[j - 2], its):
                least = min(least, before[j - 2] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]
