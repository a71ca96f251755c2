"""The portable backward: which kernels a problem needs, planned once and then launched with little host time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from triton import cdiv

from accel.attention.kernels.geometry import (
    Geometry,
    Layout,
    Target,
    geometry_key,
    geometry_of,
    target_of,
)
from accel.attention.kernels.portable.configs import dbias_config, dk_dv_config, dq_config, padded
from accel.attention.kernels.portable.forward import extras
from accel.attention.kernels.portable.kernel_backward import (
    attention_dbias,
    attention_dk_dv,
    attention_dq,
    row_sums,
)
from accel.attention.ragged import Ragged
from accel.runtime.call import ALIGNMENT, Call, Pointer
from accel.runtime.launch import prepare

_ROWS_AT_ONCE = 64


class Calls(NamedTuple):
    """The launches of one backward, in this order."""

    row_sums: Call
    dk_dv: Call
    dq: Call
    dbias: Call | None


def backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    left: int | None = None,
    right: int | None = None,
    scale: float,
    softcap: float = 0.0,
    ragged: Ragged | None = None,
    bias: Tensor | None = None,
    bias_grad: bool = True,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(dq, dk, dv, dbias) of `forward`, whose arguments these are, with its out and lse (of any forward: they mean the same).

    dq, dk and dv are laid out as torch.empty_like of q, k and v. dbias is None unless `bias` is a floating-point one and `bias_grad` asks;
    it has the size 1 where the bias has stride 0, summed over that dimension in float32, and the bias's dtype. `deterministic` is there for
    the sake of a common signature: every sum, that of dbias included, is taken in one order, always. Takes O(Sq) memory beside its results.
    """
    if dout.stride(-1) != 1 or dout.data_ptr() % ALIGNMENT:
        dout = torch.empty_like(q).copy_(dout)
    wanted = bias_grad and bias is not None and bias.dtype.is_floating_point
    key = geometry_key(q, k, v, left, right, scale, softcap, ragged, bias)
    plan = _plan(key, out.stride(), dout.stride(), out.data_ptr() % ALIGNMENT == 0, wanted)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    dbias = None
    if wanted:
        assert bias is not None
        dbias = torch.empty(
            own_shape(tuple(bias.shape), bias.stride()), dtype=bias.dtype, device=bias.device
        )
    delta = torch.empty_like(lse)
    more = extras(bias, ragged)
    if plan.row_sums:
        plan.row_sums(out, dout, delta)
    if plan.dk_dv:
        plan.dk_dv(q, k, v, dout, lse, delta, *more, dk, dv)
    if plan.dq:
        plan.dq(q, k, v, dout, lse, delta, *more, dq)
    if plan.dbias:
        plan.dbias(q, k, v, dout, lse, delta, *more, dbias)
    return dq, dk, dv, dbias


