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
from triton.runtime.interpreter import InterpretedFunction

from gpudeck.accel.attention.kernels.geometry import (
    Geometry,
    geometry_key,
    geometry_of,
    name_strides,
)
from gpudeck.accel.attention.kernels.quantised import (
    CERTAIN as CERTAIN_ERRORS,
)
from gpudeck.accel.attention.kernels.quantised import (
    CERTAIN_OF_SAMPLE,
    E4M3,
    KEYS,
    LARGEST,
    LEAST_SCALE,
    PARTS,
    QUERIES,
    SAMPLED,
    Quantised,
    blocks_of,
    layouts,
    pad_head,
    rotation,
)
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

SPAN = 8
"""Blocks that one program quantises, which reads the values of the centre once."""
STAGES = 2
"""Of these blocks the next one is on its way while a program computes."""
WARPS = {64: 4, 128: 4, 256: 8}
REGISTERS = {64: 128, 128: 168, 256: 255}
"""Of a program and of a thread, by head size: the fastest of those that were measured."""
_COLUMNS = 32
"""Columns of values that a program takes the means of: two sectors of memory a row."""
MANY = 1024
"""Blocks of values from which on programs take SPAN blocks."""


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
def _place(block, starts, sequences, rows, ROWS: tl.constexpr, RAGGED: tl.constexpr):
    """Return the block's sequence, its first row, the block's number in it, and its length."""
    sequence = 0
    begin = 0
    if RAGGED:
        sequence = _sequence(block, starts, sequences, ROWS)
        begin = tl.load(starts + sequence)
        rows = tl.load(starts + sequence + 1) - begin
        block -= begin // ROWS + sequence
    return sequence, begin, block, rows


@triton.jit
def _scale(most, LARGEST: tl.constexpr, LEAST: tl.constexpr):
    """Return the scale of numbers of which none is larger than one of `most`.

    NaN is passed over.
    """
    return tl.maximum(tl.max(tl.max(most, 1), 0) / LARGEST, LEAST)


