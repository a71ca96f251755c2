"""Word texts, numbers and times in one language."""

from __future__ import annotations

import gettext
import re
from collections.abc import Callable, Sequence
from datetime import datetime, time
from functools import cache
from pathlib import Path
from typing import Literal

from babel.dates import format_date, format_time, get_day_names, get_month_names
from babel.lists import format_list
from babel.messages.pofile import read_po
from babel.numbers import format_decimal, get_decimal_symbol

from gpudeck.language.languages import Language

CATALOGUES = Path(__file__).with_name("catalogues")
_LOCALES = {"en": "en_GB", "de": "de", "fr": "fr", "es": "es"}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?![\w.:]|-\d)")
_SHORT_S = 300.0
"""Spans below this are given to the second."""


class Words:
    """Word texts in one language."""

    def __init__(self, language: Language, context: str = "") -> None:
        """Choose the language.

        Args:
            context: Where texts stand that some languages word otherwise there.
        """
        self.language: Language = language
        self._context = context
        self._locale = _LOCALES[language]
        self._catalogue = _catalogue(language)

    def translated(self, message: str) -> str:
        """Return a text with the braces of its values."""
        return self._catalogue.pgettext(self._context, message) if message else ""

    def choose(self, one: str, many: str, number: int) -> str:
        """Return which of two texts fits a number, with the braces of its values."""
        return self._catalogue.ngettext(one, many, number)

    def text(self, message: str, **values: object) -> str:
        """Return a text with its values filled in. Braces in the values stay as they are."""
        return self.translated(message).format(**values)

    def captions(self, *messages: str) -> tuple[str, ...]:
        """Return several texts without values."""
        return tuple(map(self.text, messages))

    def count(self, one: str, many: str, number: int, **values: object) -> str:
        """Return the text that fits a number, which is `n` in both."""
        return self.choose(one, many, number).format(n=self.number(number), **values)

    def title(self, message: str) -> str:
        """Return the title of a measure for the middle of a sentence."""
        found = self.text(message)
        lower = self.language != "de" and found[1:2].islower()
        return found[:1].lower() + found[1:] if lower else found

    def number(self, value: float) -> str:
        """Return a number as it is written in the language."""
        return self.numbers(f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}")

    def whole(self, number: int) -> str:
        """Return a whole number with its digits in groups."""
        return str(format_decimal(number, locale=self._locale))

    def numbers(self, text: str) -> str:
        """Return a text with its decimal points as they are written in the language."""
        comma = get_decimal_symbol(self._locale)
        return _NUMBER.sub(lambda found: found[0].replace(".", comma), text)

    def listed(self, things: Sequence[str], last: Literal["and", "or"] = "and") -> str:
        """Return `a, b and c`, or `a, b or c`."""
        if not things:
            return ""
        return str(
            format_list(list(things), "or" if last == "or" else "standard", locale=self._locale)
        )

    def moment(self, at: float, now: float) -> str:
        """Return a moment in local time, with its date if that is not the date of `now`."""
        day, today = datetime.fromtimestamp(at), datetime.fromtimestamp(now)
        digits = self.clock(at)
        if day.date() == today.date():
            return self.text("at {clock}", clock=digits)
        return self.text("on {date} at {clock}", date=self.date(at), clock=digits)

    def clock(self, at: float, seconds: bool = False) -> str:
        """Return a time of day."""
        form = "HH:mm:ss" if seconds else "HH:mm"
        return str(format_time(datetime.fromtimestamp(at).time(), form, locale=self._locale))

    def date(self, at: float) -> str:
        """Return a day."""
        return str(format_date(datetime.fromtimestamp(at).date(), "long", locale=self._locale))

    def short_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the short names of the days from Monday on, and of the months."""
        days = get_day_names("abbreviated", locale=self._locale)
        months = get_month_names("abbreviated", locale=self._locale)
        return (
            tuple(days[at].rstrip(".") for at in range(7)),
            tuple(months[at].rstrip(".") for at in range(1, 13)),
        )

    def span(self, since: float, until: float, now: float) -> str:
        """Return a span with its dates and the time zone, so that nobody has to guess it.

        Whole days have their dates only.
        """
        if since <= 0:
            return self.text("ever")
        if _is_midnight(since) and _is_midnight(until):
            first, last = self.date(since), self.date(until - 1)
            if first == last:
                return first
            return self.text("{first_day} to {last_day}", first_day=first, last_day=last)
        short = until - since < _SHORT_S
        first, last = self.clock(since, short), self.clock(until, short)
        zone, later = _zone(since), _zone(until)
        zone = zone if zone == later else f"{zone}/{later}"
        if self.date(since) == self.date(until):
            return self.text(
                "{date}, {first} to {last} {zone}",
                date=self.date(since),
                first=first,
                last=last,
                zone=zone,
            )
        return self.text(
            "{date}, {first} to {end}, {last} {zone}",
            date=self.date(since),
            first=first,
            end=self.date(until),
            last=last,
            zone=zone,
        )

    def point(self, at: float) -> str:
        """Return a moment with its date and time zone."""
        return self.text(
            "{date} at {clock} {zone}", date=self.date(at), clock=self.clock(at), zone=_zone(at)
        )


def _is_midnight(at: float) -> bool:
    return datetime.fromtimestamp(at).time() == time.min


def _zone(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().tzname() or ""


class _Catalogue(gettext.NullTranslations):
    """Hold the texts of a .po file; compiling it as gettext does would take twice as long."""

    def __init__(self, language: Language) -> None:
        super().__init__()
        with (CATALOGUES / f"{language}.po").open("rb") as file:
            read = read_po(file, locale=language)
        self._texts: dict[tuple[str, str], str] = {}
        self._forms: dict[str, tuple[str, ...]] = {}
        self._form: Callable[[int], int] = gettext.c2py(read.plural_expr)
        """Return which of the forms fits a number."""
        for message in read:
            if isinstance(message.string, str):
                self._texts[message.context or "", str(message.id)] = message.string
            else:
                self._forms[message.id[0]] = tuple(message.string or ())

    def gettext(self, message: str) -> str:
        return self._texts.get(("", message)) or message

    def pgettext(self, context: str, message: str) -> str:
        return self._texts.get((context, message)) or self.gettext(message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        forms = self._forms.get(msgid1)
        return forms[self._form(n)] if forms else super().ngettext(msgid1, msgid2, n)


@cache
def _catalogue(language: Language) -> gettext.NullTranslations:
    return gettext.NullTranslations() if language == "en" else _Catalogue(language)


@cache
def words(language: Language, context: str = "") -> Words:
    """Return the words of a language; its catalogue is read once."""
    return Words(language, context)
