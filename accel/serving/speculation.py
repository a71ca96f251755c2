"""Propose the next tokens of a text, for the model to check several in one step.

A proposal never changes an answer: the model chooses each token as it would have without one, with
the same source of chance, and a proposed token counts only if it is the one that was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Speculator(Protocol):
    """Propose tokens."""

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return at most `most` tokens that may follow a text."""
        ...


class PromptLookup:
    """Propose what followed the last few tokens where they occurred before.

    It helps where a text repeats its prompt, as edits of code do. Source: Saxena, Prompt Lookup
    Decoding, 2023.
    """

    def __init__(self, longest: int = 4, shortest: int = 2, reach: int = 8192) -> None:
        """Set how many of the last tokens must have occurred together, and how far back."""
        self._longest, self._shortest, self._reach = longest, shortest, reach

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return what followed the latest occurrence of the longest match."""
        text = list(tokens[-self._reach :])
        for size in range(min(self._longest, len(text) - 1), self._shortest - 1, -1):
            tail, last = text[-size:], text[-1]
            for at in range(len(text) - 2, size - 2, -1):
                if text[at] == last and text[at - size + 1 : at + 1] == tail:
                    return text[at + 1 : at + 1 + most]
        return []
