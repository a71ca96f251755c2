"""Run the forward kernel with its answer in given places: some heads and rows of larger tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention.kernels.geometry import Layout, geometry_key, geometry_of
from gpudeck.accel.attention.kernels.hopper.descriptors import describe, fits
from gpudeck.accel.attention.kernels.hopper.forward import _multiprocessors, forward_call
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.call import TensorBox
from gpudeck.accel.runtime.launch import prepare


class _Plan(NamedTuple):
    attend: Callable[..., None]
    counts: bool
    again: int


def fits_into(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> bool:
    """Return whether the kernel can write there."""
    empty = 0 in (*q.shape, k.shape[2])
    return not empty and lse.is_contiguous() and all(map(fits, (q, k, v, out)))


def forward_into(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    rules: Rules,
    ragged: Ragged | None = None,
    sink: Tensor | None = None,
) -> None:
    """Compute what `forward` does, into `out` [B,H,Sq,Dv] and `lse`, float32 [B,H,Sq].

    `fits_into` must be true; out may be a part of a larger tensor.
    """
    plan = _plan(geometry_key(q, k, v, rules, ragged, sink=sink), out.stride())
    claims = torch.zeros(1, dtype=torch.int32, device=q.device) if plan.counts else lse
    starts = () if ragged is None else (ragged.starts_q, ragged.starts_k)
    boxed = (q, k, v, out)
    sinks = () if sink is None else (sink.float().contiguous(),)
    plan.attend(*boxed, *boxed[: plan.again], lse, claims, *starts, *sinks)


@lru_cache(maxsize=4096)
def _plan(key: tuple[object, ...], out_strides: tuple[int, ...]) -> _Plan:
    g = geometry_of(key)
    call = forward_call(g, _multiprocessors(g.device))
    out = Layout((*g.q.shape[:3], g.v.shape[3]), out_strides)
    arguments = dict(call.arguments)
    for name in ("o_desc", "o_last"):
        box = arguments[name]
        if isinstance(box, TensorBox):
            rows, width = box.block[-2:]
            arguments[name] = describe(out, g.dtype, rows, width, ragged=g.ragged is not None)
    call = replace(call, arguments=arguments)
    again = sum(call.arguments[f"{name}_last"] is not None for name in "qkvo")
    return _Plan(prepare(call, g.device), bool(call.constants["COUNT"]), again)
