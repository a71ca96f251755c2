"""Products of few vectors with a matrix in four bits, in Gluon, for compute capability 8.0 on.

The memory's rate sets their speed, so weights go straight from there into the registers in which
the tensor cores take them, 16 bytes a thread at once, and nothing passes through shared memory. A
warp has ROWS rows and a part of k of its own. The order of k within a group is free, as long as
vectors have the same one: each thread takes the neighbours that it loaded, which are the numbers i
and i + 4 of a word after one shift and one mask. Two such numbers become floating-point ones by
being put into the last bits of 128 (bfloat16) or 1024 (float16); less 128 + zero they are exact.
Sums of a group are multiplied by its scale in float32.

Source of the way into floating point: Kim et al., arXiv 2211.10017, section 3.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from gpudeck.accel.primitives.tiles.warpgroup import along


@gluon.jit
def _pair(words, least, less, dtype: gl.constexpr):
    """Return numbers 0 and 4 of each word, less their zero, as a pair of 16 bits in int32.

    `least` is a pair of 128 (bfloat16) or 1024 (float16), `less` one of -(it + zero).
    """
    BF16: gl.constexpr = (
        "{ .reg .b32 v; lop3.b32 v, $1, 0x000f000f, $2, 0xea; fma.rn.bf16x2 $0, v, $3, $4; }"
    )
    FP16: gl.constexpr = (
        "{ .reg .b32 v; lop3.b32 v, $1, 0x000f000f, $2, 0xea; fma.rn.f16x2 $0, v, $3, $4; }"
    )
    ASM: gl.constexpr = BF16 if dtype == gl.bfloat16 else FP16
    ONE: gl.constexpr = 0x3F803F80 if dtype == gl.bfloat16 else 0x3C003C00
    return gl.inline_asm_elementwise(
        ASM, "=r,r,r,r,r", [words, least, ONE, less], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def _weights(words, zeros, dtype: gl.constexpr, LAYOUT: gl.constexpr):
    """Return the weights of a group without their scale [parts, rows, k] as left factors."""
    PARTS: gl.constexpr = words.shape[0]
    ROWS: gl.constexpr = words.shape[1]
    EACH: gl.constexpr = words.shape[2] // 4
    LEAST: gl.constexpr = 0x43004300 if dtype == gl.bfloat16 else 0x64006400
    LESS: gl.constexpr = 0xC300 if dtype == gl.bfloat16 else 0xE400
    less = gl.expand_dims((zeros.to(gl.int32) | LESS) * 0x00010001, 2)
    even = gl.join(_pair(words, LEAST, less, dtype), _pair(words >> 8, LEAST, less, dtype))
    odd = gl.join(_pair(words >> 4, LEAST, less, dtype), _pair(words >> 12, LEAST, less, dtype))
    low, high = gl.inline_asm_elementwise(
        "mov.b32 {$0, $1}, $2;",
        "=h,=h,r",
        [gl.join(even, odd)],
        dtype=(gl.int16, gl.int16),
        is_pure=True,
        pack=1,
    )
    # [.., thread, word, number, high] to the order in which a product takes k
    ordered = gl.join(low, high).reshape([PARTS, ROWS, 4, EACH, 4, 2]).permute((0, 1, 3, 4, 2, 5))
    ordered = ordered.reshape([PARTS, ROWS, 32 * EACH]).to(dtype, bitcast=True)
    return gl.convert_layout(ordered, LAYOUT, assert_trivial=True)


@gluon.jit
def _vectors(x, LAYOUT: gl.constexpr):
    """Return vectors [parts, vectors, k] as right factors, in the order of the weights."""
    PARTS: gl.constexpr = x.shape[0]
    COUNT: gl.constexpr = x.shape[1]
    EACH: gl.constexpr = x.shape[2] // 32
    ordered = x.reshape([PARTS, COUNT, 4, EACH, 2, 4]).permute((0, 3, 5, 2, 4, 1))
    return gl.convert_layout(
        ordered.reshape([PARTS, 32 * EACH, COUNT]), LAYOUT, assert_trivial=True
    )


@gluon.jit
def _take(places, lefts, group, WORDS: gl.constexpr):
    """Begin to load the words, zeros and scales of a group of each part.

    Of a group past the end the last one is read instead, with the scale 0.
    """
    words = gl.load(places[0] + gl.minimum(group, lefts[0] - 1) * WORDS)
    zeros = gl.load(places[1] + gl.minimum(group, lefts[1] - 1))
    scales = gl.load(places[2] + group, mask=group < lefts[2], other=0.0)
    return words, zeros, scales


@gluon.jit
def _add(total, taken, x, group):
    """Add the products of a group."""
    words, zeros, scales = taken
    at, seen, left = x
    LAYOUT: gl.constexpr = total.type.layout
    A: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    B: gl.constexpr = gl.DotOperandLayout(1, LAYOUT, 2)
    vectors = gl.load(at + group * (8 * words.shape[2]), mask=seen & (group < left), other=0.0)
    nothing = gl.zeros([total.shape[0], total.shape[1], total.shape[2]], gl.float32, LAYOUT)
    weights = _weights(words, zeros, vectors.dtype, A)
    sums = mma_v2(weights, _vectors(vectors, B), nothing)
    return total + sums * gl.expand_dims(scales.to(gl.float32), 2)


@gluon.jit(do_not_specialize=("count", "rows", "groups", "steps"))
def int4_few_product(
    weights, scales, zeros, bias, x, out, count, rows, words, groups, steps, stride_x,
    PARTS: gl.constexpr, ROWS: gl.constexpr, EACH: gl.constexpr, COUNT: gl.constexpr,
    WORDS_LAYOUT: gl.constexpr, X_LAYOUT: gl.constexpr, LAYOUT: gl.constexpr, BIAS: gl.constexpr,
):  # fmt: skip
    """Write ROWS columns of x [count, k] times the transposed matrix [rows, k].

    Args:
        weights: int32 [rows, words], eight numbers in each.
        scales, zeros: [rows, groups] of 32 EACH columns.
        steps: the groups of a part; there are PARTS, and as many warps.
        COUNT: the vectors of a program, 8 or 16.
    """
    WORDS: gl.constexpr = 4 * EACH
    ROW: gl.constexpr = gl.SliceLayout(2, WORDS_LAYOUT)
    SUM: gl.constexpr = gl.SliceLayout(2, LAYOUT)
    first, vector = gl.program_id(0) * ROWS, gl.program_id(1) * COUNT
    part = along(PARTS, WORDS_LAYOUT, 0) * steps
    # rows past the end are read as the last one, and not stored
    row = gl.minimum(first + along(ROWS, WORDS_LAYOUT, 1), rows - 1).to(gl.int64)
    at = weights + row * words + (part * WORDS + along(WORDS, WORDS_LAYOUT, 2))
    zero_part = gl.expand_dims(gl.arange(0, PARTS, gl.SliceLayout(1, ROW)), 1) * steps
    zero_row = gl.expand_dims(gl.arange(0, ROWS, gl.SliceLayout(0, ROW)), 0)
    zero_at = zeros + (gl.minimum(first + zero_row, rows - 1) * groups + zero_part)
    scale_part = gl.expand_dims(gl.arange(0, PARTS, gl.SliceLayout(1, SUM)), 1) * steps
    scale_row = gl.expand_dims(gl.arange(0, ROWS, gl.SliceLayout(0, SUM)), 0)
    scale_at = scales + (gl.minimum(first + scale_row, rows - 1) * groups + scale_part)
    places = (at, zero_at, scale_at)
    lefts = (
        gl.minimum(groups - part, steps),
        gl.minimum(groups - zero_part, steps),
        gl.minimum(groups - scale_part, steps),
    )
    x_part = along(PARTS, X_LAYOUT, 0) * steps
    x_vector = vector + along(COUNT, X_LAYOUT, 1)
    x_at = x + x_vector.to(gl.int64) * stride_x
    x_at += x_part * (32 * EACH) + along(32 * EACH, X_LAYOUT, 2)
    given = (x_at, x_vector < count, gl.minimum(groups - x_part, steps))
    total = gl.zeros([PARTS, ROWS, COUNT], gl.float32, LAYOUT)
    # two groups are always on their way
    one, two = _take(places, lefts, 0, WORDS), _take(places, lefts, 1, WORDS)
    for group in range(0, steps, 2):
        total = _add(total, one, given, group)
        one = _take(places, lefts, group + 2, WORDS)
        total = _add(total, two, given, group + 1)
        two = _take(places, lefts, group + 3, WORDS)
    made = gl.sum(total, 0)
    OUT: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    row = first + gl.expand_dims(gl.arange(0, ROWS, gl.SliceLayout(1, OUT)), 1)
    vector += gl.expand_dims(gl.arange(0, COUNT, gl.SliceLayout(0, OUT)), 0)
    if BIAS:
        made += gl.load(bias + row, mask=row < rows, other=0.0).to(gl.float32)
    there = (row < rows) & (vector < count)
    gl.store(out + vector.to(gl.int64) * rows + row, made.to(out.dtype.element_ty), mask=there)
