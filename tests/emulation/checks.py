"""Check the answers of emulated kernels against the float64 computation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.attention.reference import reference
from tests.emulation.hopper import Hopper

FULL = {"left": None, "right": None, "softcap": 0.0}
CAUSAL = {**FULL, "right": 0}
RULES = {
    "full": FULL,
    "causal": CAUSAL,
    "window": {**FULL, "left": 70, "right": 20},
    "left": {**FULL, "left": 100},
    "softcap": {**CAUSAL, "softcap": 3.0},
}
VARIANTS = {
    "ALiBi": {**CAUSAL, "alibi": True},
    "bias": {**CAUSAL, "bias": "float"},
    "mask": {**FULL, "bias": "bool"},
    "mask of keys": {**FULL, "bias": "keys"},
    "lse": {**CAUSAL, "lse_grad": True},
    "sink": {**CAUSAL, "sink": True},
}
"""What the kernels in FP8 do not compute."""


def tensors(
    dim: int,
    heads: tuple[int, int],
    lengths: tuple[int, int],
    *,
    batch: int = 1,
    dtype: torch.dtype = torch.bfloat16,
) -> list[Tensor]:
    """Standard normal dout, q [B,H,Sq,D], k, v [B,Hkv,Sk,D]."""
    at = torch.Generator().manual_seed(dim + sum(lengths))
    shapes = [
        (batch, h, s, dim)
        for h, s in zip(
            (heads[0], *heads[:1], *heads[1:] * 2),
            (lengths[0],) * 2 + (lengths[1],) * 2,
            strict=True,
        )
    ]
    return [torch.randn(shape, generator=at).to(dtype) for shape in shapes]


def with_atomics(hopper: Hopper) -> Hopper:
    """The same kernels with a CTA for each tile, and with dq added up atomically however short the
    sequences are."""
    for size in (64, 128):
        hopper.backward.TILES[size] = replace(
            hopper.backward.TILES[size], atomic_from=0, claimed_to=0
        )
    return hopper


def claiming(hopper: Hopper, *, atomic: bool) -> Hopper:
    """The same kernels with CTAs that stay and claim tiles, however long the sequences are."""
    for size in (64, 128):
        hopper.backward.TILES[size] = replace(
            hopper.backward.TILES[size],
            claimed_to=1 << 20,
            claimed_atomic_from=0 if atomic else 1 << 62,
        )
    return hopper


def _answer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dtype: torch.dtype,
    *,
    left: Any,
    right: Any,
    scale: float,
    softcap: float,
    alibi: bool = False,
    lse_grad: bool = False,
    sink: bool = False,
    bias: str | None = None,
) -> tuple[Tensor, Tensor]:
    out, lse = reference(
        q, k, v, window=(left, right), scale=scale, softcap=softcap, dtype=dtype, return_lse=True,
        alibi=_slopes(q, alibi), sink=_sinks(q, sink), bias=_bias(q, k, bias, dtype),
    )  # fmt: skip
    return out, lse


def _slopes(q: Tensor, alibi: bool) -> Tensor | None:
    """Return slopes of all heads, if there is ALiBi."""
    return torch.exp2(-torch.arange(1.0, q.shape[1] + 1)) if alibi else None


def _bias(
    q: Tensor, k: Tensor, kind: str | None, dtype: torch.dtype | None = None
) -> Tensor | None:
    """Return a bias of all heads for each sequence, or a mask of each head or of keys alone, which
    hides every key from one query, or from one sequence."""
    if kind is None:
        return None
    at = torch.Generator().manual_seed(q.shape[2])
    (batch, heads, rows), keys = q.shape[:3], k.shape[2]
    if kind == "float":
        drawn = torch.randn(batch, 1, rows, keys, generator=at).to(q.dtype)
        return drawn.to(dtype or q.dtype)
    if kind == "keys":
        return torch.arange(keys) < torch.tensor([keys // 2, 0])[:batch, None, None, None]
    seen = torch.rand(1, heads, rows, keys, generator=at) < 0.7
    seen[:, :, rows // 2] = False
    return seen


def _sinks(q: Tensor, sink: bool) -> Tensor | None:
    """Return sinks of all heads, if there are any: larger and smaller than scores."""
    return torch.linspace(3.0, -1.0, q.shape[1]) if sink else None


def _dlse(q: Tensor, lse_grad: bool) -> Tensor | None:
    """Return a gradient of lse, if there is one."""
    at = torch.Generator().manual_seed(q.shape[2])
    return torch.randn(q.shape[:3], generator=at) if lse_grad else None


def _apart(x: Tensor, y: Tensor) -> float:
    return (x.double() - y.double()).abs().max().item() if x.numel() else 0.0


def assert_forward(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, **asked: Any) -> None:
    """Out and lse are no further from the float64 answer than twice what the inputs' own precision
    costs."""
    exact, exact_lse = _answer(q, k, v, torch.float64, **asked)
    rough, rough_lse = _answer(q, k, v, q.dtype, **asked)
    blind = exact_lse == -math.inf
    assert torch.equal(lse == -math.inf, blind)
    assert not out[blind].any()
    apart, allowed = (
        _apart(lse[~blind], exact_lse[~blind]),
        2 * _apart(rough_lse[~blind], exact_lse[~blind]) + 1e-4,
    )
    assert apart <= allowed, f"lse is {apart} off; {allowed} allowed"
    apart, allowed = _apart(out, exact), 2 * _apart(rough, exact) + 1e-5
    assert apart <= allowed, f"out is {apart} off; {allowed} allowed"


def forward(
    hopper: Hopper,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ragged: Ragged | None = None,
    alibi: bool = False,
    lse_grad: bool = False,
    sink: bool = False,
    bias: str | None = None,
    **asked: Any,
) -> tuple[Tensor, Tensor]:
    """`forward`, whose answers are NaN until they are written."""
    added = _bias(q, k, bias)
    if added is not None:
        added = added.expand(*q.shape[:3], k.shape[2])
    more = {"slopes": _slopes(q, alibi), "sink": _sinks(q, sink), "bias": added}
    rules = Rules(**asked)
    with poisoned():
        out, lse = hopper.forward.forward(q, k, v, rules, ragged=ragged, **more)
    return out, lse


def check_forward(
    hopper: Hopper, q: Tensor, k: Tensor, v: Tensor, **asked: Any
) -> tuple[Tensor, Tensor]:
    out, lse = forward(hopper, q, k, v, **asked)
    assert_forward(q, k, v, out, lse, **asked)
    return out, lse


def check_ragged_forward(
    hopper: Hopper, heads: tuple[int, int], lengths_q: list[int], lengths_k: list[int]
) -> None:
    """Every sequence's out and lse are, bit for bit, what it has alone."""
    ragged, places = ragged_of(lengths_q, lengths_k)
    _, q, k, v = tensors(64, heads, (sum(lengths_q), sum(lengths_k)))
    out, lse = forward(hopper, q, k, v, ragged=ragged, scale=0.1, **FULL)
    for at_q, at_k in places:
        alone = [x[:, :, at] for x, at in ((q, at_q), (k, at_k), (v, at_k))]
        expected = forward(Hopper(), *alone, scale=0.1, **FULL)
        assert expected[0].equal(out[:, :, at_q]) and expected[1].equal(lse[:, :, at_q])


