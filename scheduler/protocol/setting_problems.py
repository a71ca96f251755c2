"""Say in words what is wrong with the value of a setting, in place of what msgspec says."""

from __future__ import annotations

import re
from typing import Literal, get_args, get_type_hints

import msgspec

_EXAMPLES = {
    "webhook": "https://example.org/alerts",
    "quiet_hours": "22:00-07:00",
    "idle_hours_off": "22:00-07:00",
    "report_daily": "08:00",
    "clusters": "ray:lab with the address http://head:8265, or slurm:hpc without one",
    "limits": "a user's name with gpus, gpu_hours or both, such as 4 and 100",
    "hosts": "lab with the address user@lab1",
}
"""What settings look like whose form is limited."""
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
_LIMITS = {"<=": "at most", ">=": "at least", "<": "below", ">": "above"}


def problem_of(error: msgspec.ValidationError, settings: type[msgspec.Struct]) -> str:
    """Return what is wrong with a value: its setting, and what may be there."""
    what, _, where = str(error).partition(" - at ")
    found = re.search(r"\$\.(\w+)", where)
    if found is None:
        return str(error)
    name = found[1]
    if limit := re.fullmatch(r"Expected `\w+` ([<>]=?) ([\d.]+)", what):
        return f"{name} must be {_LIMITS[limit[1]]} {float(limit[2]):g}"
    if length := re.fullmatch(r"Expected `\w+` of length <= (\d+)", what):
        return f"{name} may have at most {length[1]} characters"
    if what.startswith("Invalid enum value"):
        return f"{name} must be {_choices(settings, name)}"
    kind = re.match(r"Expected `(\w+)", what)
    if name in _EXAMPLES:
        return f"{name} must look like {_EXAMPLES[name]}"
    if kind and kind[1] in _KINDS and where == f"`$.{name}`":
        return f"{name} must be {_KINDS[kind[1]]}"
    return f"{name} has an unknown form: {what}"


def _choices(settings: type[msgspec.Struct], name: str) -> str:
    """Return what a setting may be: words, and a number besides."""
    hint = get_type_hints(settings)[name]
    words: list[str] = []
    for part in (hint, *get_args(hint)):
        words += [str(value) for value in get_args(part) if isinstance(value, str)]
    listed = ", ".join(dict.fromkeys(words))
    return f"one of {listed}" if type(hint) is type(Literal["a"]) else f"a number or {listed}"
