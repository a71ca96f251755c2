"""The gradients of attention on NVIDIA Hopper: which kernels run, with which tiles.

After FlashAttention-2 and -3 (arXiv 2307.08691, 2407.08608): the scores are computed anew, a CTA owns a tile of keys and walks over the
queries that see them, and dq is added up in float32 on the way. Where repeats must be bit-identical a kernel of its own computes dq.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from accel.attention.kernels.hopper.backward_keys import backward_keys
from accel.attention.kernels.hopper.backward_queries import backward_queries
from accel.attention.kernels.hopper.backward_rows import prepare
from accel.attention.kernels.hopper.backward_wide import backward_wide
from accel.attention.kernels.hopper.descriptors import describe, misfit
from accel.attention.ragged import Ragged

LOG2_E = math.log2(math.e)


ALL = 1
GRID_LIMIT = 65535
"""CTAs in the second and third dimension of a grid."""


@dataclass(frozen=True)
class Tiles:
    """The tiles for one head size."""

    queries: int
    """Rows of a query tile, where keys are owned."""
    keys: int
    """Rows of a key tile, there."""
    keys_of_dq: int
    """Rows of a key tile, where queries are owned."""
    stages_of_v: int
    """Tiles of v that kernel has in flight; of k it has two."""
    alone: int
    """Of so many key tiles one leaves dq to that kernel, the others add to it atomically; `ALL` (1): all of them leave it.

    Without atomics the scores are computed once more; with them the L2 cache, which adds up about 1.7 TB/s on an H100, keeps the tensor
    cores waiting. Between the two, both are at work at the same time.
    """


TILES = {64: Tiles(128, 128, 128, 2, ALL), 128: Tiles(64, 128, 64, 2, ALL), 256: Tiles(64, 64, 64, 1, ALL)}


def supports(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    """Why `backward` cannot take these tensors, in words; None where it can."""
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"takes float16 and bfloat16, not {str(q.dtype).removeprefix('torch.')}"
    if q.shape[3] > max(TILES) or q.shape[3] % 8:
        return f"takes head sizes that are multiples of 8 up to {max(TILES)}, not {q.shape[3]}"
    if q.shape[0] > GRID_LIMIT or q.shape[1] > GRID_LIMIT:
        return f"takes batches and heads up to {GRID_LIMIT}, not {q.shape[0]} x {q.shape[1]}"
    return next((why for x in (q, k, v) if (why := misfit(x))), None)


def backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    left: int | None,
    right: int | None,
    scale: float,
    softcap: float,
    ragged: Ragged | None,
    deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv [as q, k, v] of out = attention(q, k, v), from dout (of any strides) and lse float32 [B,H,Sq] (natural log).

    q [B,H,Sq,D], k and v [B,Hkv,Sk,D] as `supports` takes them; query i sees the keys from i + Sk - Sq - left to i + Sk - Sq + right. With
    `deterministic` repeats are bit-identical; without, the order of float32 additions in dq may vary.
    """
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if not q.numel() or not k.numel():
        return dq.zero_(), dk.zero_(), dv.zero_()
    if misfit(dout):
        dout = torch.empty_like(out).copy_(dout)
    size = next(size for size in TILES if size >= q.shape[3])
    tiles = TILES[size]
    batch, heads, seq_q, dim = q.shape
    kv_heads, seq_k = k.shape[1], k.shape[2]
    many = -(-seq_q // tiles.queries) if ragged is None else seq_q // tiles.queries + ragged.sequences
    sequences, longest_q, longest_k = (batch, seq_q, seq_k) if ragged is None else (ragged.sequences, ragged.longest_q, ragged.longest_k)
    alone = ALL if deterministic else tiles.alone
    starts = (None, None) if ragged is None else (ragged.starts_q, ragged.starts_k)
    scale_in = scale or 1e-30  # The scores begin with -lse / scale.
    lse_scale = LOG2_E if softcap else 1 / scale_in
    log2s = (scale / softcap * LOG2_E, softcap * LOG2_E) if softcap else (scale_in * LOG2_E, 0.0)

    rows = torch.empty(batch * heads * many, 2, tiles.queries, dtype=torch.float32, device=q.device)
    acc = torch.empty(batch * heads * many * tiles.queries * size if alone != ALL else 0, dtype=torch.float32, device=q.device)
    is_ragged = ragged is not None
    row_grid = (-(-longest_q // tiles.queries), heads, sequences)
    prepare[row_grid](
        out, dout, lse, rows, acc, starts[0], *out.stride()[:3], *dout.stride()[:3], *lse.stride()[:2],
        heads, seq_q, many, lse_scale, BM=tiles.queries, D=size, DIM=dim, DQ=alone != ALL, RAGGED=is_ragged, num_warps=8,
    )  # fmt: skip

    def boxes(x: Tensor, count: int) -> TensorDescriptor:
        return describe(x, count, size, ragged=is_ragged)

    rule = {
        "GROUP": heads // kv_heads,
        "LEFT": left is not None,
        "RIGHT": right is not None,
        "CAPPED": softcap != 0,
        "RAGGED": is_ragged,
    }
    cut = is_ragged or left is not None or right is not None
    numbers = (heads, seq_q, seq_k, many, left or 0, right or 0, scale, *log2s)
    row_boxes = TensorDescriptor.from_tensor(rows.view(-1, tiles.queries), [2, tiles.queries], gl.NVMMASharedLayout(0, 32, 2))
    grid = (-(-longest_k // tiles.keys), kv_heads, sequences)
    loaded = (boxes(q, tiles.queries), boxes(k, 64), boxes(v, 64), boxes(dout, tiles.queries), row_boxes, boxes(dk, 64), boxes(dv, 64))
    walk = {"BM": tiles.queries, "D": size, "STAGES": 2, "ROTATE": not cut, "MASKED": cut or seq_k % tiles.keys != 0}
    if size == max(TILES):
        backward_wide[grid](*loaded, *starts, *numbers, **walk, **rule, num_warps=4, maxnreg=168)
    else:
        backward_keys[grid](*loaded, acc, *starts, *numbers, ALONE=alone, **walk, **rule, num_warps=4, maxnreg=168)
    backward_queries[(-(-longest_q // 128), heads, sequences)](
        boxes(q, 64), boxes(k, tiles.keys_of_dq), boxes(v, tiles.keys_of_dq), boxes(dout, 64), boxes(dq, 64), rows, acc, *starts, *numbers,
        BN=tiles.keys_of_dq, D=size, K_STAGES=2, V_STAGES=tiles.stages_of_v, TILE=tiles.queries, ALONE=alone,
        MASKED=cut or seq_k % 128 != 0, **rule, num_warps=4, maxnreg=168,
    )  # fmt: skip
    return dq, dk, dv
