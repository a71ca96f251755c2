"""Propose the next tokens of a text, for the model to check several in one step.

A proposal never changes an answer: the model chooses each token as it would have without one, with
the same source of chance, and a proposed token counts only if it is the one that was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpudeck.accel.serving.request import Request


class Proposer(Protocol):
    """Propose tokens of one text, which only grows."""

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return at most `most` tokens that may follow."""

    def end(self) -> None:
        """Free what it holds: the text has ended, or waits."""


class Speculator(Protocol):
    """Propose tokens of texts."""

    def begin(self, request: Request) -> Proposer:
        """Return what proposes the tokens of one answer."""


class PromptLookup:
    """Propose what followed the last few tokens where they occurred before.

    It helps where a text repeats its prompt, as edits of code do. Source: Saxena, Prompt Lookup
    Decoding, 2023.
    """

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        """Set how many of the last tokens must have occurred together."""
        self._sizes = range(longest, shortest - 1, -1)

    def begin(self, request: Request) -> Proposer:
        """Return what looks up the tokens of one answer."""
        return _Index(self._sizes)


class _Index:
    """Remember where each few tokens of a text occurred last, but for its end."""

    def __init__(self, sizes: range) -> None:
        self._sizes = sizes
        self._next: dict[tuple[int, ...], int] = {}
        """The position after the last occurrence."""
        self._known = 0

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return what followed the latest occurrence of the most tokens."""
        for end in range(max(self._known, 1), len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._next[tuple(tokens[end - size : end])] = end
        self._known = len(tokens)
        for size in self._sizes:
            if size < len(tokens) and (at := self._next.get(tuple(tokens[-size:]))) is not None:
                return list(tokens[at : at + most])
        return []

    def end(self) -> None:
        """Do nothing: it is forgotten with the answer."""
