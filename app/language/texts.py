"""Translate the window's texts: `tr`, `tr_count` and `tr_noop`, and values of other packages.

The window chooses its language once, before it makes a widget. The command line never does, so
that the functions that it shares with the window give it English texts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from gpudeck.language.languages import LANGUAGES, Language
from gpudeck.language.rendering import render, render_moment
from gpudeck.language.text import Form, Message, Moment, moment

if TYPE_CHECKING:  # Babel is loaded for other languages than English only
    from gpudeck.language.words import Words

S = TypeVar("S", bound=str)
_TYPED = re.compile(r"^(\s*[+-]?\d+),(\d+\s*[a-zA-Z]*\s*)$")
"""A number with a decimal comma and perhaps a unit."""
_VARIABLES = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
"""Where a desktop names its language, in the order in which gettext reads them."""


class _Chosen:
    """Hold the language of the process, with its texts unless it is English."""

    language: Language = "en"
    texts: Words | None = None


def use(setting: Literal["desktop", Language]) -> None:
    """Choose the language of all texts that are made from now on.

    Args:
        setting: "desktop" means the desktop's language; English where the catalogues lack it.
    """
    _Chosen.language = language = of_desktop() if setting == "desktop" else setting
    if language == "en":
        _Chosen.texts = None
        return
    from gpudeck.language.words import words

    _Chosen.texts = words(language, "window")


def language() -> Language:
    """Return the language that is used."""
    return _Chosen.language


def of_desktop(environment: Mapping[str, str] = os.environ) -> Language:
    """Return the first language that the environment names and a catalogue has; else English."""
    value = next((found for name in _VARIABLES if (found := environment.get(name))), "")
    named = [part[:2].lower() for part in value.split(":")]
    return next((known for part in named for known in LANGUAGES if part == known), "en")


def translating() -> bool:
    """Report if texts are translated, which they are in every language but English."""
    return _Chosen.texts is not None


def tr(message: str, **values: object) -> str:
    """Return a text in the window's language, with its values filled in.

    Braces in the values stay as they are; without values, braces in the text do as well.
    """
    if _Chosen.texts is not None:
        message = _Chosen.texts.translated(message)
    return message.format(**values) if values else message


def tr_count(one: str, many: str, number: int, **values: object) -> str:
    """Return the text that fits a number, which is `n` in both."""
    if _Chosen.texts is not None:
        return _Chosen.texts.count(one, many, number, **values)
    return (one if number == 1 else many).format(n=number, **values)


def tr_noop(message: S) -> S:
    """Mark a text of a table for the catalogues; whoever shows it calls `tr`."""
    return message


def tr_text(message: Message) -> str:
    """Return a value in the window's language; a string is a quotation, and stays as it is."""
    return render(message, _Chosen.language)


def tr_moment(at: float, now: float | None = None, form: Form | None = None) -> str:
    """Return a moment, with its day where it is more than twelve hours away from `now`."""
    found = moment(at, now) if form is None else Moment(at, form)
    return render_moment(found, _Chosen.language)


def tr_list(things: Sequence[object]) -> str:
    """Return `a, b and c`."""
    texts = list(map(str, things))
    if _Chosen.texts is not None:
        return _Chosen.texts.listed(texts)
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def tr_decimal(number: str) -> str:
    """Return a text with its decimal points as the window's language writes them."""
    return number if _Chosen.texts is None else _Chosen.texts.numbers(number)


def typed_number(text: str) -> str:
    """Return a number that was typed, such as 1,5 or 0,5 GiB, with a decimal point.

    Only for a field of one number: a comma may separate two numbers elsewhere.
    """
    return text if _Chosen.texts is None else _TYPED.sub(r"\1.\2", text)


def tr_whole(number: int) -> str:
    """Return a whole number with its digits in groups, as the window's language writes them."""
    return f"{number:,}" if _Chosen.texts is None else _Chosen.texts.whole(number)
