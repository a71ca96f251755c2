"""Hold which blocks of queries and keys see each other, as kernels read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

FULL, PARTIAL = 1, 2


class BlockShape(NamedTuple):
    """Describe the lists of a block mask without their data."""

    rows: int
    """Queries of a block, a power of two of at least 16."""
    cols: int
    """Keys of a block, the same."""
    shape: tuple[int, int, int, int]
    """(batches, heads, blocks of queries, blocks of keys); 1 batch or head stands for all."""


@dataclass(frozen=True, eq=False)
class BlockLists:
    """Hold which blocks see each other, listed by queries and by keys.

    Each side has four tensors. counts int32 [B,H,n,2] are the wholly and the partly visible blocks
    of each of its n blocks. lists int32 [B,H,n,m] names them, the former first; numbers, of the
    same shape, is the place of a partial block in bits, uint8 [partial, rows, cols].
    """

    geometry: BlockShape
    lengths: tuple[int, int]
    """The number of queries and of keys."""
    kinds: Tensor
    """int8 [B,H,blocks of queries, blocks of keys]: 0 is hidden."""
    bits: Tensor
    of_queries: tuple[Tensor, Tensor, Tensor, Tensor]
    of_keys: tuple[Tensor, Tensor, Tensor, Tensor]

    @classmethod
    def of(cls, kinds: Tensor, bits: Tensor, lengths: tuple[int, int]) -> BlockLists:
        """List the blocks of `kinds`, whose partial ones have `bits` in their order.

        Bits of pairs beyond the lengths are 1. A partial block whose pairs are all visible, or all
        hidden, becomes a full or a hidden one.
        """
        sums = bits.sum((1, 2), dtype=torch.int32)
        pairs = bits.shape[1] * bits.shape[2]
        kinds, keep = kinds.clone(), (sums > 0) & (sums < pairs)
        found = torch.where(sums == pairs, FULL, torch.where(sums == 0, 0, PARTIAL))
        kinds[kinds == PARTIAL] = found.to(torch.int8)
        bits = bits[keep].contiguous() if not bool(keep.all()) else bits
        numbers = (kinds == PARTIAL).flatten().cumsum(0).sub_(1).clamp_(min=0).view_as(kinds)
        shape = BlockShape(bits.shape[1], bits.shape[2], tuple(kinds.shape))  # type: ignore[arg-type]
        whole = bits if len(bits) else bits.new_zeros((1, *bits.shape[1:]))
        sides = [
            (*_list_blocks(kinds, numbers), whole),
            (*_list_blocks(kinds.transpose(2, 3), numbers.transpose(2, 3)), whole),
        ]
        return cls(shape, lengths, kinds, bits, *sides)

    def dense(self) -> Tensor:
        """Return the mask as bool [B,H,Sq,Sk], which only tests and small problems can hold."""
        rows, cols, (batches, heads, of_queries, of_keys) = self.geometry
        tiles = self.bits.new_zeros((*self.kinds.shape, rows, cols))
        tiles[self.kinds == FULL] = 1
        tiles[self.kinds == PARTIAL] = self.bits
        whole = tiles.permute(0, 1, 2, 4, 3, 5).reshape(
            batches, heads, of_queries * rows, of_keys * cols
        )
        return whole[:, :, : self.lengths[0], : self.lengths[1]].bool()


def _list_blocks(kinds: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    order = torch.tensor([2, 0, 1], dtype=torch.int8, device=kinds.device)[kinds.int()]
    lists = torch.argsort(order, dim=3, stable=True)
    counts = torch.stack([(kinds == kind).sum(3) for kind in (FULL, PARTIAL)], -1)
    made = (counts, lists, numbers.gather(3, lists))
    return tuple(t.to(torch.int32).contiguous() for t in made)  # type: ignore[return-value]
