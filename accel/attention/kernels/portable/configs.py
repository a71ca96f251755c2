"""Tile sizes of the portable kernels by target, head size and lengths.

What fits is decided by the shared memory of a block: 163 KiB on sm_80, 227 on sm_90 and sm_100, 99 on sm_86, sm_89 and sm_120. The last
three share one set of tiles ("small"), the first three another, except where Hopper was measured to want its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

_SMALL = (86, 89, 120, 121)
PACKED_ROWS = 64
"""Query heads that share a key head are computed in one tile where all their queries fit in as many rows: K and V are then read once."""
SPLIT_KEYS = 512
"""The fewest keys worth a program of their own."""


class Config(NamedTuple):
    """A tile of `block_m` queries by `block_n` keys, the warps that compute it and the depth of the load pipeline."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    @property
    def options(self) -> dict[str, int]:
        """For the compiler."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


def padded(head_dim: int) -> int:
    """The width of a tile for a head size: the next power of two, at least the 16 that tensor cores need."""
    return max(16, 1 << (head_dim - 1).bit_length())


# By padded head size, for 16-bit elements.
_FORWARD = {
    "large": {64: Config(128, 64, 4, 3), 128: Config(128, 64, 8, 3), 256: Config(128, 64, 8, 2)},
    "small": {64: Config(128, 64, 4, 2), 128: Config(128, 32, 8, 2), 256: Config(64, 32, 4, 1)},
}
_DK_DV = {
    "large": {64: Config(64, 128, 8, 2), 128: Config(64, 64, 4, 2), 256: Config(32, 64, 8, 1)},
    "small": {64: Config(64, 64, 4, 2), 128: Config(32, 64, 4, 2), 256: Config(32, 32, 4, 1)},
}
_DQ = {
    "large": {64: Config(128, 64, 8, 2), 128: Config(64, 64, 4, 2), 256: Config(64, 32, 8, 1)},
    "small": {64: Config(64, 64, 4, 2), 128: Config(64, 32, 4, 2), 256: Config(32, 32, 4, 1)},
}


def forward_config(capability: int, dtype: torch.dtype, block_d: int, rows: int) -> Config:
    """For the forward of `rows` rows (queries, times the heads packed into one tile)."""
    if dtype == torch.float32:
        return _exact(block_d)
    config = _of(_FORWARD, capability, block_d)
    if rows <= PACKED_ROWS:
        block_n = 64 if block_d > 128 or capability in _SMALL else 128
        stages = 2 if block_d > 128 or capability in _SMALL else 3
        return Config(max(16, 1 << (rows - 1).bit_length()), block_n, 4, stages)
    return config


def dk_dv_config(capability: int, dtype: torch.dtype, block_d: int) -> Config:
    """For the gradients of keys and values; `block_m` is the step through the queries."""
    return _exact(block_d) if dtype == torch.float32 else _of(_DK_DV, capability, block_d)


def dq_config(capability: int, dtype: torch.dtype, block_d: int) -> Config:
    """For the gradient of the queries; `block_n` is the step through the keys."""
    return _exact(block_d) if dtype == torch.float32 else _of(_DQ, capability, block_d)


def dbias_config(dtype: torch.dtype, block_d: int) -> Config:
    """For the gradient of an additive bias."""
    return _exact(block_d) if dtype == torch.float32 else Config(64, 32 if block_d > 128 else 64, 4, 1)


def _of(table: dict[str, dict[int, Config]], capability: int, block_d: int) -> Config:
    return table["small" if capability in _SMALL else "large"][max(64, block_d)]


def _exact(block_d: int) -> Config:
    """For float32, whose dots run on the ordinary units in full precision."""
    return Config(32, 32, 4, 1) if block_d <= 128 else Config(16, 16, 4, 1)
