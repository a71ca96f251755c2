"""Products of one vector with a matrix in FP8 or int8, in Gluon.

The memory's rate sets their speed. Weights go straight from there into the registers in which the
tensor cores take them, 16 bytes a thread at once, and become fp16 there: two of FP8 by one
instruction, which needs compute capability 8.9, and four of int8 by five. A warp has all rows of
its program and a part of k of its own; the order of k within a group is free, as long as the vector
has the same one. The vector is one of eight columns, the others are zero.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gpudeck.accel.primitives.tiles.warpgroup import along

ROWS, COLUMNS = 16, 8
EACH = 8
"""Words of four weights that a thread has of a row of a group, which is 128 columns."""
_ROWS, _COLUMNS, _EACH = gl.constexpr(ROWS), gl.constexpr(COLUMNS), gl.constexpr(EACH)
_LOWERED = gl.constexpr(2.0**-6)
"""A vector's numbers are made smaller before they become fp16, so that they reach up to 4 million;
those below 2^-8 are exact to 2^-20."""
_RAISED = gl.constexpr(2.0**6)


FROM_FP8 = (
    "{ .reg .b16 l, h; mov.b32 {l, h}, $2; cvt.rn.f16x2.e4m3x2 $0, l; cvt.rn.f16x2.e4m3x2 $1, h; }"
)
FROM_INT8 = (
    "{ .reg .b32 w, l, h, c; xor.b32 w, $2, 0x80808080; mov.b32 c, 0x64806480;"
    " prmt.b32 l, w, 0x64646464, 0x4140; prmt.b32 h, w, 0x64646464, 0x4342;"
    " sub.f16x2 $0, l, c; sub.f16x2 $1, h, c; }"
)
"""A byte b below the byte 0x64 is 1024 + b in fp16, from which 1152 is subtracted."""
_FROM_FP8, _FROM_INT8 = gl.constexpr(FROM_FP8), gl.constexpr(FROM_INT8)


@gluon.jit
def _weights(words, LAYOUT: gl.constexpr, INT8: gl.constexpr):
    """Return the weights of a group [parts, rows, k] as left factors."""
    PARTS: gl.constexpr = words.shape[0]
    CONVERTED: gl.constexpr = _FROM_INT8 if INT8 else _FROM_FP8
    first, second = gl.inline_asm_elementwise(
        CONVERTED, "=r,=r,r", [words], dtype=(gl.int32, gl.int32), is_pure=True, pack=1,
    )  # fmt: skip
    low, high = gl.inline_asm_elementwise(
        "mov.b32 {$0, $1}, $2;", "=h,=h,r", [gl.join(first, second)],
        dtype=(gl.int16, gl.int16), is_pure=True, pack=1,
    )  # fmt: skip
    # [.., thread, word, pair, high] to the order in which a product takes k
    ordered = gl.join(low, high).reshape([PARTS, _ROWS, 4, _EACH, 2, 2]).permute((0, 1, 3, 4, 2, 5))
    ordered = ordered.reshape([PARTS, _ROWS, 16 * _EACH]).to(gl.float16, bitcast=True)
    return gl.convert_layout(ordered, LAYOUT, assert_trivial=True)


@gluon.jit
def _vector(x, LAYOUT: gl.constexpr):
    """Return the columns [parts, columns, k] as right factors, in the order of the weights."""
    PARTS: gl.constexpr = x.shape[0]
    ordered = x.reshape([PARTS, _COLUMNS, 4, _EACH, 2, 2]).permute((0, 3, 4, 2, 5, 1))
    ordered = ordered.reshape([PARTS, 16 * _EACH, _COLUMNS])
    return gl.convert_layout(ordered, LAYOUT, assert_trivial=True)


@gluon.jit
def _row(number, rows, apart, PAIRED: gl.constexpr):
    """Return which row of the matrix is a row of this program; past the end, the last one.

    PAIRED: the second half of a program's rows lies `apart` from the first.
    """
    if PAIRED:
        half: gl.constexpr = _ROWS // 2
        pair = gl.program_id(0) * half + number % half
        row = pair // apart * 2 * apart + pair % apart + number // half * apart
    else:
        row = gl.program_id(0) * _ROWS + number
    return gl.minimum(row, rows - 1)


@gluon.jit
def _take(place, left, group):
    """Begin to load the words of a group of each part; past its end, the last one again."""
    return gl.load(place + gl.minimum(group, left - 1) * (4 * _EACH))


@gluon.jit
def _add(total, words, x, scale, group, INT8: gl.constexpr):
    """Add the products of a group."""
    at, seen, x_left = x
    scale_at, scale_left = scale
    LAYOUT: gl.constexpr = total.type.layout
    A: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    B: gl.constexpr = gl.DotOperandLayout(1, LAYOUT, 2)
    mask, start = seen & (group < x_left), group * (16 * _EACH)
    vector = gl.load(at + start, mask=mask, other=0.0).to(gl.float32)
    left, right = _weights(words, A, INT8), _vector((vector * _LOWERED).to(gl.float16), B)
    if INT8:
        return mma_v2(left, right, total)
    else:
        factors = gl.load(scale_at + group, mask=group < scale_left, other=0.0)
        nothing = gl.zeros([total.shape[0], total.shape[1], total.shape[2]], gl.float32, LAYOUT)
        return total + mma_v2(left, right, nothing) * factors


@gluon.jit
def _product(
    weights, scales, bias, x, rows, words, groups, steps, apart,
    PARTS: gl.constexpr, WORDS_LAYOUT: gl.constexpr, X_LAYOUT: gl.constexpr, LAYOUT: gl.constexpr,
    PAIRED: gl.constexpr, INT8: gl.constexpr, BIASED: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """Return this program's rows of the matrix times the vector."""
    part = along(PARTS, WORDS_LAYOUT, 0) * steps
    row = _row(along(_ROWS, WORDS_LAYOUT, 1), rows, apart, PAIRED).to(gl.int64)
    at = weights + row * words + (part * (4 * _EACH) + along(4 * _EACH, WORDS_LAYOUT, 2))
    left = gl.minimum(groups - part, steps)
    # two groups are always on their way, the first while the kernel before this one still runs
    one, two = _take(at, left, 0), _take(at, left, 1)
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    scale_part = along(PARTS, LAYOUT, 0) * steps
    scale_row = _row(along(_ROWS, LAYOUT, 1), rows, apart, PAIRED) // 128 * groups
    scale = (scales + (scale_row + scale_part), gl.minimum(groups - scale_part, steps))
    x_part = along(PARTS, X_LAYOUT, 0) * steps
    column = along(_COLUMNS, X_LAYOUT, 1)
    place = x_part * (16 * _EACH) + along(16 * _EACH, X_LAYOUT, 2) + 0 * column
    seen = column < 1
    given = (x + place, seen, gl.minimum(groups - x_part, steps))
    total = gl.zeros([PARTS, _ROWS, _COLUMNS], gl.float32, LAYOUT)
    for group in range(0, steps, 2):
        total = _add(total, one, given, scale, group, INT8)
        one = _take(at, left, group + 2)
        total = _add(total, two, given, scale, group + 1, INT8)
        two = _take(at, left, group + 3)
    made = gl.sum(gl.sum(total, 2), 0) * _RAISED
    own = _row(gl.arange(0, _ROWS, made.type.layout), rows, apart, PAIRED)
    if INT8:
        made *= gl.load(scales + own)
    if BIASED:
        made += gl.load(bias + own)
    return made


