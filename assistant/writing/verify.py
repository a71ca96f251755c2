"""Verify that a text states only facts.

Each sentence is read as claims (see `gpudeck.assistant.writing.checker`): every value is bound to
the device or job nearest to it and to the field that its metric word names; comparisons, reasons,
states, `no`, `all` and counts need facts of their own. A sentence that cannot be read as such
claims is refused, true or not. The value of a slot is known and needs no search; its owner and its
metric word are checked like all others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker.clauses import Clause, Refused
from gpudeck.assistant.writing.checker.known import known, plain
from gpudeck.assistant.writing.checker.sentence import check_sentence

__all__ = ["Refused", "fill", "last_end", "verify"]


_SENTENCE = re.compile(r"(?<=[.!?])(?<!vs\.)(?<!approx\.)\s+|\n+")


_SLOT = re.compile(r"\{([^{}]*)\}")


def fill(text: str, facts: Sequence[Fact]) -> str:
    """Replace each slot by its fact: `{gpu0.temp}` becomes `71 °C`. Raises Refused for an unknown
    slot.
    """
    said = {fact.name: fact.said for fact in facts}

    def value(slot: re.Match[str]) -> str:
        if slot[1] not in said:
            raise Refused(f"it names a fact that does not exist: {{{slot[1][:40]}}}")
        return said[slot[1]]

    return _SLOT.sub(value, text)


def last_end(text: str) -> int:
    """Return the end of the last complete sentence."""
    return max((found.end() for found in _SENTENCE.finditer(text)), default=0)


def verify(
    text: str,
    facts: Sequence[Fact],
    required: Iterable[Fact] = (),
) -> None:
    """Check a text, with or without slots, against the facts.

    Args:
        text: The text.
        facts: All facts, which are also what the slots of the text stand for.
        required: Facts that the text must mention.

    Raises:
        Refused: It makes a claim that is no fact, or one that cannot be read, or lacks a required
            fact.
    """
    shown = fill(text, facts)
    if not shown.strip():
        raise Refused("it is empty")
    if strange := next((c for c in shown if _is_strange(c)), None):
        raise Refused(f"it has a character that no fact has: U+{ord(strange):04X}")
    of = known(tuple(facts))
    named = {fact.name: fact for fact in facts}
    previous: Clause | None = None
    for sentence in filter(None, map(str.strip, _SENTENCE.split(text))):
        previous = check_sentence(plain(sentence), of, named, previous)
    for fact in required:
        if fact.said not in shown:
            raise Refused(f"it does not mention: {fact.text}")


def _is_strange(c: str) -> bool:
    odd = not (c.isprintable() or c == "\n") or (c.isnumeric() and not c.isascii())
    return odd or c == "\ufffd"
