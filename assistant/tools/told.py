"""What a tool that looks found out: facts, and how the template tells them."""

from __future__ import annotations

from typing import NamedTuple

from assistant.facts import Fact
from assistant.writer import Say


class Told(NamedTuple):
    facts: tuple[Fact, ...]
    say: Say
    """The template's text, part by part, every number of it from the facts."""
    required: tuple[str, ...] = ()
    """Names of facts that a model's text must mention."""
    quotes: bool = False
    """It shows foreign text at length, such as a log: no model is asked to tell it."""


def stated(*parts: str) -> Told:
    """A text without a fact: there is nothing to measure in it."""
    return Told((), lambda _: list(parts))
