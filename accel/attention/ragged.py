"""Describe sequences of different lengths that lie end to end in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import index

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """Hold the position of each sequence in q [Tq,H,D] and in k and v [Tk,Hkv,D].

    Sequence i has the queries starts_q[i] to starts_q[i+1] - 1, and its keys likewise. The starts
    are int32 [N+1] on the tensors' device, begin with 0 and never decrease; sequences of length 0
    are allowed. The host knows the lengths, so no kernel waits for the device.
    """

    starts_q: Tensor
    starts_k: Tensor
    longest_q: int
    longest_k: int
    total_q: int | None = None
    """The total number of queries; None if the host does not know it.

    The last start must then be the length of the tensors: rows beyond it are not computed.
    """
    total_k: int | None = None

    @classmethod
    def of(
        cls,
        lengths_q: Sequence[int],
        lengths_k: Sequence[int] | None = None,
        *,
        device: torch.device | str,
    ) -> Ragged:
        """Describe sequences by their lengths; keys have the lengths of the queries unless given.

        Raises:
            ValueError: if the lengths do not fit together.
            TypeError: if a length is no whole number.
        """
        lengths_k = lengths_q if lengths_k is None else lengths_k
        lengths_q, lengths_k = [index(n) for n in lengths_q], [index(n) for n in lengths_k]
        if len(lengths_q) != len(lengths_k):
            raise ValueError(
                f"as many lengths of queries as of keys are needed; got {len(lengths_q)} and"
                f" {len(lengths_k)}"
            )
        if any(n < 0 for n in (*lengths_q, *lengths_k)):
            raise ValueError("a length cannot be below 0")
        starts_q, starts_k = (
            torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
            for lengths in (lengths_q, lengths_k)
        )
        return cls(
            starts_q,
            starts_k,
            max(lengths_q, default=0),
            max(lengths_k, default=0),
            sum(lengths_q),
            sum(lengths_k),
        )

    @classmethod
    def of_ids(cls, ids: Tensor) -> Ragged:
        """Describe documents by the number of the document of each token: int [S] or [B,S].

        Tokens of one document lie side by side in one row; rows follow each other. The numbers come
        to the host, so the device is waited for.

        Raises:
            ValueError: if a document is cut into pieces.
        """
        rows = ids[None] if ids.dim() == 1 else ids
        if rows.dim() != 2 or rows.is_floating_point():
            raise ValueError(
                f"ids must be integers [S] or [B,S]; got {ids.dtype} {list(ids.shape)}"
            )
        begins = torch.ones_like(rows, dtype=torch.bool)
        begins[:, 1:] = rows[:, 1:] != rows[:, :-1]
        pieces = [row[first].tolist() for row, first in zip(rows, begins, strict=True)]
        if any(len(set(row)) != len(row) for row in pieces):
            raise ValueError(
                "each document must lie in one piece: an id comes back after another one; give a"
                " block mask instead"
            )
        edges = [*begins.flatten().nonzero().flatten().tolist(), rows.numel()]
        return cls.of([b - a for a, b in pairwise(edges)], device=ids.device)

    def repeat(self, times: int) -> Ragged:
        """Return these sequences `times` times, one after the other."""
        return Ragged(
            _repeat(self.starts_q, times),
            _repeat(self.starts_k, times),
            self.longest_q,
            self.longest_k,
            None if self.total_q is None else self.total_q * times,
            None if self.total_k is None else self.total_k * times,
        )

    @property
    def sequences(self) -> int:
        """Return the number of sequences."""
        return len(self.starts_q) - 1


def _repeat(starts: Tensor, times: int) -> Tensor:
    lengths = starts.diff().repeat(times)
    return torch.cat([starts.new_zeros(1), lengths.cumsum(0, dtype=torch.int32)])
