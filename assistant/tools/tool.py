"""What a tool that looks found out: facts, and how the template tells them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from assistant.facts import Fact
from assistant.writing.writer import Sections


class ToolResult(NamedTuple):
    facts: tuple[Fact, ...]
    say: Sections
    """The template's text, part by part, every number of it from the facts."""
    required: tuple[str, ...] = ()
    """Names of facts that a model's text must mention. Without any there is no value to tell, and the template says so."""
    quotes: bool = False
    """It shows foreign text at length, such as a log: no model is asked to tell it."""


def names_with_values(facts: Iterable[Fact], *names: str) -> tuple[str, ...]:
    """Those of these facts that there are and that have a value: what an answer must tell."""
    known = {fact.name for fact in facts if fact.value is not None}
    return tuple(name for name in names if name in known)


def text_result(*parts: str) -> ToolResult:
    """A text without a fact: there is nothing to measure in it."""
    return ToolResult((), lambda _: list(parts))
