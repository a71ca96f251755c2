# mypy: disable-error-code="no-untyped-def"
"""Quantise q, k and v to E4M3 in one kernel, as `kernels.quantised` describes them.

Queries and keys are multiplied by a Hadamard matrix with random signs, which spreads outliers over
the head ("incoherent processing", FlashAttention-3, arXiv 2407.08608, section 3.3). Each block of
rows gets one scale. The values are laid with their keys side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from accel.attention.kernels.geometry import Geometry, Layout, geometry_key, geometry_of
from accel.attention.kernels.quantised import (
    CERTAIN as CERTAIN_ERRORS,
)
from accel.attention.kernels.quantised import (
    E4M3,
    KEYS,
    LARGEST,
    LEAST_SCALE,
    QUERIES,
    Quantised,
    blocks_of,
    layouts,
    padded_head,
    rotation,
)
from accel.attention.ragged import Ragged
from accel.runtime.call import KernelCall, Pointer
from accel.runtime.launch import prepare


@triton.jit
def _sequence(block, starts, sequences, ROWS: tl.constexpr):
    """Return the ragged sequence that has this block: the last that begins at it or before."""
    low = 0
    high = sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts + middle) // ROWS + middle <= block:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def _place(batch, block, starts, sequences, rows, ROWS: tl.constexpr, RAGGED: tl.constexpr):
    """Return batch, the block's first row in it, the block's number in its sequence, and the
    sequence's length."""
    begin = 0
    if RAGGED:
        sequence = _sequence(block, starts, sequences, ROWS)
        begin = tl.load(starts + sequence)
        rows = tl.load(starts + sequence + 1) - begin
        block -= begin // ROWS + sequence
    return begin, block, rows


@triton.jit
def _quantised(x, LARGEST: tl.constexpr, LEAST: tl.constexpr):
    """Return x rounded to numbers of E4M3, and its scale.

    NaN is passed over by the scale and stays in its place. The numbers are rounded here because
    Triton's interpreter rounds to E4M3 wrongly.
    """
    scale = tl.maximum(tl.max(tl.max(tl.abs(x), 1), 0) / LARGEST, LEAST)
    x = tl.minimum(
        tl.maximum(x / scale, -LARGEST, tl.PropagateNan.ALL), LARGEST, tl.PropagateNan.ALL
    )
    power = (x.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    # Added to x it leaves three bits behind the first one, or multiples of 2**-9, in the sum.
    magic = tl.maximum(power, 0.015625, tl.PropagateNan.ALL) * 1572864.0
    return (x + magic) - magic, scale


@triton.jit
def _rotated_rows(
    x_ptr, y_ptr, scale_ptr, rotation_ptr, unit, stride_b, stride_h, stride_n, starts, sequences,
    batch, head, heads, block, blocks, rows,
    ROWS: tl.constexpr, DIM: tl.constexpr, HEAD_DIM: tl.constexpr, LARGEST: tl.constexpr,
    LEAST: tl.constexpr, RAGGED: tl.constexpr
):  # fmt: skip
    """Quantise a block of rows of q or k after its multiplication by the rotation."""
    begin, place, length = _place(batch, block, starts, sequences, rows, ROWS, RAGGED)
    row = place * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, DIM)
    here = row < length
    source = x_ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h
    source += (begin + row).to(tl.int64)[:, None] * stride_n + at[None, :]
    x = tl.load(source, mask=here[:, None] & (at[None, :] < HEAD_DIM), other=0.0)
    rotation = tl.load(rotation_ptr + at[:, None] * DIM + at[None, :])
    y, scale = _quantised(tl.dot(x, rotation), LARGEST, LEAST)
    first = (batch * heads + head).to(tl.int64) * rows + begin
    target = y_ptr + (first + row)[:, None] * DIM + at[None, :]
    tl.store(target, y.to(tl.float8e4nv), mask=here[:, None])
    tl.store(scale_ptr + (batch * heads + head) * blocks + block, scale * unit)


