"""Choose the tile sizes of the portable kernels by target, head size and lengths.

Targets fall into families by the tensor-core instruction that Triton emits: mma.sync on sm_80, 86,
89 and 120, wgmma on sm_90, tcgen05 on sm_100. Within a family one set of tiles serves all: it fits
the 99 KiB of shared memory that a block has on sm_86, 89 and 120. The tiles for sm_90 are the
fastest measured on an H100; the others are not measured, but the largest without register spills.

The tiles of the Hopper kernels are chosen in `gpudeck.accel.attention.kernels.hopper.forward` and
`gpudeck.accel.attention.kernels.hopper.backward`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

PACKED_ROWS = 64
"""The most rows for which query heads that share a key head are computed in one tile, which reads K
and V only once."""
_SPLIT_PACKED, _SPLIT = 256, 1024
BLOCKS = (16, 32, 64, 128)
"""The sizes that a caller may choose for either side of a tile."""


class TileConfig(NamedTuple):
    """Describe a tile of `block_m` queries by `block_n` keys, its warps and its load pipeline."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    def resize(self, block_m: int | None, block_n: int | None) -> TileConfig:
        """Return the tile with other sides where they are given. Raises ValueError for bad
        sizes."""
        for name, size in (("block_m", block_m), ("block_n", block_n)):
            if size is not None and size not in BLOCKS:
                raise ValueError(
                    f"{name} is one of {', '.join(map(str, BLOCKS))}, or None; got {size}"
                )
        return self._replace(block_m=block_m or self.block_m, block_n=block_n or self.block_n)

    def within(self, rows: int, cols: int) -> TileConfig:
        """Return the tile with sides that divide those of a block of a mask, powers of two."""
        return self._replace(block_m=min(self.block_m, rows), block_n=min(self.block_n, cols))

    @property
    def options(self) -> dict[str, int]:
        """Return the options for the compiler."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


def pad_width(head_dim: int) -> int:
    """Return the width of a tile: the next power of two, at least the 16 of tensor cores."""
    return max(16, 1 << (head_dim - 1).bit_length())


# By family and padded head size, for 16-bit elements; smaller heads use the tiles of 64.
_FORWARD = {
    "mma": {
        64: TileConfig(64, 64, 4, 3),
        128: TileConfig(128, 64, 8, 2),
        256: TileConfig(64, 64, 8, 1),
        512: TileConfig(32, 32, 8, 1),
    },
    "wgmma": {
        64: TileConfig(64, 64, 4, 3),
        128: TileConfig(64, 64, 4, 3),
        256: TileConfig(128, 64, 8, 2),
        512: TileConfig(64, 32, 8, 2),
    },
    "tcgen05": {
        64: TileConfig(64, 64, 4, 3),
        128: TileConfig(128, 64, 8, 2),
        256: TileConfig(64, 64, 8, 1),
        512: TileConfig(32, 32, 8, 1),
    },
}
# With a bias or mask, whose addresses take registers, too.
_FORWARD_BIASED = {
    64: TileConfig(64, 64, 4, 3),
    128: TileConfig(64, 32, 4, 3),
    256: TileConfig(64, 32, 8, 1),
    512: TileConfig(32, 32, 8, 1),
}
# The fastest on an H200; with heads of 64 two of these tiles may be made one.
_FORWARD_BIASED_WGMMA = {**_FORWARD_BIASED, 128: TileConfig(128, 64, 8, 3)}
_TALL = TileConfig(128, 64, 4, 3)
_DK_DV = {
    "mma": {
        64: TileConfig(32, 64, 4, 2),
        128: TileConfig(64, 64, 8, 2),
        256: TileConfig(32, 32, 8, 1),
        512: TileConfig(16, 16, 8, 1),
    },
    # These spill registers. The fastest tile that does not took 50 % longer at 64, and 10 % longer
    # at 128 (as long if causal).
    "wgmma": {
        64: TileConfig(128, 64, 4, 2),
        128: TileConfig(64, 64, 4, 2),
        256: TileConfig(64, 64, 8, 2),
        512: TileConfig(32, 32, 8, 2),
    },
    "tcgen05": {
        64: TileConfig(64, 64, 8, 2),
        128: TileConfig(32, 64, 8, 2),
        256: TileConfig(16, 64, 8, 1),
        512: TileConfig(16, 32, 8, 1),
    },
}
_DK_DV_BIASED_WGMMA = {
    **_DK_DV["wgmma"],
    128: TileConfig(32, 64, 4, 3),
    512: TileConfig(32, 32, 8, 1),
}
_DQ = {
    "mma": {
        64: TileConfig(64, 64, 4, 2),
        128: TileConfig(64, 64, 8, 2),
        256: TileConfig(64, 32, 8, 1),
        512: TileConfig(32, 16, 8, 1),
    },
    "wgmma": {
        64: TileConfig(64, 64, 4, 2),
        128: TileConfig(64, 64, 4, 2),
        256: TileConfig(128, 32, 8, 2),
        512: TileConfig(32, 32, 8, 2),
    },
    "tcgen05": {
        64: TileConfig(64, 64, 4, 2),
        128: TileConfig(64, 64, 8, 2),
        256: TileConfig(64, 32, 8, 1),
        512: TileConfig(32, 16, 8, 1),
    },
}


# For heads below 33 the tile without a bias: 70 us against 91 for 200 rows, 200 sequences.
_DQ_BIASED_WGMMA = {
    64: TileConfig(64, 32, 4, 3),
    128: TileConfig(64, 32, 4, 3),
    256: TileConfig(128, 32, 8, 2),
    512: TileConfig(64, 32, 8, 1),
}


def family(capability: int) -> str:
    """Return the tensor-core instruction that Triton emits for a capability (90 for 9.0)."""
    return {9: "wgmma", 10: "tcgen05"}.get(capability // 10, "mma")


def forward_config(
    capability: int, dtype: torch.dtype, block_d: int, rows: int, biased: bool
) -> TileConfig:
    """Return the tile of the forward pass.

    Args:
        capability: the compute capability, 90 for 9.0.
        dtype: the type of the inputs.
        block_d: the padded head size.
        rows: the queries, times the heads packed into one tile.
        biased: True with a bias or mask.
    """
    if dtype == torch.float32:
        return _exact(block_d)
    if rows > PACKED_ROWS:
        wgmma, width = family(capability) == "wgmma", max(64, block_d)
        if not biased:
            return _FORWARD[family(capability)][width]
        if wgmma and width == 64 and (rows - 1) % 128 >= 64:  # no more is left unused
            return _TALL
        return (_FORWARD_BIASED_WGMMA if wgmma else _FORWARD_BIASED)[width]
    block_m = max(16, 1 << (rows - 1).bit_length())
    if block_d > 256:
        return TileConfig(min(32, block_m), 32, 8, 1 if family(capability) == "mma" else 2)
    return TileConfig(
        block_m,
        64 if block_d <= 128 else 32,
        4,
        2 if family(capability) == "mma" else 3,
    )


def short_config(dtype: torch.dtype, block_d: int, rows: int, keys: int) -> TileConfig | None:
    """Return the tile of the forward pass for many sequences with few keys, or None.

    With heads of 32, up to 128 keys are faster so (30 against 55 us on an H200, 100 keys), with
    heads of 64 up to 64; 200 keys are not (67 against 63 us).
    """
    if dtype == torch.float32 or block_d > 64 or keys > (128 if block_d <= 32 else 64):
        return None
    block_m = min(64, max(16, 1 << (rows - 1).bit_length()))
    return TileConfig(block_m, pad_width(keys), 4, 3 if block_d <= 32 else 2)


def short_backward_config(capability: int, tile: TileConfig, block_d: int) -> TileConfig | None:
    """Return the tile of all gradients of such sequences, or None where it spills registers."""
    kind = family(capability)
    if tile.block_n > 64 or (block_d > 32 and kind == "mma"):
        return None
    # On an H200 8 warps took twice as long as 4; elsewhere 4 spill registers, and 8 hardly do.
    return tile._replace(num_warps=4 if kind == "wgmma" else 8)


def split_keys(rows: int) -> int:
    """Return the fewest keys for which a separate program pays for combining the results."""
    return _SPLIT_PACKED if rows <= PACKED_ROWS else _SPLIT


def dk_dv_config(
    capability: int, dtype: torch.dtype, block_d: int, rows: int, biased: bool
) -> TileConfig:
    """Return the tile for the gradients of keys and values, with steps of `block_m` queries."""
    if dtype == torch.float32:
        return _exact(block_d)
    kind = family(capability)
    if biased and kind == "wgmma" and rows <= 64 and block_d <= 64:
        return TileConfig(32, 64, 4, 2)
    if biased and kind == "wgmma" and block_d <= 32:
        return TileConfig(64, 32, 2, 2)
    table = _DK_DV_BIASED_WGMMA if biased and kind == "wgmma" else _DK_DV[kind]
    config = table[max(64, block_d)]
    return config._replace(block_m=64) if rows <= 64 < config.block_m else config


def dq_config(capability: int, dtype: torch.dtype, block_d: int, biased: bool) -> TileConfig:
    """Return the tile for the gradient of the queries, with steps of `block_n` keys."""
    if dtype == torch.float32:
        return _exact(block_d)
    kind = family(capability)
    special = biased and kind == "wgmma" and block_d > 32
    return (_DQ_BIASED_WGMMA if special else _DQ[kind])[max(64, block_d)]


def dbias_config(dtype: torch.dtype, block_d: int) -> TileConfig:
    """Return the tile for the gradient of an additive bias."""
    if dtype == torch.float32:
        return _exact(block_d)
    if block_d > 256:
        return TileConfig(32, 32, 8, 1)
    return TileConfig(64, 32 if block_d > 128 else 64, 4, 1)


def dq_dbias_config(capability: int, keys: int, block_d: int) -> TileConfig | None:
    """Return the tile for the gradients of queries and of a bias from those of scores.

    It has all keys; None if these are too many: with 500 a whole backward pass took 226 us instead
    of 190 on an H200.
    """
    block_n = pad_width(keys)
    if block_n > 256 or block_d > 64:
        return None
    stages = 3 if block_d <= 32 and family(capability) == "wgmma" else 2
    return TileConfig(64, block_n, 8 if block_n > 128 else 4, stages)


def _exact(block_d: int) -> TileConfig:
    """Return the tile for float32, which is computed in full precision without tensor cores."""
    if block_d > 128:
        return TileConfig(16, 16, 8 if block_d > 256 else 4, 1)
    return TileConfig(32, 32, 4, 1)
