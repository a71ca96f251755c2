"""Weight matrices in floating point or int8, and the arenas of memory in which they lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 32
"""Elements; at least 32 bytes."""


class Arena:
    """Memory for tensors of one dtype. `tensor.storage_offset()` of what `put` returns is its place."""

    def __init__(self, sizes: Iterable[int], device: torch.device, dtype: torch.dtype) -> None:
        """`sizes`: elements of every tensor that will be put."""
        self.flat = torch.empty(sum(map(_padded, sizes)), device=device, dtype=dtype)
        self._used = 0

    def put(self, tensor: Tensor) -> Tensor:
        """A copy of `tensor` here, converted to the arena's dtype."""
        place = self.flat[self._used : self._used + tensor.numel()].view(tensor.shape)
        self._used += _padded(tensor.numel())
        return place.copy_(tensor)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Matrix(NamedTuple):
    """[rows, columns]. Rows are outputs, but of the channel mix's `value` they are inputs: its rows of zero activation are skipped."""

    values: Tensor
    """Floating point, or int8."""
    scales: Tensor | None = None
    """[rows] fp32 with int8: a row is its values times its scale."""

    @classmethod
    def int8(cls, weight: Tensor) -> Matrix:
        """Rounded to the nearest of 255 steps from -max to max of each row: off by half a step, max / 254, at most."""
        scales = weight.float().abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        return cls((weight.float() / scales.unsqueeze(1)).round().to(torch.int8), scales)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """As floating point."""
        if self.scales is None:
            return self.values
        return (self.values.float() * self.scales.unsqueeze(1)).to(dtype)
