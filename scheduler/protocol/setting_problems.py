"""Explain what is wrong with the value of a setting, in place of what msgspec says."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args, get_type_hints

import msgspec

from gpudeck.language.text import Message, Text, joined, mark_phrase, phrase

_KINDS = {
    "int": mark_phrase("{name} must be a whole number"),
    "float": mark_phrase("{name} must be a number"),
    "bool": mark_phrase("{name} must be true or false"),
    "str": mark_phrase("{name} must be a text"),
}
_LIMITS = {
    "<=": mark_phrase("{name} must be at most {value}"),
    ">=": mark_phrase("{name} must be at least {value}"),
    "<": mark_phrase("{name} must be below {value}"),
    ">": mark_phrase("{name} must be above {value}"),
}


class Example(NamedTuple):
    """Annotate a setting whose form is limited with what it looks like."""

    text: str


def problem_of(error: msgspec.ValidationError, settings: type[msgspec.Struct]) -> Message:
    """Return what is wrong with a value: its setting, and what may be there."""
    what, _, where = str(error).partition(" - at ")
    found = re.search(r"\$\.(\w+)", where)
    if found is None:
        return str(error)
    name = found[1]
    if (outside := range_problem(what, name)) is not None:
        return outside
    if length := re.fullmatch(r"Expected `\w+` of length <= (\d+)", what):
        return phrase("{name} may have at most {n} characters", name=name, n=int(length[1]))
    if what.startswith("Invalid enum value"):
        return _name_choices(settings, name)
    kind = re.match(r"Expected `(\w+)", what)
    hint = get_type_hints(settings, include_extras=True).get(name)
    for example in getattr(hint, "__metadata__", ()):
        if isinstance(example, Example):
            return phrase("{name} must look like {value}", name=name, value=Text(example.text))
    if kind and kind[1] in _KINDS and where == f"`$.{name}`":
        return Text(_KINDS[kind[1]], (("name", name),))
    return phrase("{name} has an unknown form: {problem}", name=name, problem=what)


def range_problem(what: str, name: str) -> Text | None:
    """Return which numbers may be there, where msgspec refuses one; None for another problem."""
    limit = re.fullmatch(r"Expected `\w+` ([<>]=?) ([\d.]+)", what)
    return limit and Text(_LIMITS[limit[1]], (("name", name), ("value", float(limit[2]))))


def _name_choices(settings: type[msgspec.Struct], name: str) -> Text:
    """Return what a setting may be: words, and perhaps a number besides."""
    hint = get_type_hints(settings)[name]
    words: list[str] = []
    for part in (hint, *get_args(hint)):
        words += [str(value) for value in get_args(part) if isinstance(value, str)]
    names = joined(dict.fromkeys(words))
    if type(hint) is type(Literal["a"]):
        return phrase("{name} must be one of {names}", name=name, names=names)
    return phrase("{name} must be a number or {value}", name=name, value=names)