def gradients(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, dtype: torch.dtype, **asked: Any
) -> tuple[Tensor, ...]:
    """dq, dk, dv by autograd, every step in `dtype`."""
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in (q, k, v))
    out, lse = _answer(q, k, v, dtype, **asked)
    answers, upstream = [out], [dout.to(dtype)]
    dlse = _dlse(q, asked.get("lse_grad", False))
    if dlse is not None:
        answers.append(lse.masked_fill(lse == -math.inf, 0.0))
        upstream.append(dlse.to(dtype))
    return torch.autograd.grad(answers, (q, k, v), upstream)


def slip(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, **asked: Any
) -> tuple[Tensor, ...]:
    """By how much dq, dk and dv change as they are computed from a rounded `out`: dS = P (dP -
    sum(dout out)), in float64."""
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    exact, lse = _answer(q, k, v, torch.float64, **asked)
    delta = (dout.double() * (out.double() - exact.detach())).sum(-1)
    return torch.autograd.grad(
        lse.masked_fill(lse == -math.inf, 0.0),
        (q, k, v),
        -delta,
        allow_unused=True,
        materialize_grads=True,
    )


def assert_gradients(
    got: Sequence[Tensor], dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, **asked: Any
) -> None:
    """No further from float64 than twice what the inputs' own precision costs, and what it costs in
    the `out` given."""
    exact = gradients(dout, q, k, v, torch.float64, **asked)
    rough = gradients(dout, q, k, v, q.dtype, **asked)
    given = slip(dout, q, k, v, out, **asked)
    for name, x, to, other, moved in zip(("dq", "dk", "dv"), got, exact, rough, given, strict=True):
        apart, allowed = (
            _apart(x, to),
            2 * _apart(other, to) + _apart(moved, torch.zeros_like(moved)) + 1e-4,
        )
        assert apart <= allowed, f"{name} is {apart} off; {allowed} allowed"


