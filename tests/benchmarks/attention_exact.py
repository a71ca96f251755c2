"""Compute samples of a shape of the zoo in float64, and how far a contender's answers are off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from gpudeck.accel.attention.reference import reference
from gpudeck.accel.result import Direction
from tests.benchmarks.attention_draws import Draw
from tests.benchmarks.attention_shapes import ModelShape

ATOL = 1e-5


def truth(shape: ModelShape, direction: Direction, x: Draw) -> Iterator[tuple[int, tuple, tuple]]:
    """Yield the place of a sample, its exact and its plain answers.

    A sample is one group of heads of one sequence: the first and the last one forward, the last one
    backward.
    """
    group = shape.heads // shape.kv_heads
    given, dout = x.inputs("bhsd"), x.upstream("bhsd")
    spots = [(0, 0), (shape.batch - 1, shape.kv_heads - 1)]
    for b, g in spots if direction == "forward" else spots[1:]:
        heads = slice(g * group, (g + 1) * group)
        rows: slice = slice(None)
        at = b
        if shape.lengths:
            start = sum(shape.lengths[:b])
            rows, at = slice(start, start + shape.lengths[b]), 0
        q, d = given.q[at : at + 1, heads, rows], dout[at : at + 1, heads, rows]
        k, v = (t[at : at + 1, g : g + 1, rows] for t in (given.k, given.v))
        bias = given.bias
        if bias is not None:
            bias = bias.detach()[min(at, bias.shape[0] - 1) :][:1]
            bias = bias if bias.shape[1] == 1 else bias[:, heads]
        answers = [
            _reference(shape, direction, q, k, v, d, bias, dtype)
            for dtype in (torch.float64, torch.bfloat16)
        ]
        where = ((at, heads, rows), (at, slice(g, g + 1), rows))
        yield where, *answers  # type: ignore[misc]


def _reference(
    shape: ModelShape,
    direction: Direction,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dout: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, ...]:
    leaves = [t.detach().to(dtype).requires_grad_(direction == "backward") for t in (q, k, v)]
    if bias is not None and bias.dtype != torch.bool:
        bias = bias.to(dtype)
    with torch.set_grad_enabled(direction == "backward"):
        out = reference(
            *leaves, causal=shape.causal, window=(shape.left, None), softcap=shape.softcap,
            scale=shape.head_dim**-0.5, bias=bias, dtype=dtype,
        )  # fmt: skip
    if direction == "forward":
        return (out,)
    return torch.autograd.grad(out, leaves, dout.to(dtype))


def errors(call: Callable[[], tuple[Tensor, ...]], known: Sequence[tuple]) -> tuple[float, float]:
    """Return the largest relative error of a contender's answers as a share of its bound, and the
    error itself."""
    got = call()
    worst = (0.0, 0.0)
    for where, exact, plain in known:
        for i, (true, simple) in enumerate(zip(exact, plain, strict=True)):
            at, heads, rows = where[min(i, 1)]
            answer = got[i].detach()[at, heads, rows].double()
            size = float(true.double().norm())
            error = float((answer - true[0]).norm()) / size
            bound = 2 * float((simple.double() - true).norm()) / size + ATOL
            error = error if math.isfinite(error) else 1e30
            worst = max(worst, (error / bound, error))
    return worst
