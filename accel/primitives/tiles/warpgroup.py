"""Work on tiles in the registers of a warpgroup, in Gluon for Hopper (sm_90).

Names and meanings are those of the blocks in Triton; `softmax` explains the running softmax.
`along` serves kernels for other GPUs as well.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LN2 = gl.constexpr(0.6931471805599453)
LOG2E = gl.constexpr(1.4426950408889634)


@gluon.jit
def anchor(m, BLIND: gl.constexpr):
    """Return what is subtracted from scores: a row's largest, or 0 if it has seen none."""
    if BLIND:
        return gl.where(m == -float("inf"), 0.0, m)
    else:
        return m


@gluon.jit
def advance(m, most, BLIND: gl.constexpr):
    """Return the new m of rows that see a score of `most`, and its anchor.

    Sums so far are then to be multiplied by 2^(m - anchor).
    """
    new = gl.maximum(m, most)
    return new, anchor(new, BLIND)


@gluon.jit
def softmax_step(scores, m, l, scale, BLIND: gl.constexpr):
    """Take a block of scores into a softmax in base 2; see `softmax.softmax_step`.

    Returns:
        The weights [rows, columns], the new m and l, and the factor [rows] of earlier sums.
    """
    new, base = advance(m, gl.max(scores, 1) * scale, BLIND)
    weights = gl.exp2(scores * scale - gl.expand_dims(base, 1))
    shrink = gl.exp2(m - base)
    return weights, new, l * shrink + gl.sum(weights, 1), shrink


@gluon.jit
def softmax_end(m, l):
    """Return the factor that makes means of sums with weights, and logarithms of sums (base e).

    A row that saw no score has l = 0 and m = -inf: its means are 0, and its logarithm is -inf.
    """
    return 1.0 / gl.where(l == 0.0, 1.0, l), (m + gl.log2(l)) * LN2


@gluon.jit
def inverse(x):
    """Return 1 / x to the last bit but one, in one instruction; a division takes eight."""
    return gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def limit(x, most):
    """Return most * tanh(x / (2 log2 e)), as exact as float32, unlike the hardware's tanh.approx.

    It is most - 2 most / (1 + 2^x), exact at both ends, where 2^x is 0 or infinite.
    """
    return most - 2.0 * most * inverse(1.0 + gl.exp2(x))


@gluon.jit
def scale_at(ptr, places, count, stride, STEP: gl.constexpr):
    """Load the scales of rows or columns; STEP is how many share one, 0 if all do."""
    if STEP == 0:
        return gl.load(ptr + places * 0)
    else:
        return gl.load(ptr + places // STEP * stride, mask=places < count, other=0.0)


@gluon.jit
def activate(x, ACTIVATION: gl.constexpr):
    """Apply `relu`, `silu`, `gelu` (exact) or `none` in float32."""
    if ACTIVATION == "relu":
        x = gl.where(x < 0.0, 0.0, x)
    elif ACTIVATION == "silu":
        x = x / (1.0 + gl.exp2(-1.4426950408889634 * x))
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + gl.erf(x * 0.7071067811865476))
    return x


@gluon.jit
def pack(x, dtype: gl.constexpr):
    """Round neighbours to pairs of 16 bits, int32 [rows, columns / 2].

    They then pass through loops without being taken apart.
    """
    low, high = gl.split(x.reshape([x.shape[0], x.shape[1] // 2, 2]))
    BF16: gl.constexpr = "cvt.rn.bf16x2.f32 $0, $2, $1;"
    FP16: gl.constexpr = "cvt.rn.f16x2.f32 $0, $2, $1;"
    ASM: gl.constexpr = BF16 if dtype == gl.bfloat16 else FP16
    return gl.inline_asm_elementwise(
        ASM, "=r,f,f", [low, high], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def unpack(pairs, dtype: gl.constexpr, LAYOUT: gl.constexpr):
    """Unpack the result of `pack` as the left factor of a product."""
    low, high = gl.inline_asm_elementwise(
        "mov.b32 {$0, $1}, $2;",
        "=h,=h,r",
        [pairs],
        dtype=(gl.int16, gl.int16),
        is_pure=True,
        pack=1,
    )
    both = gl.join(low, high).reshape([pairs.shape[0], pairs.shape[1] * 2])
    return gl.convert_layout(both.to(dtype, bitcast=True), LAYOUT)


@gluon.jit
def spread(x, like):
    """Return x [1,N] as the start of an accumulator [M,N], in registers of its own.

    Otherwise the compiler copies the registers at their first use, after the multiplication
    before, and has to wait for it.
    """
    x = gl.broadcast(x, like)[0]
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=False, pack=1
    )


@gluon.jit
def widen(x):
    """Return x in float32, each register of two numbers as a whole: the compiler would round
    them one by one.
    """
    if x.dtype == gl.bfloat16:
        asm: gl.constexpr = "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;"
    else:
        asm: gl.constexpr = (
            "{ .reg .b16 low, high; mov.b32 {low, high}, $2; "
            "cvt.f32.f16 $0, low; cvt.f32.f16 $1, high; }"
        )
    return gl.inline_asm_elementwise(asm, "=f,=f,r", [x], dtype=gl.float32, is_pure=True, pack=2)


@gluon.jit
def along(COUNT: gl.constexpr, LAYOUT: gl.constexpr, DIM: gl.constexpr):
    """Return 0 to COUNT - 1 along a dimension of three."""
    FIRST: gl.constexpr = 1 if DIM == 0 else 0
    SECOND: gl.constexpr = 1 if DIM == 2 else 2
    INNER: gl.constexpr = gl.SliceLayout(SECOND, LAYOUT)
    numbers = gl.arange(0, COUNT, gl.SliceLayout(FIRST, INNER))
    return gl.expand_dims(gl.expand_dims(numbers, FIRST), SECOND)
