"""Problems for the kernels of compute capability 7.5, and how far their results are off.

Any newer GPU runs the same kernels: its driver translates their PTX.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention import Ragged
from gpudeck.accel.attention.inputs import Inputs, arrange, problem_of, rules_of
from gpudeck.accel.attention.kernels.turing.builds import (
    LARGEST_HEAD_BACKWARD,
    Build,
    Kind,
    delta_build,
    forward_build,
    keys_build,
    queries_build,
)
from gpudeck.accel.attention.passes import backward, forward, mask_blind
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.attention.sinks import sink_gradient

BACKEND = "turing"
ATOL = 1e-5
NAMES = ("out", "lse", "dq", "dk", "dv", "dbias", "dsink")


@dataclass(frozen=True)
class Case:
    """A problem; k and v have `keys` rows, or those of q."""

    batch: int = 1
    heads: int = 2
    kv_heads: int = 0
    queries: int = 200
    keys: int = 0
    head_dim: int = 64
    layout: str = "bhsd"
    causal: bool = False
    window: tuple[int | None, int | None] = (None, None)
    softcap: float = 0.0
    bias: tuple[int, ...] | None = None
    """The shape of a bias before it is expanded."""
    mask: bool = False
    alibi: tuple[int, ...] | None = None
    lengths: tuple[tuple[int, int], ...] = ()
    """Queries and keys of each sequence of a ragged batch."""
    sink: bool = False
    lse_grad: bool = False
    scale: float | None = None
    seed: int = 0


def _heads() -> Iterator[tuple[str, Case]]:
    for d in (8, 16, 32, 40, 48, 64, 72, 80, 96, 104, 112, 128, 160, 192, 200, 256):
        yield f"head size {d}", Case(head_dim=d, causal=True, queries=150, keys=170)


CASES: dict[str, Case] = {
    **dict(_heads()),
    "full": Case(batch=2, queries=256),
    "full, 128": Case(batch=2, queries=256, head_dim=128),
    "causal square": Case(queries=257, causal=True),
    "causal, more queries": Case(queries=200, keys=90, causal=True),
    "causal, far fewer queries": Case(queries=5, keys=700, causal=True),
    "one query": Case(queries=1, keys=333, heads=8, kv_heads=2),
    "one key": Case(queries=70, keys=1),
    "one of each": Case(queries=1, keys=1),
    "grouped": Case(batch=2, heads=6, kv_heads=2, causal=True),
    "one key head, 128": Case(heads=8, kv_heads=1, head_dim=128, causal=True),
    "rows first": Case(batch=2, heads=4, kv_heads=2, layout="bshd", causal=True),
    "long": Case(heads=1, queries=1500, keys=1500, causal=True),
    "window": Case(queries=300, window=(70, 20)),
    "window, causal": Case(queries=300, window=(64, 0), head_dim=128),
    "window to the left": Case(queries=300, keys=200, window=(33, None)),
    "window to the right": Case(queries=300, keys=330, window=(None, 40)),
    "window behind": Case(queries=300, window=(None, -3)),
    "window ahead": Case(queries=300, window=(-5, None)),
    "window that begins ahead and ends": Case(queries=300, window=(-5, 90)),
    "softcap": Case(softcap=15.0, causal=True),
    "softcap that bends": Case(softcap=0.5, scale=1.0),
    "bias of every pair": Case(batch=2, bias=(2, 2, 200, 200)),
    "bias of heads, causal": Case(batch=3, bias=(1, 2, 200, 200), causal=True),
    "bias of keys": Case(batch=2, bias=(2, 1, 1, 200)),
    "bias of queries, 128": Case(bias=(1, 2, 200, 1), head_dim=128),
    "mask": Case(batch=2, bias=(2, 1, 200, 200), mask=True),
    "mask with rows without keys, causal": Case(bias=(1, 1, 200, 1), mask=True, causal=True),
    "ALiBi": Case(heads=4, alibi=(4,), causal=True),
    "ALiBi of sequences": Case(batch=2, heads=4, alibi=(2, 4)),
    "ragged": Case(lengths=((70, 70), (1, 300), (129, 64))),
    "ragged, causal, grouped": Case(
        heads=4, kv_heads=2, causal=True, lengths=((70, 90), (0, 5), (33, 0), (200, 200))
    ),
    "ragged, window, 128": Case(head_dim=128, lengths=((150, 150), (64, 64)), window=(20, 0)),
    "sink": Case(heads=4, sink=True, causal=True),
    "sink, window, grouped": Case(heads=4, kv_heads=1, sink=True, window=(30, 0), head_dim=128),
    "gradient of lse": Case(lse_grad=True, causal=True),
    "softcap, window, bias, ALiBi, gradient of lse": Case(
        heads=4, kv_heads=2, softcap=4.0, window=(80, 3), bias=(1, 4, 1, 200), alibi=(4,),
        lse_grad=True, head_dim=80,
    ),
    "large scores": Case(scale=4.0, causal=True),
}  # fmt: skip


@dataclass
class Drawn:
    """The tensors of a case on a GPU."""

    x: Inputs
    problem: Problem
    dout: Tensor
    dlse: Tensor | None


def draw(case: Case, device: torch.device) -> Drawn:
    """Return random tensors of a case."""
    torch.manual_seed(case.seed)
    heads = case.kv_heads or case.heads
    ragged, sizes = None, (case.queries, case.keys or case.queries)
    if case.lengths:
        lengths = tuple(zip(*case.lengths, strict=True))
        ragged = Ragged.of(*lengths, device=device)
        sizes = (sum(lengths[0]), sum(lengths[1]))

    def normal(heads: int, rows: int) -> Tensor:
        shape: tuple[int, ...] = (case.batch, heads, rows, case.head_dim)
        if ragged is not None:
            shape = (rows, heads, case.head_dim)
        elif case.layout == "bshd":
            shape = (case.batch, rows, heads, case.head_dim)
        return torch.randn(shape, dtype=torch.float16, device=device)

    q, dout = normal(case.heads, sizes[0]), normal(case.heads, sizes[0])
    k, v = normal(heads, sizes[1]), normal(heads, sizes[1])
    bias = slopes = sink = None
    if case.bias:
        bias = torch.randn(case.bias, dtype=torch.float16, device=device)
        bias = bias > -0.5 if case.mask else bias.requires_grad_()
    if case.alibi:
        slopes = torch.rand(case.alibi, device=device) / 8
    if case.sink:
        sink = torch.randn(case.heads, device=device)
    x = arrange(q, k, v, bias, ragged, case.layout, sink, slopes)
    problem = problem_of(x, rules_of(x.q, case.causal, case.window, case.scale, case.softcap))
    dout = arrange(dout, k, v, None, ragged, case.layout).q
    dlse = torch.randn(x.q.shape[:3], device=device) if case.lse_grad else None
    return Drawn(x, problem, dout, dlse)


def solve(drawn: Drawn) -> tuple[Tensor | None, ...]:
    """Return what the kernels compute, in the order of NAMES."""
    x, p = drawn.x, replace(drawn.problem, lse_grad=drawn.dlse is not None)
    with torch.no_grad():
        out, lse = forward(x, p, BACKEND)
        if p.head_dim > LARGEST_HEAD_BACKWARD:
            return out, lse, None, None, None, None, None
        dlse = mask_blind(drawn.dlse, lse)
        grads = backward(drawn.dout, x, out, lse, p, BACKEND, dlse)
        dsink = None if x.sink is None else sink_gradient(drawn.dout, out, lse, dlse, x.sink)
    return out, lse, *grads, dsink


def expect(drawn: Drawn, dtype: torch.dtype = torch.float64) -> tuple[Tensor | None, ...]:
    """Return the results by the formula with every step in `dtype`, in the order of NAMES."""
    x, p = drawn.x, drawn.problem
    leaves = [t.detach().to(dtype).requires_grad_() for t in (x.q, x.k, x.v)]
    bias = x.bias
    more: list[Tensor] = []
    if bias is not None and bias.dtype != torch.bool:
        bias = bias.detach().to(dtype).requires_grad_()
        more.append(bias)
    sink = None if x.sink is None else x.sink.to(dtype).requires_grad_()
    more += [] if sink is None else [sink]
    out, lse = reference(
        *leaves, window=(p.left, p.right), scale=p.scale, softcap=p.softcap, bias=bias,
        ragged=x.ragged, sink=sink, alibi=x.slopes, dtype=dtype, return_lse=True,
    )  # fmt: skip
    if p.head_dim > LARGEST_HEAD_BACKWARD:
        return out.detach(), lse.detach(), None, None, None, None, None
    loss = (out * drawn.dout.to(dtype)).sum()
    if drawn.dlse is not None:
        loss = loss + (lse.masked_fill(lse.isneginf(), 0.0) * drawn.dlse.to(dtype)).sum()
    found = list(torch.autograd.grad(loss, [*leaves, *more], allow_unused=True))
    grads = [
        torch.zeros_like(t) if g is None else g
        for g, t in zip(found, [*leaves, *more], strict=True)
    ]
    dbias = grads[3] if bias is not None and bias.dtype != torch.bool else None
    return out.detach(), lse.detach(), *grads[:3], dbias, None if sink is None else grads[-1]


@dataclass(frozen=True)
class Judged:
    """How far one result is off."""

    name: str
    error: float
    """‖found - exact‖ / ‖exact‖."""
    worst: float
    """The largest difference."""
    allowed: float
    """Twice the largest difference of the formula in float16, and ATOL: flash-attention's rule.

    For lse, which has no rounded weights, it is 1e-5 of the largest value."""

    @property
    def is_right(self) -> bool:
        """Return whether the result is as exact as it has to be."""
        return self.worst <= self.allowed


def judge(drawn: Drawn, found: tuple[Tensor | None, ...]) -> list[Judged]:
    """Compare results with float64."""
    exact, plain = expect(drawn), expect(drawn, torch.float16)
    judged = []
    for name, ours, due, half in zip(NAMES, found, exact, plain, strict=True):
        if ours is None or due is None or half is None:
            continue
        a, b, c = ours.double(), due.double(), half.double()
        blind = b.isneginf()
        if name == "lse" and not torch.equal(a.isneginf(), blind):
            judged.append(Judged(name, math.inf, math.inf, 0.0))
            continue
        a, b, c = (t.masked_fill(blind, 0.0) for t in (a, b, c))
        away = (a - b).abs()
        worst = float(away.max())
        worst = math.inf if math.isnan(worst) else worst
        size = float(b.norm())
        if name == "lse":
            allowed = 1e-5 * max(1.0, float(b.abs().max()))
        else:
            allowed = 2 * float((c - b).abs().nan_to_num(0.0).max()) + ATOL
        judged.append(Judged(name, float(away.norm()) / max(size, 1e-9), worst, allowed))
    return judged


def builds_of(case: Case) -> list[Build]:
    """Return the kernels that a case needs, without a GPU."""
    ragged, bias = bool(case.lengths), case.bias is not None
    drawn = draw(replace(case), torch.device("cpu"))
    p, dim = drawn.problem, -(-case.head_dim // 8) * 8
    kind = Kind(
        dim, p.left is not None, p.right is not None, bool(case.softcap),
        "none" if not bias else "bool" if case.mask else "float", case.alibi is not None, ragged,
    )  # fmt: skip
    if dim > LARGEST_HEAD_BACKWARD:
        return [forward_build(kind)]
    trained = kind._replace(bias_grad=p.bias_grad)
    return [forward_build(kind), *(f(trained) for f in (delta_build, keys_build, queries_build))]


def options(case: Case) -> dict[str, Any]:
    """Return what is unlike a plain problem, for a table."""
    plain = Case()
    return {n: v for n, v in vars(case).items() if v != getattr(plain, n)}