def backward(
    hopper: Hopper,
    *inputs: Tensor,
    ragged: Ragged | None = None,
    deterministic: bool = False,
    alibi: bool = False,
    lse_grad: bool = False,
    sink: bool = False,
    waves: int = 0,
    **asked: Any,
) -> tuple[Tensor, ...]:
    """`backward` of dout, q, k, v, out, lse, whose answers are NaN until they are written.

    With `waves`, the query heads of a key head are spread over several CTAs.
    """
    del sink  # out and lse contain it
    hopper.backward.WAVES, hopper.backward.LEAST_STEPS = waves, 0
    dlse = _dlse(inputs[1], lse_grad)
    if dlse is not None:
        dlse = dlse.masked_fill(inputs[5] == -math.inf, 0.0)
    slopes = _slopes(inputs[1], alibi)
    with poisoned():
        dq, dk, dv = hopper.backward.backward(
            *inputs, Rules(**asked), ragged=ragged, deterministic=deterministic, slopes=slopes,
            dlse=dlse,
        )  # fmt: skip
    return dq, dk, dv


def check_backward(
    hopper: Hopper,
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    deterministic: bool = False,
    waves: int = 0,
    **asked: Any,
) -> tuple[Tensor, ...]:
    out, lse = _answer(q, k, v, torch.float64, **asked)
    out, lse = out.to(q.dtype), lse.float()
    given = {"deterministic": deterministic, "waves": waves, **asked}
    got = backward(hopper, dout, q, k, v, out, lse, **given)
    assert_gradients(got, dout, q, k, v, out, **asked)
    return got


def ragged_of(
    lengths_q: list[int], lengths_k: list[int]
) -> tuple[Ragged, list[tuple[slice, slice]]]:
    """The sequences, and where each of them lies among queries and keys."""
    ragged = Ragged.of(lengths_q, lengths_k, device="cpu")
    queries, keys = (
        [slice(*pair) for pair in pairwise(x.tolist())] for x in (ragged.starts_q, ragged.starts_k)
    )
    return ragged, list(zip(queries, keys, strict=True))


class poisoned(torch.overrides.TorchFunctionMode):  # noqa: N801 - used like a function
    """Fill the results of `torch.empty` and `torch.empty_like` with NaN, or with nonsense
    integers."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **kwargs or {})
        if func in (torch.empty, torch.empty_like):
            made.fill_(math.nan if made.dtype.is_floating_point else -0x55555555)
        return made
