"""Divide a long sequence among processes: each computes some of its tokens, and attention meets the
others' (`gpudeck.accel.distributed`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpudeck.accel.attention.api import ProblemOptions
from gpudeck.accel.distributed.api import distributed_attention
from gpudeck.accel.distributed.sharding import (
    Spans,
    balanced_spans,
    positions,
    shard,
    spans_of,
)

_BLOCKS, _UNIT = 8, 128
"""The pieces of each process among documents, and the tokens that are never separated."""


@dataclass(frozen=True)
class Share:
    """Say which tokens of sequences that lie end to end this process computes."""

    lengths: tuple[int, ...]
    """Of the documents, which do not see each other."""
    spans: tuple[Spans, ...]
    """The positions that each process computes."""
    rank: int

    @classmethod
    def of(cls, lengths: Sequence[int], ranks: int, rank: int) -> Share:
        """Divide documents so that all processes have about equal work."""
        tokens = sum(lengths)
        if len(lengths) == 1:
            spans = spans_of("zigzag", tokens, ranks)
        else:
            unit = max(1, min(_UNIT, tokens // (_BLOCKS * ranks)))
            spans = balanced_spans(lengths, ranks, blocks=_BLOCKS, unit=unit)
        return cls(tuple(lengths), spans, rank)

    def take(self, x: Tensor) -> Tensor:
        """Return this process's part [1, tokens] of x [sequences, length]."""
        return shard(x.reshape(1, -1), self.spans[self.rank])

    def places(self, length: int, device: torch.device) -> Tensor:
        """Return the place of each token in its sequence of `length` tokens, int64 [tokens]."""
        return positions(self.spans[self.rank], device) % length

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def attention(self, q: Tensor, k: Tensor, v: Tensor, options: ProblemOptions) -> Tensor:
        """Return what the tokens of this process see, of all processes' tokens.

        Shapes: q [1, tokens, heads, size], k and v with their own number of heads; the result is
        like q.
        """
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        seen = distributed_attention(
            q, k, v, causal=True, window=options["window"], scale=options["scale"],
            softcap=options["softcap"], seqlens=self.lengths, layout=self.spans,
        )  # fmt: skip
        assert isinstance(seen, Tensor)
        return seen.transpose(1, 2)
