"""Render texts in a language: the one place where values become words."""

from __future__ import annotations

import contextlib
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gpudeck.language import numbers
from gpudeck.language.languages import Language
from gpudeck.language.text import Bytes, Form, Listed, Message, Moment, Number, Span, Text, Value

if TYPE_CHECKING:  # Babel, which English does not need
    from gpudeck.language.words import Words

_FORMS: dict[Form, str] = {
    "clock": "%H:%M", "seconds": "%H:%M:%S", "day": "%a %d %b, %H:%M",
    "day of a year": "%a %d %b %Y, %H:%M", "date": "%d %b", "date and clock": "%d %b, %H:%M",
}  # fmt: skip


def render(message: Message, language: Language = "en") -> str:
    """Return a message in a language. A string is a quotation, and stays as it is."""
    return message if isinstance(message, str) else _render(message, language)


def render_moment(moment: Moment, language: Language = "en") -> str:
    """Return a moment in the local time zone."""
    form, local = _FORMS[moment.form], time.localtime(moment.at)
    if language != "en" and "%b" in form:
        days, months = _words(language).short_names()
        form = form.replace("%a", days[local.tm_wday]).replace("%b", months[local.tm_mon - 1])
    return time.strftime(form, local)


def json_in_english(encoded: bytes) -> bytes:
    """Return JSON with its texts in English, as programs read it."""
    if b'"type":"text"' not in encoded:
        return encoded
    return msgspec.json.encode(in_english(msgspec.json.decode(encoded)))


def in_english(value: Any) -> Any:
    """Return a value as JSON has it, with its texts in English."""
    if isinstance(value, list | tuple):
        return list(map(in_english, value))
    if not isinstance(value, dict):
        return value
    if value.get("type") == "text":
        with contextlib.suppress(msgspec.ValidationError):  # a job's result may be alike
            return render(msgspec.convert(value, Text))
    return {name: in_english(inner) for name, inner in value.items()}


@lru_cache(maxsize=4096)
def _render(message: Text, language: Language) -> str:
    """Return a text in a language. It is kept, as many jobs wait for the same reason."""
    values = {name: _render_value(value, language) for name, value in message.values}
    template = _translate(message, language)
    return template.format(**values) if values else template


def _translate(message: Text, language: Language) -> str:
    if message.plural:
        n = dict(message.values)["n"]
        assert isinstance(n, int)
        if language == "en":
            return message.key if n == 1 else message.plural
        return _words(language).choose(message.key, message.plural, n)
    return message.key if language == "en" else _words(language).translated(message.key)


def _render_value(value: Value, language: Language) -> str:
    match value:
        case Text():
            return _render(value, language)
        case Number(number, form, unit):
            return f"{_render_number(number, form, language)} {unit}".rstrip()
        case Bytes(count):
            return _localize(numbers.amount(count), language)
        case Span(seconds):
            return _localize(numbers.span(seconds), language)
        case Moment():
            return render_moment(value, language)
        case Listed(items, last, separator):
            rendered = [_render_value(item, language) for item in items]
            if last == "," or len(rendered) < 2:
                return separator.join(rendered)
            if language != "en":
                return _words(language).listed(rendered, last)
            return f"{separator.join(rendered[:-1])} {last} {rendered[-1]}"
        case float():
            return _localize(f"{value:g}", language)
        case _:
            return str(value)


def _render_number(number: float, form: str, language: Language) -> str:
    if language != "en" and form == ",":
        return _words(language).whole(round(number))
    return _localize(f"{number:{form}}", language)


def _localize(text: str, language: Language) -> str:
    return text if language == "en" else _words(language).numbers(text)


def _words(language: Language) -> Words:
    from gpudeck.language.words import words

    return words(language)
