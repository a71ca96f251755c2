"""Tile sizes of the portable kernels by target, head size and lengths.

Targets fall into families by the tensor-core instruction that Triton emits: mma.sync on sm_80, 86, 89 and 120, wgmma on sm_90, tcgen05 on
sm_100. Within a family one set of tiles serves all: it fits the 99 KiB of shared memory a block has on sm_86, 89 and 120. The tiles for
sm_90 are the fastest of those measured on an H100; the others, for which no GPU was at hand, are the largest that need no register spills.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

PACKED_ROWS = 64
"""Query heads that share a key head are computed in one tile where all their queries fit in as many rows: K and V are then read once."""
_SPLIT_PACKED, _SPLIT = 256, 1024


BLOCKS = (16, 32, 64, 128)
"""Rows and columns that a tile may have."""


class Config(NamedTuple):
    """A tile of `block_m` queries by `block_n` keys, the warps that compute it and the depth of the load pipeline."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    def resized(self, block_m: int | None, block_n: int | None) -> Config:
        """With other blocks where they are given. Raises ValueError for those that are no power of two from 16 to 128."""
        for name, size in (("block_m", block_m), ("block_n", block_n)):
            if size is not None and size not in BLOCKS:
                raise ValueError(
                    f"{name} is one of {', '.join(map(str, BLOCKS))}, or None; got {size}"
                )
        return self._replace(block_m=block_m or self.block_m, block_n=block_n or self.block_n)

    @property
    def options(self) -> dict[str, int]:
        """For the compiler."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


def padded(head_dim: int) -> int:
    """The width of a tile for a head size: the next power of two, at least the 16 that tensor cores need."""
    return max(16, 1 << (head_dim - 1).bit_length())


# By family and padded head size, for 16-bit elements; smaller heads use the tiles of 64.
_FORWARD = {
    "mma": {64: Config(64, 64, 4, 3), 128: Config(128, 64, 8, 2), 256: Config(64, 64, 8, 1)},
    "wgmma": {64: Config(64, 64, 4, 3), 128: Config(64, 64, 4, 3), 256: Config(128, 64, 8, 2)},
    "tcgen05": {64: Config(64, 64, 4, 3), 128: Config(128, 64, 8, 2), 256: Config(64, 64, 8, 1)},
}
# With a bias or mask, whose addresses take registers too; for all families.
_FORWARD_BIASED = {64: Config(64, 64, 4, 3), 128: Config(64, 32, 4, 3), 256: Config(64, 32, 8, 1)}
_DK_DV = {
    "mma": {64: Config(32, 64, 4, 2), 128: Config(64, 64, 8, 2), 256: Config(32, 32, 8, 1)},
    # These spill registers. Of the tiles that do not, the fastest took half as long again at 64, a tenth longer at 128 (as long if causal).
    "wgmma": {64: Config(128, 64, 4, 2), 128: Config(64, 64, 4, 2), 256: Config(64, 64, 8, 2)},
    "tcgen05": {64: Config(64, 64, 8, 2), 128: Config(32, 64, 8, 2), 256: Config(16, 64, 8, 1)},
}
_DQ = {
    "mma": {64: Config(64, 64, 4, 2), 128: Config(64, 64, 8, 2), 256: Config(64, 32, 8, 1)},
    "wgmma": {64: Config(64, 64, 4, 2), 128: Config(64, 64, 4, 2), 256: Config(128, 32, 8, 2)},
    "tcgen05": {64: Config(64, 64, 4, 2), 128: Config(64, 64, 8, 2), 256: Config(64, 32, 8, 1)},
}


def family(capability: int) -> str:
    """The tensor-core instruction that Triton emits for compute capability `capability` (90 for 9.0)."""
    return {9: "wgmma", 10: "tcgen05"}.get(capability // 10, "mma")


def forward_config(
    capability: int, dtype: torch.dtype, block_d: int, rows: int, biased: bool
) -> Config:
    """For the forward of `rows` rows (queries, times the heads packed into one tile), with a bias or without."""
    if dtype == torch.float32:
        return _exact(block_d)
    if rows > PACKED_ROWS:
        return (_FORWARD_BIASED if biased else _FORWARD[family(capability)])[max(64, block_d)]
    return Config(
        max(16, 1 << (rows - 1).bit_length()),
        64 if block_d <= 128 else 32,
        4,
        2 if family(capability) == "mma" else 3,
    )


def split_keys(rows: int) -> int:
    """The fewest keys worth a program of their own, for a tile of `rows` rows: what splitting gains must pay for combining."""
    return _SPLIT_PACKED if rows <= PACKED_ROWS else _SPLIT


def dk_dv_config(capability: int, dtype: torch.dtype, block_d: int) -> Config:
    """For the gradients of keys and values; `block_m` is the step through the queries."""
    return (
        _exact(block_d) if dtype == torch.float32 else _DK_DV[family(capability)][max(64, block_d)]
    )


def dq_config(capability: int, dtype: torch.dtype, block_d: int) -> Config:
    """For the gradient of the queries; `block_n` is the step through the keys."""
    return _exact(block_d) if dtype == torch.float32 else _DQ[family(capability)][max(64, block_d)]


def dbias_config(dtype: torch.dtype, block_d: int) -> Config:
    """For the gradient of an additive bias."""
    return (
        _exact(block_d) if dtype == torch.float32 else Config(64, 32 if block_d > 128 else 64, 4, 1)
    )


def _exact(block_d: int) -> Config:
    """For float32, whose dots run on the ordinary units in full precision."""
    return Config(32, 32, 4, 1) if block_d <= 128 else Config(16, 16, 4, 1)