@triton.jit
def _round(x, LARGEST: tl.constexpr, INTERPRETED: tl.constexpr):
    """Return x in E4M3, saturated; NaN stays in its place.

    Triton's interpreter neither rounds to E4M3 nor saturates as a GPU does.
    """
    if INTERPRETED:
        x = tl.minimum(tl.maximum(x, -LARGEST, tl.PropagateNan.ALL), LARGEST, tl.PropagateNan.ALL)
        power = (x.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
        # Added to x it leaves three bits behind the first one, or multiples of 2**-9, in the sum.
        magic = tl.maximum(power, 0.015625, tl.PropagateNan.ALL) * 1572864.0
        x = (x + magic) - magic
    return x.to(tl.float8e4nv)


@triton.jit
def _turn(source, rotation_ptr, here, at, DIM: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Return the product of columns `at` of rows with the rotation's rows `at`, in its first
    columns."""
    x = tl.load(source + at[None, :], mask=here[:, None] & (at[None, :] < HEAD_DIM), other=0.0)
    columns = tl.arange(0, at.shape[0])
    return tl.dot(x, tl.load(rotation_ptr + at[:, None] * DIM + columns[None, :]))


@triton.jit
def _rotate(source, rotation_ptr, here, at, DIM: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Return the product of rows with the rotation, 64 columns at a time.

    The Hadamard matrix of 128 or 256 columns has that of 64 in its parts, with the signs of the one
    of 2 or 4: the products with the parts are added and subtracted, which is exact in float32.
    """
    PART: tl.constexpr = at.shape[0]
    first = _turn(source, rotation_ptr, here, at, DIM, HEAD_DIM)
    if DIM == PART:
        return (first,)
    else:
        second = _turn(source, rotation_ptr, here, at + PART, DIM, HEAD_DIM)
        plus = first + second
        minus = first - second
        if DIM == 2 * PART:
            return plus, minus
        else:
            third = _turn(source, rotation_ptr, here, at + 2 * PART, DIM, HEAD_DIM)
            fourth = _turn(source, rotation_ptr, here, at + 3 * PART, DIM, HEAD_DIM)
            more = third + fourth
            less = third - fourth
            return plus + more, minus + less, plus - more, minus - less


@triton.jit
def _rotate_rows(
    x_ptr, y_ptr, scale_ptr, rotation_ptr, unit, stride_b, stride_h, stride_n, starts, sequences,
    batch, head, heads, first_block, blocks, rows,
    ROWS: tl.constexpr, DIM: tl.constexpr, HEAD_DIM: tl.constexpr, LARGEST: tl.constexpr,
    LEAST: tl.constexpr, RAGGED: tl.constexpr, SPAN: tl.constexpr, STAGES: tl.constexpr,
    INTERPRETED: tl.constexpr
):  # fmt: skip
    """Quantise SPAN blocks of rows of q or k after their multiplication by the rotation."""
    PART: tl.constexpr = 64
    _, begin, place, length = _place(first_block, starts, sequences, rows, ROWS, RAGGED)
    at = tl.arange(0, PART)
    source = x_ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h
    first_row = (batch * heads + head).to(tl.int64) * rows + begin
    for i in tl.range(0, tl.minimum(SPAN, blocks - first_block), num_stages=STAGES):
        row = (place + i) * ROWS + tl.arange(0, ROWS)
        here = row < length
        lines = source + (begin + row).to(tl.int64)[:, None] * stride_n
        parts = _rotate(lines, rotation_ptr, here, at, DIM, HEAD_DIM)
        most = tl.abs(parts[0])
        for j in tl.static_range(1, DIM // PART):
            most = tl.maximum(most, tl.abs(parts[j]))
        scale = _scale(most, LARGEST, LEAST)
        inverse = 1.0 / scale
        target = y_ptr + (first_row + row)[:, None] * DIM + at[None, :]
        for j in tl.static_range(DIM // PART):
            y = _round(parts[j] * inverse, LARGEST, INTERPRETED)
            tl.store(target + j * PART, y, mask=here[:, None])
        tl.store(scale_ptr + (batch * heads + head) * blocks + first_block + i, scale * unit)


@triton.jit
def _certain_mean(sums, squares, count, CERTAIN: tl.constexpr):
    """Return the mean of `count` values by their sums and those of their squares, or 0 where it is
    not certain."""
    mean = sums / count
    error = (squares / count - mean * mean) / count
    certain = (mean * mean > CERTAIN * CERTAIN * error) & (tl.abs(mean) < float("inf"))
    return tl.where(certain, mean, 0.0)


@triton.jit
def _centre(source, stride_n, length, inside, ROWS: tl.constexpr, CERTAIN: tl.constexpr):
    """Return the mean of the first values of a sequence, or 0 where it is not certain."""
    to = tl.arange(0, ROWS)
    rows = source + to.to(tl.int64)[:, None] * stride_n
    first = tl.load(rows, mask=(to < length)[:, None] & inside, other=0.0).to(tl.float32)
    return _certain_mean(
        tl.sum(first, 0), tl.sum(first * first, 0), tl.minimum(length, ROWS), CERTAIN
    )


@triton.jit(do_not_specialize=["seq_k", "heads"])
def mean_of_sample(
    v_ptr, means_ptr, starts_k_ptr, stride_vb, stride_vh, stride_vn, seq_k, heads,
    KEYS: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr, DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr, CERTAIN: tl.constexpr, RAGGED: tl.constexpr
):  # fmt: skip
    """Compute the mean of a sample, the first KEYS values of each of PARTS parts of a sequence.

    It goes to `means` [sequences, heads, DIM], rounded to the dtype of v; 0 where not certain.
    """
    PARTS_OF_HEAD: tl.constexpr = DIM // COLUMNS
    owner = tl.program_id(0) // PARTS_OF_HEAD
    sequence, head = owner // heads, owner % heads
    at = tl.program_id(0) % PARTS_OF_HEAD * COLUMNS + tl.arange(0, COLUMNS)
    source = v_ptr + head.to(tl.int64) * stride_vh + at[None, :]
    length = seq_k
    if RAGGED:
        begin = tl.load(starts_k_ptr + sequence)
        length = tl.load(starts_k_ptr + sequence + 1) - begin
        source += begin.to(tl.int64) * stride_vn
    else:
        source += sequence.to(tl.int64) * stride_vb
    inside = at[None, :] < HEAD_DIM
    step = tl.cdiv(length, PARTS)
    sums = tl.zeros([KEYS, COLUMNS], tl.float32)
    squares = tl.zeros([KEYS, COLUMNS], tl.float32)
    count = 0
    for part in tl.static_range(PARTS):
        some = tl.maximum(tl.minimum(tl.minimum(step, length - part * step), KEYS), 0)
        row = tl.arange(0, KEYS)
        lines = source + (part * step + row).to(tl.int64)[:, None] * stride_vn
        x = tl.load(lines, mask=(row < some)[:, None] & inside, other=0.0).to(tl.float32)
        sums += x
        squares += x * x
        count += some
    centre = _certain_mean(tl.sum(sums, 0), tl.sum(squares, 0), count, CERTAIN)
    means = means_ptr + owner * DIM + at
    tl.store(means, centre.to(means_ptr.dtype.element_ty))


@triton.jit
def _centre_values(source, stride_n, row, length, inside, centre):
    """Load values less their centre; 0 for rows that do not exist."""
    here = (row < length)[:, None] & inside
    x = tl.load(source + row.to(tl.int64)[:, None] * stride_n, mask=here, other=0.0)
    return tl.where(here, x.to(tl.float32) - centre[None, :], 0.0)


@triton.jit
def _byte(x, inverse, place: tl.constexpr, LARGEST: tl.constexpr, INTERPRETED: tl.constexpr):
    """Return x in E4M3 as one of the four bytes of a word."""
    y = _round(x * inverse, LARGEST, INTERPRETED)
    return y.to(tl.uint8, bitcast=True).to(tl.uint32) << (8 * place)


@triton.jit
def _turn_values(
    x_ptr, y_ptr, scale_ptr, centre_ptr, means_ptr, stride_b, stride_h, stride_n, starts, sequences,
    batch, head, heads, block, blocks, rows, ROWS: tl.constexpr, DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr, LARGEST: tl.constexpr, LEAST: tl.constexpr, RAGGED: tl.constexpr,
    CERTAIN: tl.constexpr, SPAN: tl.constexpr, STAGES: tl.constexpr, INTERPRETED: tl.constexpr
):  # fmt: skip
    """Quantise SPAN blocks of values of one sequence and lay their keys side by side, in the order
    of `quantised.place_of_key`: four keys that become neighbours are one word.

    A mean of a sample counts as ROWS equal values: a load of another shape would take away the
    layout in which threads read from shared memory what they copied there themselves.
    """
    sequence, begin, place, length = _place(block, starts, sequences, rows, ROWS, RAGGED)
    at = tl.arange(0, DIM)
    inside = at[None, :] < HEAD_DIM
    source = x_ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h + at[None, :]
    if RAGGED:
        source += begin.to(tl.int64) * stride_n
    owner = (sequence if RAGGED else batch) * heads + head
    if means_ptr is None:
        centre = _centre(source, stride_n, length, inside, ROWS, CERTAIN)
    else:
        centre = _centre(means_ptr + owner * DIM + at[None, :], 0, ROWS, inside, ROWS, CERTAIN)
    if place == 0:
        tl.store(centre_ptr + owner * DIM + at, centre)
    word = tl.arange(0, ROWS // 4)
    key = (word >> 2) * 16 + (word & 3) * 2
    base = (batch * heads + head).to(tl.int64) * DIM + at
    target = y_ptr.to(tl.pointer_type(tl.uint32)) + base[:, None] * (blocks * (ROWS // 4))
    for i in tl.range(0, tl.minimum(SPAN, blocks - block), num_stages=STAGES):
        row = (place + i) * ROWS + key
        a = _centre_values(source, stride_n, row, length, inside, centre)
        b = _centre_values(source, stride_n, row + 1, length, inside, centre)
        c = _centre_values(source, stride_n, row + 8, length, inside, centre)
        d = _centre_values(source, stride_n, row + 9, length, inside, centre)
        most = tl.maximum(tl.maximum(tl.abs(a), tl.abs(b)), tl.maximum(tl.abs(c), tl.abs(d)))
        scale = _scale(most, LARGEST, LEAST)
        inverse = 1.0 / scale
        low = _byte(a, inverse, 0, LARGEST, INTERPRETED)
        low |= _byte(b, inverse, 1, LARGEST, INTERPRETED)
        high = _byte(c, inverse, 2, LARGEST, INTERPRETED)
        high |= _byte(d, inverse, 3, LARGEST, INTERPRETED)
        tl.store(target + ((block + i) * (ROWS // 4) + word)[None, :], tl.trans(low | high))
        tl.store(scale_ptr + (batch * heads + head) * blocks + block + i, scale)


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
    v_scale_ptr, v_centre_ptr, claims_ptr, means_ptr, starts_q_ptr, starts_k_ptr,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh,
    stride_vn, seq_q, seq_k, heads, kv_heads, batches, sequences, q_blocks, k_blocks, unit,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, HEAD_DIM: tl.constexpr,
    LARGEST: tl.constexpr, LEAST: tl.constexpr, CERTAIN: tl.constexpr, RAGGED: tl.constexpr,
    SPAN: tl.constexpr, STAGES: tl.constexpr, INTERPRETED: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0)
    if at == 0:
        tl.store(claims_ptr, 0)
    k_spans = tl.cdiv(k_blocks, SPAN)
    q_spans = tl.cdiv(q_blocks, SPAN)
    some = batches * kv_heads * k_spans
    if at < some:
        head = (at // k_spans) % kv_heads
        _turn_values(
            v_ptr, v8_ptr, v_scale_ptr, v_centre_ptr, means_ptr, stride_vb, stride_vh,
            stride_vn, starts_k_ptr, sequences, at // k_spans // kv_heads, head, kv_heads,
            at % k_spans * SPAN, k_blocks, seq_k, KEYS, DIM, HEAD_DIM, LARGEST, LEAST, RAGGED,
            CERTAIN, SPAN, STAGES, INTERPRETED,
        )  # fmt: skip
    elif at < 2 * some:
        at -= some
        head = (at // k_spans) % kv_heads
        _rotate_rows(
            k_ptr, k8_ptr, k_scale_ptr, rotation_ptr, unit, stride_kb, stride_kh, stride_kn,
            starts_k_ptr, sequences, at // k_spans // kv_heads, head, kv_heads,
            at % k_spans * SPAN, k_blocks, seq_k, KEYS, DIM, HEAD_DIM, LARGEST, LEAST, RAGGED,
            SPAN, STAGES, INTERPRETED,
        )  # fmt: skip
    else:
        at -= 2 * some
        head = (at // q_spans) % heads
        _rotate_rows(
            q_ptr, q8_ptr, q_scale_ptr, rotation_ptr, unit, stride_qb, stride_qh, stride_qn,
            starts_q_ptr, sequences, at // q_spans // heads, head, heads, at % q_spans * SPAN,
            q_blocks, seq_q, QUERIES, DIM, HEAD_DIM, LARGEST, LEAST, RAGGED, SPAN, STAGES,
            INTERPRETED,
        )  # fmt: skip


def quantise(
    q: Tensor, k: Tensor, v: Tensor, ragged: Ragged | None = None
) -> tuple[Quantised, Tensor]:
    """Return q, k and v [B,H,S,D] in E4M3, and a counter that is 0.

    The last stride of each is 1.
    """
    plan = _plan(geometry_key(q, k, v, Rules(), ragged))
    return plan(q, k, v, *(() if ragged is None else (ragged.starts_q, ragged.starts_k)))


@lru_cache(maxsize=4096)
def _plan(key: tuple[object, ...]) -> Callable[..., tuple[Quantised, Tensor]]:
    g = geometry_of(key)
    launch = prepare(quantise_call(g), g.device)
    of_sample = sample_call(g)
    sample = None if of_sample is None else prepare(of_sample, g.device)
    sequences = g.ragged and g.ragged[0]
    matrix = rotation(pad_head(g.head_dim), g.dtype, g.device)
    shapes = [layout.shape for layout in layouts(g)]
    k_blocks = blocks_of(g.k.shape[2], KEYS, sequences)
    scales = [
        (*g.q.shape[:2], blocks_of(g.q.shape[2], QUERIES, sequences)),
        (*g.k.shape[:2], k_blocks),
        (*g.k.shape[:2], k_blocks),
        (sequences or g.k.shape[0], g.k.shape[1], pad_head(g.head_dim)),
    ]

    def run(q: Tensor, k: Tensor, v: Tensor, *starts: Tensor) -> tuple[Quantised, Tensor]:
        made = Quantised(
            *(torch.empty(shape, dtype=E4M3, device=g.device) for shape in shapes),
            *(torch.empty(shape, dtype=torch.float32, device=g.device) for shape in scales),
        )
        claims = torch.empty(1, dtype=torch.int32, device=g.device)
        means = () if sample is None else (torch.empty_like(made.v_centre, dtype=g.dtype),)
        if sample is not None:
            sample(v, *means, *starts[1:])
        launch(q, k, v, matrix, *made, claims, *means, *starts)
        return made, claims

    return run


def sample_call(g: Geometry) -> KernelCall | None:
    """Return the launch that finds the means of samples of values, where a problem needs them."""
    dim = pad_head(g.head_dim)
    if dim not in SAMPLED:
        return None
    return KernelCall(
        mean_of_sample,
        dim // _COLUMNS * g.k.shape[1] * ((g.ragged and g.ragged[0]) or g.k.shape[0]),
        {
            "v_ptr": g.pointer(),
            "means_ptr": Pointer(g.dtype),
            "starts_k_ptr": Pointer(torch.int32, False) if g.ragged else None,
            **name_strides("v", "bhn", g.v.strides[:3]),
            "seq_k": g.k.shape[2],
            "heads": g.k.shape[1],
        },
        {
            "KEYS": KEYS,
            "PARTS": PARTS,
            "COLUMNS": _COLUMNS,
            "DIM": dim,
            "HEAD_DIM": g.head_dim,
            "CERTAIN": CERTAIN_OF_SAMPLE,
            "RAGGED": g.ragged is not None,
        },
        {"num_warps": 8, "num_stages": 1},
    )


def quantise_call(g: Geometry) -> KernelCall:
    """Return the launch for a problem."""
    sequences = g.ragged and g.ragged[0]
    q_blocks = blocks_of(g.q.shape[2], QUERIES, sequences)
    k_blocks = blocks_of(g.k.shape[2], KEYS, sequences)
    dim = pad_head(g.head_dim)
    batches, heads, kv_heads = g.q.shape[0], g.heads, g.k.shape[1]
    span = 1 if g.ragged or batches * kv_heads * k_blocks < MANY else SPAN
    interpreted = isinstance(quantise_attention, InterpretedFunction)
    eighth, scales = Pointer(E4M3), Pointer(torch.float32)
    starts = Pointer(torch.int32, False) if g.ragged else None
    return KernelCall(
        quantise_attention,
        batches * (heads * -(-q_blocks // span) + 2 * kv_heads * -(-k_blocks // span)),
        {
            **{f"{name}_ptr": g.pointer() for name in "qkv"},
            "rotation_ptr": Pointer(g.dtype),
            **{f"{name}8_ptr": eighth for name in "qkv"},
            **{f"{name}_scale_ptr": scales for name in "qkv"},
            "v_centre_ptr": scales,
            "claims_ptr": Pointer(torch.int32),
            "means_ptr": Pointer(g.dtype) if dim in SAMPLED else None,
            "starts_q_ptr": starts,
            "starts_k_ptr": starts,
            **name_strides("q", "bhn", g.q.strides[:3]),
            **name_strides("k", "bhn", g.k.strides[:3]),
            **name_strides("v", "bhn", g.v.strides[:3]),
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
            "SPAN": span,
            "STAGES": STAGES if span > 1 else 1,
            "INTERPRETED": interpreted,
        },
        {"num_warps": WARPS[dim], "maxnreg": REGISTERS[dim], "num_stages": 1},
    )