@triton.jit
def _turned_values(
    x_ptr, y_ptr, scale_ptr, centre_ptr, stride_b, stride_h, stride_n, starts, sequences, batch,
    head, heads, block, blocks, rows, ROWS: tl.constexpr, DIM: tl.constexpr, HEAD_DIM: tl.constexpr,
    LARGEST: tl.constexpr, LEAST: tl.constexpr, RAGGED: tl.constexpr, CERTAIN: tl.constexpr
):  # fmt: skip
    """Quantise a block of values and lay its keys side by side, in the order of
    `quantised.place_of_key`."""
    begin, place, length = _place(batch, block, starts, sequences, rows, ROWS, RAGGED)
    to = tl.arange(0, ROWS)
    key = (to & -16) | ((to >> 1) & 1) << 3 | ((to >> 2) & 3) << 1 | (to & 1)
    row = place * ROWS + key
    at = tl.arange(0, DIM)
    source = x_ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h + at[None, :]
    inside = at[None, :] < HEAD_DIM
    first = tl.load(source + to[:, None] * stride_n, mask=(to < rows)[:, None] & inside, other=0.0)
    first = first.to(tl.float32)
    count = tl.minimum(rows, ROWS)
    centre = tl.sum(first, 0) / count
    error = (tl.sum(first * first, 0) / count - centre * centre) / count
    certain = (centre * centre > CERTAIN * CERTAIN * error) & (tl.abs(centre) < float("inf"))
    centre = tl.where(certain, centre, 0.0)
    if block == 0:
        tl.store(centre_ptr + (batch * heads + head) * DIM + at, centre)
    here = (row < length)[:, None] & inside
    x = tl.load(source + (begin + row).to(tl.int64)[:, None] * stride_n, mask=here, other=0.0)
    x = tl.where(here, x.to(tl.float32) - centre[None, :], 0.0)
    y, scale = _quantised(x, LARGEST, LEAST)
    turned = tl.trans(y.to(tl.float8e4nv))
    turned_row = (batch * heads + head).to(tl.int64) * DIM + at
    target = y_ptr + turned_row[:, None] * (blocks * ROWS) + block * ROWS + to[None, :]
    tl.store(target, turned)
    tl.store(scale_ptr + (batch * heads + head) * blocks + block, scale)


_NUMBERS = (
    "seq_q",
    "seq_k",
    "heads",
    "kv_heads",
    "batches",
    "sequences",
    "q_blocks",
    "k_blocks",
)


