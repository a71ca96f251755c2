"""Many tensors in one piece of memory, each aligned: an address is then a number within it, which is what a compiled step reads."""

from __future__ import annotations

from collections.abc import Iterable

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
