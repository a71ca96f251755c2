"""Run the forward kernel with its answer in given places: some heads and rows of larger tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention.inputs import rows_aligned
from gpudeck.accel.attention.kernels.geometry import Layout, geometry_key, geometry_of
from gpudeck.accel.attention.kernels.hopper.descriptors import describe
from gpudeck.accel.attention.kernels.hopper.descriptors import misfit as misfit_of
from gpudeck.accel.attention.kernels.hopper.forward import _multiprocessors, forward_call
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.call import TensorBox
from gpudeck.accel.runtime.launch import prepare


class _Plan(NamedTuple):
    attend: Callable[..., None]
    counts: bool
    again: int


def misfit(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> str | None:
    """Return why the kernel cannot write there, or None if it can."""
    for x in (q, k, v, out):
        if why := misfit_of(x):
            return why
    batch, heads, rows = lse.shape
    if 0 in (*q.shape, k.shape[2]):
        return "nothing is to be computed"
    if lse.stride(2) != 1 or (batch > 1 and lse.stride(0) != heads * lse.stride(1)):
        return "the heads of all batches must have one distance in lse"
    return None if rows_aligned(out.shape, out.stride(), out.element_size()) else "unaligned rows"


def forward_into(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    left: int | None,
    right: int | None,
    scale: float,
    softcap: float,
    ragged: Ragged | None,
    sink: Tensor | None = None,
) -> None:
    """Compute what `forward` does, into `out` [B,H,Sq,Dv] and `lse` float32 [B,H,Sq].

    `misfit` must have no objection.
    """
    key = geometry_key(q, k, v, left, right, scale, softcap, ragged, None, sink=sink)
    plan = _plan(key, out.stride(), lse.stride(1))
    claims = torch.zeros(1, dtype=torch.int32, device=q.device) if plan.counts else lse
    starts = () if ragged is None else (ragged.starts_q, ragged.starts_k)
    boxed = (q, k, v, out)
    sinks = () if sink is None else (sink.float().contiguous(),)
    plan.attend(*boxed, *boxed[: plan.again], lse, claims, *starts, *sinks)


@lru_cache(maxsize=4096)
def _plan(key: tuple[object, ...], out_strides: tuple[int, ...], lse_stride: int) -> _Plan:
    g = geometry_of(key)
    call = forward_call(g, _multiprocessors(g.device))
    out = Layout((*g.q.shape[:3], g.v.shape[3]), out_strides)
    arguments = {**call.arguments, "rows_in_all": lse_stride}
    for name in ("o_desc", "o_last"):
        box = arguments[name]
        if isinstance(box, TensorBox):
            rows, width = box.block[-2:]
            arguments[name] = describe(out, g.dtype, rows, width, ragged=g.ragged is not None)
    call = replace(call, arguments=arguments)
    again = sum(call.arguments[f"{name}_last"] is not None for name in "qkvo")
    return _Plan(prepare(call, g.device), bool(call.constants["COUNT"]), again)
