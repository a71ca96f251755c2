"""The tokens of one step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import torch
from torch import Tensor

FEW_QUERIES = 8
"""The most tokens of a sequence in a step that are computed as those of an answer, not a prompt."""

_TILES = 32


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

    @cached_property
    def few(self) -> int:
        """Return how many of the first tokens are those of answers."""
        return sum(count for count, _ in takewhile(lambda p: p[0] <= FEW_QUERIES, self.parts))

    def tiles(self, queries: int) -> Tensor:
        """Return tiles [n, 4] int32 of at most `queries` tokens of the other sequences.

        A tile is its first token, its number of tokens, the position of the first, and where its
        sequence's blocks begin in the tables. Empty ones make n a multiple of 32, so that few
        numbers of programs occur.
        """
        if queries not in self._tiles:
            made, first = [], 0
            for row, (count, length) in enumerate(self.parts):
                for start in range(0, count if first >= self.few else 0, queries):
                    size = min(queries, count - start)
                    at = length - count + start
                    made.append((first + start, size, at, row * self.tables.shape[1]))
                first += count
            made += [(0, 0, 0, 0)] * (-len(made) % _TILES)
            tiles = torch.tensor(made, dtype=torch.int32).view(-1, 4)
            self._tiles[queries] = tiles.to(self.tables.device, non_blocking=True)
        return self._tiles[queries]

    @cached_property
    def _tiles(self) -> dict[int, Tensor]:
        return {}

    @property
    def longest(self) -> int:
        """Return the length of the longest sequence."""
        return max(length for _, length in self.parts)