@triton.jit(do_not_specialize=[*_NUMBERS])
def quantise_attention(
    q_ptr, k_ptr, v_ptr, rotation_ptr, q8_ptr, k8_ptr, v8_ptr, q_scale_ptr, k_scale_ptr,
    v_scale_ptr, v_centre_ptr, claims_ptr, starts_q_ptr, starts_k_ptr,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh,
    stride_vn, seq_q, seq_k, heads, kv_heads, batches, sequences, q_blocks, k_blocks, unit,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, HEAD_DIM: tl.constexpr,
    LARGEST: tl.constexpr, LEAST: tl.constexpr, CERTAIN: tl.constexpr, RAGGED: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0)
    if at == 0:
        tl.store(claims_ptr, 0)
    queries = batches * heads * q_blocks
    keys = batches * kv_heads * k_blocks
    if at < queries:
        block = at % q_blocks
        head = (at // q_blocks) % heads
        _rotated_rows(
            q_ptr, q8_ptr, q_scale_ptr, rotation_ptr, unit, stride_qb, stride_qh, stride_qn,
            starts_q_ptr, sequences, at // q_blocks // heads, head, heads, block, q_blocks, seq_q,
            QUERIES, DIM, HEAD_DIM, LARGEST, LEAST, RAGGED,
        )  # fmt: skip
    elif at < queries + keys:
        at -= queries
        block = at % k_blocks
        head = (at // k_blocks) % kv_heads
        _rotated_rows(
            k_ptr, k8_ptr, k_scale_ptr, rotation_ptr, unit, stride_kb, stride_kh, stride_kn,
            starts_k_ptr, sequences, at // k_blocks // kv_heads, head, kv_heads, block, k_blocks,
            seq_k, KEYS, DIM, HEAD_DIM, LARGEST, LEAST, RAGGED,
        )  # fmt: skip
    else:
        at -= queries + keys
        block = at % k_blocks
        head = (at // k_blocks) % kv_heads
        _turned_values(
            v_ptr, v8_ptr, v_scale_ptr, v_centre_ptr, stride_vb, stride_vh, stride_vn,
            starts_k_ptr, sequences, at // k_blocks // kv_heads, head, kv_heads, block, k_blocks,
            seq_k, KEYS, DIM, HEAD_DIM, LARGEST, LEAST, RAGGED, CERTAIN,
        )  # fmt: skip


def quantise(
    q: Tensor, k: Tensor, v: Tensor, ragged: Ragged | None = None
) -> tuple[Quantised, Tensor]:
    """Return q, k and v [B,H,S,D] in E4M3, and a counter that is 0.

    The last stride of each is 1.
    """
    plan = _plan(geometry_key(q, k, v, None, None, 1.0, 0.0, ragged, None))
    return plan(q, k, v, *(() if ragged is None else (ragged.starts_q, ragged.starts_k)))


@lru_cache(maxsize=4096)
def _plan(key: tuple[object, ...]) -> Callable[..., tuple[Quantised, Tensor]]:
    g = geometry_of(key)
    launch = prepare(quantise_call(g), g.device)
    sequences = g.ragged and g.ragged[0]
    matrix = rotation(padded_head(g.head_dim), g.dtype, g.device)
    shapes = [layout.shape for layout in layouts(g)]
    k_blocks = blocks_of(g.k.shape[2], KEYS, sequences)
    scales = [
        (*g.q.shape[:2], blocks_of(g.q.shape[2], QUERIES, sequences)),
        (*g.k.shape[:2], k_blocks),
        (*g.k.shape[:2], k_blocks),
        (*g.k.shape[:2], padded_head(g.head_dim)),
    ]

    def run(q: Tensor, k: Tensor, v: Tensor, *starts: Tensor) -> tuple[Quantised, Tensor]:
        made = Quantised(
            *(torch.empty(shape, dtype=E4M3, device=g.device) for shape in shapes),
            *(torch.empty(shape, dtype=torch.float32, device=g.device) for shape in scales),
        )
        claims = torch.empty(1, dtype=torch.int32, device=g.device)
        launch(q, k, v, matrix, *made, claims, *starts)
        return made, claims

    return run


def quantise_call(g: Geometry) -> KernelCall:
    """Return the launch for a problem."""
    sequences = g.ragged and g.ragged[0]
    q_blocks = blocks_of(g.q.shape[2], QUERIES, sequences)
    k_blocks = blocks_of(g.k.shape[2], KEYS, sequences)
    dim = padded_head(g.head_dim)
    batches, heads, kv_heads = g.q.shape[0], g.heads, g.k.shape[1]
    eighth, scales = Pointer(E4M3), Pointer(torch.float32)
    starts = Pointer(torch.int32, False) if g.ragged else None

    def strides(name: str, layout: Layout) -> dict[str, int]:
        return Layout((), layout.strides[:3]).named(name, "bhn")

    return KernelCall(
        quantise_attention,
        batches * (heads * q_blocks + 2 * kv_heads * k_blocks),
        {
            **{f"{name}_ptr": g.pointer() for name in "qkv"},
            "rotation_ptr": Pointer(g.dtype),
            **{f"{name}8_ptr": eighth for name in "qkv"},
            **{f"{name}_scale_ptr": scales for name in "qkv"},
            "v_centre_ptr": scales,
            "claims_ptr": Pointer(torch.int32),
            "starts_q_ptr": starts,
            "starts_k_ptr": starts,
            **strides("q", g.q),
            **strides("k", g.k),
            **strides("v", g.v),
            "seq_q": g.q.shape[2],
            "seq_k": g.k.shape[2],
            "heads": heads,
            "kv_heads": kv_heads,
            "batches": batches,
            "sequences": sequences or 0,
            "q_blocks": q_blocks,
            "k_blocks": k_blocks,
            "unit": 1 / math.sqrt(dim),
        },
        {
            "QUERIES": QUERIES,
            "KEYS": KEYS,
            "DIM": dim,
            "HEAD_DIM": g.head_dim,
            "LARGEST": LARGEST,
            "LEAST": LEAST_SCALE,
            "CERTAIN": CERTAIN_ERRORS,
            "RAGGED": g.ragged is not None,
        },
        {"num_warps": 4 if dim <= 128 else 8, "num_stages": 1},
    )
