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