def own_shape(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a bias before it was expanded: 1 where its stride is 0."""
    return tuple(1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True))


def backward_calls(
    geometry: Geometry,
    out_strides: tuple[int, ...],
    dout_strides: tuple[int, ...],
    aligned: bool,
    bias_grad: bool,
    target: Target,
) -> Calls:
    """What `backward` launches for a problem on a target. Needs no GPU."""
    dout = Layout(geometry.q.shape, dout_strides)
    shared = {
        **geometry.arguments(),
        **dout.named("g", "bhmd"),
        "dout_ptr": Pointer(geometry.dtype),
        "lse_ptr": Pointer(torch.float32),
        "delta_ptr": Pointer(torch.float32),
    }
    constants = {**geometry.constants(), "BLOCK_D": padded(geometry.head_dim)}
    return Calls(
        _row_sums_call(geometry, Layout(geometry.q.shape, out_strides), dout, aligned),
        _dk_dv_call(geometry, shared, constants, target),
        _dq_call(geometry, shared, constants, target),
        _dbias_call(geometry, shared, constants) if bias_grad else None,
    )


def _row_sums_call(geometry: Geometry, out: Layout, dout: Layout, aligned: bool) -> Call:
    batch, heads, total_q = geometry.q.shape[:3]
    tiles = cdiv(total_q, _ROWS_AT_ONCE)
    return Call(
        row_sums,
        tiles * heads * batch,
        {
            "out_ptr": Pointer(geometry.dtype, aligned),
            "dout_ptr": Pointer(geometry.dtype),
            "delta_ptr": Pointer(torch.float32),
            **out.named("o", "bhmd"),
            **dout.named("g", "bhmd"),
            "tiles": tiles,
            "heads": heads,
            "total_q": total_q,
        },
        {
            "HEAD_DIM": geometry.head_dim,
            "BLOCK_D": padded(geometry.head_dim),
            "BLOCK_M": _ROWS_AT_ONCE,
        },
        {"num_warps": 4, "num_stages": 1},
    )


def _dk_dv_call(
    geometry: Geometry,
    shared: dict[str, Pointer | int | float | None],
    constants: dict[str, object],
    target: Target,
) -> Call:
    config = dk_dv_config(target.capability, geometry.dtype, padded(geometry.head_dim))
    longest_q, longest_k = geometry.longest
    tiles = cdiv(longest_k, config.block_n)
    even = not geometry.ragged and longest_q % config.block_m == 0
    return Call(
        attention_dk_dv,
        tiles * geometry.k.shape[1] * geometry.sequences,
        {
            **shared,
            **geometry.k.like().named("dk", "bhnd"),
            **geometry.v.like().named("dv", "bhnd"),
            "dk_ptr": Pointer(geometry.dtype),
            "dv_ptr": Pointer(geometry.dtype),
            "tiles": tiles,
        },
        {**constants, "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "EVEN_Q": even},
        config.options,
    )


def _dq_call(
    geometry: Geometry,
    shared: dict[str, Pointer | int | float | None],
    constants: dict[str, object],
    target: Target,
) -> Call:
    config = dq_config(target.capability, geometry.dtype, padded(geometry.head_dim))
    longest_q, longest_k = geometry.longest
    tiles = cdiv(longest_q, config.block_m)
    even = not geometry.ragged and longest_k % config.block_n == 0
    return Call(
        attention_dq,
        tiles * geometry.heads * geometry.sequences,
        {
            **shared,
            **geometry.q.like().named("dq", "bhmd"),
            "dq_ptr": Pointer(geometry.dtype),
            "tiles": tiles,
        },
        {**constants, "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "EVEN_K": even},
        config.options,
    )


def _dbias_call(
    geometry: Geometry,
    shared: dict[str, Pointer | int | float | None],
    constants: dict[str, object],
) -> Call:
    """Tiles of the bias itself; what it was broadcast over is summed inside a program."""
    assert geometry.bias is not None
    kind, strides = geometry.bias
    config = dbias_config(geometry.dtype, padded(geometry.head_dim))
    shape = (*geometry.q.shape[:3], geometry.k.shape[2])
    own = own_shape(shape, strides)
    extent = (*shape[:2], cdiv(shape[2], config.block_m), cdiv(shape[3], config.block_n))
    tiles = tuple(
        1 if stride == 0 else count for count, stride in zip(extent, strides, strict=True)
    )
    sums = tuple(count if stride == 0 else 1 for count, stride in zip(extent, strides, strict=True))
    dbias = Layout(own, torch.empty(own, device="meta").stride())
    return Call(
        attention_dbias,
        tiles[0] * tiles[1] * tiles[2] * tiles[3],
        {
            **shared,
            **dbias.named("d", "bhmn"),
            "dbias_ptr": Pointer(kind),
            "tiles_m": tiles[2],
            "tiles_n": tiles[3],
            "own_heads": tiles[1],
            "sum_batches": sums[0],
            "sum_heads": sums[1],
            "sum_tiles_m": sums[2],
            "sum_tiles_n": sums[3],
        },
        {
            **constants,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "SUM_M": strides[2] == 0,
            "SUM_N": strides[3] == 0,
        },
        config.options,
    )


class _Plan(NamedTuple):
    """Launches; None where a grid is empty."""

    row_sums: Callable[..., None] | None
    dk_dv: Callable[..., None] | None
    dq: Callable[..., None] | None
    dbias: Callable[..., None] | None


@lru_cache(maxsize=4096)
def _plan(
    key: tuple[object, ...],
    out_strides: tuple[int, ...],
    dout_strides: tuple[int, ...],
    aligned: bool,
    bias_grad: bool,
) -> _Plan:
    geometry = geometry_of(key)
    calls = backward_calls(
        geometry, out_strides, dout_strides, aligned, bias_grad, target_of(geometry.device)
    )
    return _Plan(
        *(
            prepare(call, geometry.device) if call is not None and call.grid else None
            for call in calls
        )
    )
