"""Store weight matrices in floating point or int8, and tensors in arenas of memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 32
"""Elements; at least 32 bytes."""


class Arena:
    """Allocate memory for many tensors of one dtype. `tensor.storage_offset()` is a tensor's place.

    A compiled step then needs only a number to address a tensor.
    """

    def __init__(self, sizes: Iterable[int], device: torch.device, dtype: torch.dtype) -> None:
        """Allocate the memory for tensors of these sizes, in elements."""
        self.flat = torch.empty(sum(map(_padded, sizes)), device=device, dtype=dtype)
        self._used = 0

    def put(self, tensor: Tensor) -> Tensor:
        """Return a copy of `tensor` in the arena, converted to its dtype."""
        place = self.flat[self._used : self._used + tensor.numel()].view(tensor.shape)
        self._used += _padded(tensor.numel())
        return place.copy_(tensor)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Matrix(NamedTuple):
    """Hold a matrix [rows, columns].

    Rows are outputs, except in the channel mix's `value`, where they are inputs, so that rows of
    zero activation can be skipped.
    """

    values: Tensor
    """Floating point or int8."""
    scales: Tensor | None = None
    """[rows] fp32 with int8: a row is its values times its scale."""

    @classmethod
    def int8(cls, weight: Tensor) -> Matrix:
        """Round each row to the nearest of 255 steps from -max to max.

        The error is at most half a step, max / 254.
        """
        scales = weight.float().abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        return cls((weight.float() / scales.unsqueeze(1)).round().to(torch.int8), scales)

    @property
    def nbytes(self) -> int:
        """Return the bytes of values and scales."""
        return self.values.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the matrix in floating point."""
        if self.scales is None:
            return self.values
        return (self.values.float() * self.scales.unsqueeze(1)).to(dtype)
