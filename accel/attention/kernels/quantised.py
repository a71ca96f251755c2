"""Describe q, k and v in E4M3 with a scale a block, as the FP8 kernels read them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention.kernels.geometry import Geometry, Layout

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0
"""The largest number of E4M3."""
LEAST_SCALE = 2.0**-60
"""A block that is smaller than this counts as zero, so that ratios of scales cannot overflow."""
QUERIES = 64
"""Queries that share a scale."""
KEYS = 128
"""Keys that share a scale of k and one of v."""
CERTAIN = 5.5
"""Standard errors from which on a mean of values is subtracted. At 4, one in 16,000 columns of
random values had one by chance, and lost by it (see `Quantised.v_centre`)."""
SAMPLED = (256,)
"""Head sizes at which sums stay in the tensor cores over thousands of keys. If values have means of
a fifth of their deviation, such sums lose 2 %: small means must be found, in a larger sample."""
PARTS = 8
"""The parts of a sequence whose first KEYS values are the sample."""
CERTAIN_OF_SAMPLE = 3.0
"""Like CERTAIN, for a sample: what 1,024 values have by chance is too small to lose anything."""
SEED = 20
"""Of the rotation's signs."""
HEAD_SIZES = (64, 128, 256)
"""Other head sizes are padded to the next one."""


class Quantised(NamedTuple):
    """Hold q, k and v after the pre-pass; D is one of HEAD_SIZES.

    Each q and k was multiplied by one orthogonal matrix, which leaves the scores as they are and
    spreads outliers over the head.
    """

    q: Tensor
    """E4M3 [B,H,Sq,D]."""
    k: Tensor
    """E4M3 [B,Hkv,Sk,D]."""
    v: Tensor
    """E4M3 [B,Hkv,D,N KEYS] for N blocks, the keys in the order of `place_of_key`, then zeros."""
    q_scales: Tensor
    """float32 [B,H,blocks of QUERIES]: what the block's numbers are to be multiplied by."""
    k_scales: Tensor
    """float32 [B,Hkv,N]."""
    v_scales: Tensor
    v_centre: Tensor
    """float32 [sequences,Hkv,D]: what was subtracted from all values of a head of a sequence.

    The tensor cores add products of E4M3 with few bits and cut off the rest: sums of values around
    0 stay small, and lose little. It is the mean of the sequence's first KEYS values or, with heads
    of SAMPLED, of a sample, and 0 where that is below CERTAIN or CERTAIN_OF_SAMPLE standard errors.
    """


def pad_head(head_dim: int) -> int:
    """Return the head size of the quantised tensors."""
    return next(size for size in HEAD_SIZES if head_dim <= size)


def blocks_of(rows: int, block: int, sequences: int | None) -> int:
    """Return the number of blocks of `rows` rows.

    Ragged sequences begin a block each: sequence i that starts at row s has its first at
    s // block + i.
    """
    return -(-rows // block) if sequences is None else rows // block + sequences


def layouts(g: Geometry) -> tuple[Layout, Layout, Layout]:
    """Return the layouts of the quantised q, k and v."""
    dim = pad_head(g.head_dim)
    blocks = blocks_of(g.k.shape[2], KEYS, g.ragged and g.ragged[0])
    return (
        _contiguous((*g.q.shape[:3], dim)),
        _contiguous((*g.k.shape[:3], dim)),
        _contiguous((*g.k.shape[:2], dim, blocks * KEYS)),
    )


def place_of_key(key: int) -> int:
    """Return where a key of a block lies in the quantised v.

    The product of q and k leaves keys 2t, 2t + 1, 2t + 8 and 2t + 9 of 16 in the registers of one
    thread, which the product with v takes as keys 4t to 4t + 3.
    """
    return key & ~15 | (key >> 1 & 3) << 2 | (key >> 3 & 1) << 1 | key & 1


@lru_cache(maxsize=64)
def rotation(dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a Hadamard matrix whose rows have random signs: sqrt(dim) times an orthogonal one."""
    matrix = torch.ones(1, 1)
    while len(matrix) < dim:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    signs = torch.randint(0, 2, (dim, 1), generator=torch.Generator().manual_seed(SEED)) * 2.0 - 1.0
    return (signs * matrix).to(device, dtype)


def _contiguous(shape: tuple[int, ...]) -> Layout:
    return Layout(shape, torch.empty(shape, device="meta").stride())