@gluon.jit
def _halves(made):
    """Return the first and the second half of a program's rows."""
    return gl.split(made.reshape([2, _ROWS // 2]).permute((1, 0)))


@gluon.jit(do_not_specialize=("rows", "groups", "steps", "half"))
def eight_bits_one(
    weights, scales, bias, add, x, out, rows, words, groups, steps, half,
    PARTS: gl.constexpr, WORDS_LAYOUT: gl.constexpr, X_LAYOUT: gl.constexpr, LAYOUT: gl.constexpr,
    INT8: gl.constexpr, BIASED: gl.constexpr, ADDS: gl.constexpr, GATE: gl.constexpr,
    EARLY: gl.constexpr,
):  # fmt: skip
    """Compute what `gpu_kernels.multiply_one` does.

    Args:
        weights: int32 [rows, words], four weights in each.
        scales: fp32 [rows / 128, groups]; of int8, fp32 [rows].
        steps: the groups of a part; there are PARTS, and as many warps.
    """
    PAIRED: gl.constexpr = GATE is not None
    made = _product(
        weights, scales, bias, x, rows, words, groups, steps, half, PARTS, WORDS_LAYOUT, X_LAYOUT,
        LAYOUT, PAIRED, INT8, BIASED, EARLY,
    )  # fmt: skip
    if PAIRED:
        gate, up = _halves(made)
        place = gl.program_id(0) * (_ROWS // 2) + gl.arange(0, _ROWS // 2, gate.type.layout)
        if GATE == "gelu":
            inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        else:
            inner = gate
        gated = gate / (1.0 + gl.exp(-inner)) * up
        gl.store(out + place, gated.to(out.dtype.element_ty), mask=place < half)
    else:
        row = gl.program_id(0) * _ROWS + gl.arange(0, _ROWS, made.type.layout)
        if ADDS:
            made += gl.load(add + row, mask=row < rows, other=0.0).to(gl.float32)
        gl.store(out + row, made.to(out.dtype.element_ty), mask=row < rows)


@gluon.jit(do_not_specialize=("rows", "groups", "steps"))
def eight_bits_heads(
    weights, scales, bias, x, cos, sin, slots, q, keys, values, rows, words, groups, steps, heads,
    kv_heads,
    PARTS: gl.constexpr, WORDS_LAYOUT: gl.constexpr, X_LAYOUT: gl.constexpr, LAYOUT: gl.constexpr,
    INT8: gl.constexpr, BIASED: gl.constexpr, TURNED: gl.constexpr, HALF: gl.constexpr,
    EARLY: gl.constexpr,
):  # fmt: skip
    """Compute what `gpu_kernels.multiply_heads` does; see `eight_bits_one`."""
    made = _product(
        weights, scales, bias, x, rows, words, groups, steps, HALF, PARTS, WORDS_LAYOUT, X_LAYOUT,
        LAYOUT, True, INT8, BIASED, EARLY,
    )  # fmt: skip
    first, second = _halves(made)
    pair = gl.program_id(0) * (_ROWS // 2) + gl.arange(0, _ROWS // 2, first.type.layout)
    head, at = pair // HALF, pair % HALF
    if TURNED:
        turns = head < heads + kv_heads
        turn_cos = gl.load(cos + at, mask=turns, other=1.0)
        turn_sin = gl.load(sin + at, mask=turns, other=0.0)
        turned = first * turn_cos - second * turn_sin
        second = second * turn_cos + first * turn_sin
        first = turned
    place = head * (2 * HALF) + at
    gl.store(q + place, first.to(q.dtype.element_ty), mask=head < heads)
    gl.store(q + place + HALF, second.to(q.dtype.element_ty), mask=head < heads)
    slot = gl.load(slots).to(gl.int64) * kv_heads * (2 * HALF)
    is_key = (head >= heads) & (head < heads + kv_heads)
    key = keys + (slot + place - heads * (2 * HALF))
    gl.store(key, first.to(keys.dtype.element_ty), mask=is_key)
    gl.store(key + HALF, second.to(keys.dtype.element_ty), mask=is_key)
    is_value = (head >= heads + kv_heads) & (head < heads + 2 * kv_heads)
    value = values + (slot + place - (heads + kv_heads) * (2 * HALF))
    gl.store(value, first.to(values.dtype.element_ty), mask=is_value)
    gl.store(value + HALF, second.to(values.dtype.element_ty), mask=is_value)
