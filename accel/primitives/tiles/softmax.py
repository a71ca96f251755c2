"""Compute softmax over blocks of scores, one after the other, in Triton.

A row carries m, its largest score so far in the units of the exponent, l, the sum of its weights,
and whatever is summed with these weights. `softmax_step` takes a block of scores; what was summed
before is then multiplied by the factor that it returns. Weights are powers of 2 (or of e with
NATURAL), as exp2 is an instruction: scores are multiplied by log2(e) beforehand, or by `scale`.

Source: Milakov and Gimelshein, arXiv 1805.02867; FlashAttention-2, arXiv 2307.08691, algorithm 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def tanh(x):
    """Return tanh, exact to a few 1e-8, unlike the hardware's tanh.approx, and without overflow."""
    return 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)


@triton.jit
def power(x, NATURAL: tl.constexpr):
    """Return 2 or e to the power of x."""
    if NATURAL:
        return tl.exp(x)
    else:
        return tl.exp2(x)


@triton.jit
def anchor(m, BLIND: tl.constexpr):
    """Return what is subtracted from scores: a row's largest, or 0 if it has seen none.

    BLIND: whether a row may have seen none. Its weights are then 2^(-inf - 0) = 0, not
    2^(-inf + inf).
    """
    if BLIND:
        return tl.where(m == float("-inf"), 0.0, m)
    else:
        return m


@triton.jit
def advance(m, most, BLIND: tl.constexpr):
    """Return the new m of rows that see a score of `most`, and its anchor.

    Sums so far are then to be multiplied by 2^(m - anchor).
    """
    new = tl.maximum(m, most)
    return new, anchor(new, BLIND)


@triton.jit
def softmax_step(
    scores, m, l, scale, BLIND: tl.constexpr = True, NATURAL: tl.constexpr = False
):  # fmt: skip
    """Take a block of scores into a softmax.

    Args:
        scores: float32 [rows, columns]; -inf is not seen.
        m, l: float32 [rows], at first -inf and 0.
        scale: a positive factor of the scores: multiplying and subtracting are one instruction.
        BLIND: whether a row may have seen no score yet.
        NATURAL: whether weights are powers of e.

    Returns:
        The weights [rows, columns], the new m and l, and the factor [rows] of earlier sums.
    """
    new, base = advance(m, tl.max(scores, 1) * scale, BLIND)
    weights = power(scores * scale - base[:, None], NATURAL)
    shrink = power(m - base, NATURAL)
    return weights, new, l * shrink + tl.sum(weights, 1), shrink


@triton.jit
def softmax_end(acc, m, l):
    """Return weighted means [rows, columns] of sums with weights, and logarithms of sums (base e).

    A row that saw no score gives 0 and -inf; one of NaN stays NaN.
    """
    blind = l == 0.0  # not m == -inf: a row of NaN must stay NaN
    acc = acc * (1.0 / tl.where(blind, 1.0, l))[:, None]
    lse = tl.where(blind, float("-inf"), m * LN2 + tl.log(tl.where(blind, 1.0, l)))
    return acc, lse
