"""The tokens of one step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

FEW_QUERIES = 8
"""The most tokens of a sequence in a step that are computed as those of an answer, not a prompt."""


@dataclass(frozen=True)
class Batch:
    """Hold the tokens of one step, those of each sequence one after the other."""

    tokens: Tensor
    """[T]"""
    positions: Tensor
    """[T]: of each token in its sequence."""
    slots: Tensor
    """[T]: where its keys and values are stored."""
    rows: Tensor
    """[T] int32: its sequence."""
    tables: Tensor
    """[B, blocks] int32: the blocks of each sequence, in their order."""
    wanted: Tensor
    """[n]: the tokens after which logits are wanted."""
    parts: tuple[tuple[int, int], ...]
    """Of each sequence, how many tokens are in the batch, and its length with them."""

    @property
    def longest(self) -> int:
        """Return the length of the longest sequence."""
        return max(length for _, length in self.parts)
