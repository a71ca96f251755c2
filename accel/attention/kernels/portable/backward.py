"""Plan the portable backward pass once for each kind of problem, then launch it quickly."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from triton import cdiv

from gpudeck.accel.attention.blocks import BlockLists
from gpudeck.accel.attention.kernels.geometry import (
    Geometry,
    Layout,
    Strides,
    Target,
    geometry_key,
    geometry_of,
    list_arguments,
    list_sides,
    target_of,
    unit_of,
)
from gpudeck.accel.attention.kernels.portable.forward import extras
from gpudeck.accel.attention.kernels.portable.kernel_backward import (
    KEPT_STEP,
    attention_dbias,
    attention_dk_dv,
    attention_dq,
    attention_dq_dbias,
    row_sums,
)
from gpudeck.accel.attention.kernels.portable.short import (
    Arguments,
    is_shared,
    short_backward_call,
    short_backward_tile,
)
from gpudeck.accel.attention.kernels.portable.tile_sizes import (
    TileConfig,
    dbias_config,
    dk_dv_config,
    dq_config,
    dq_dbias_config,
    pad_width,
)
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.call import ALIGNMENT, KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

_ROWS_AT_ONCE = 64
_PROGRAMS = 8
"""For each processor, of the gradient of a bias: until there are so many, its sums are split."""
_STREAMS = 2
"""The same where these sums are only read."""
_KEPT_BYTES = 256 << 20
"""The most memory for gradients of scores, which are kept so that those of queries and of a bias
need not compute them again."""

Launch = Callable[..., None]
Tiles = tuple[TileConfig, TileConfig]
"""Of the kernel of dk and dv, and of that of dq."""


class BackwardCalls(NamedTuple):
    """List the launches of one backward pass in their order."""

    row_sums: KernelCall | None
    dk_dv: KernelCall | None
    dq: KernelCall | None
    """None if the kernel of dbias computes it."""
    dbias: KernelCall | None
    parts: int = 1
    """Above 1, the kernel of dbias writes so many float32 sums, which are then added."""
    kept: int = 0
    """The number of gradients of scores that dk_dv keeps for dbias."""
    short: KernelCall | None = None
    """Computes everything by itself."""


def backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    rules: Rules,
    *,
    ragged: Ragged | None = None,
    bias: Tensor | None = None,
    bias_grad: bool = True,
    slopes: Tensor | None = None,
    visible: BlockLists | None = None,
    dlse: Tensor | None = None,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return dq, dk, dv and dbias from the gradient of the output.

    Every sum is taken in one order, so that results are always the same. It takes O(Sq) memory
    beside the results, and up to 256 MiB with a bias that all sequences of up to 256 keys share.
    The other arguments are those of `forward`, and out and lse its results (those of any backend
    mean the same).

    Args:
        dout: the gradient of out.
        bias_grad: compute the gradient of a floating-point bias.
        dlse: the gradient of lse, like it; 0 where lse is -inf.
        tiles: other tiles than those of `dk_dv_config` and `dq_config`.

    Returns:
        dq, dk and dv in the layouts of torch.empty_like of q, k and v; dbias in the dtype of the
        bias, with size 1 where the bias has stride 0 (summed in float32), or None.
    """
    if dout.stride(-1) != 1 or dout.data_ptr() % ALIGNMENT:
        dout = torch.empty_like(q).copy_(dout)
    wanted = bias_grad and bias is not None and bias.dtype.is_floating_point
    key = geometry_key(q, k, v, rules, ragged, bias, slopes, visible)
    plan = _plan(
        key, out.stride(), dout.stride(), out.data_ptr() % ALIGNMENT == 0, wanted,
        dlse is not None, tiles,
    )  # fmt: skip
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    more = extras(bias, ragged, slopes)
    dbias = None
    if wanted:
        assert bias is not None
        own = own_shape(tuple(bias.shape), bias.stride())
        size, kind = ((plan.parts, *own), torch.float32) if plan.parts > 1 else (own, bias.dtype)
        dbias = torch.empty(size, dtype=kind, device=bias.device)
    sums, of_lse = (() if x is None else (x,) for x in (dbias, dlse))
    if plan.short:
        plan.short(q, k, v, dout, lse, *of_lse, *more, dq, dk, dv, *sums)
    delta = torch.empty_like(lse)
    given = (q, k, v, dout, lse, delta, *more)
    ds = (q.new_empty(plan.kept),) if plan.kept else ()
    if plan.row_sums:
        plan.row_sums(out, dout, *of_lse, delta)
    if plan.dk_dv:
        plan.dk_dv(*given, *(visible.of_keys if visible else ()), *ds, dk, dv)
    if plan.dq:
        plan.dq(*given, *(visible.of_queries if visible else ()), dq)
    if plan.dbias:
        plan.dbias(*((*ds, k, dq) if ds else given), *sums)
    if dbias is not None and bias is not None and plan.parts > 1:
        dbias = dbias.sum(0).to(bias.dtype)
    return dq, dk, dv, dbias


def own_shape(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a bias before it was expanded: 1 where its stride is 0."""
    return tuple(1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True))


def backward_calls(
    geometry: Geometry,
    out_strides: tuple[int, ...],
    dout_strides: tuple[int, ...],
    aligned: bool,
    bias_grad: bool,
    target: Target,
    lse_grad: bool = False,
    tiles: Tiles | None = None,
) -> BackwardCalls:
    """Return what `backward` launches on a target."""
    dout = Layout(geometry.q.shape, dout_strides)
    shared = {
        **geometry.arguments(),
        **dout.named("dout"),
        "dout_ptr": Pointer(geometry.dtype),
        "lse_ptr": Pointer(torch.float32),
        "delta_ptr": Pointer(torch.float32),
    }
    constants = {**geometry.constants(), "BLOCK_D": pad_width(geometry.head_dim)}
    out = Layout(geometry.q.shape, out_strides)
    inputs = (geometry.q, geometry.k, geometry.v)
    constants["UNIT"] = unit_of(dout, out, *inputs, *(x.like() for x in inputs))
    tile = None if tiles else short_backward_tile(geometry, bias_grad, target)
    if tile is not None:
        shared["dlse_ptr"] = Pointer(torch.float32) if lse_grad else None
        short, parts = short_backward_call(geometry, shared, constants, tile, bias_grad, target)
        return BackwardCalls(None, None, None, None, parts, short=short)
    width = _kept_width(geometry, target) if bias_grad else 0
    for_kv, for_q = tiles or (None, None)
    dbias, parts = None, 1
    if bias_grad:
        make = _dq_dbias_call if width else _dbias_call
        dbias, parts = make(geometry, shared, constants, target)
    return BackwardCalls(
        _row_sums_call(geometry, out, dout, aligned, lse_grad, constants["UNIT"]),
        _dk_dv_call(geometry, shared, constants, target, width, for_kv),
        None if width else _dq_call(geometry, shared, constants, target, for_q),
        dbias,
        parts,
        geometry.q.shape[0] * geometry.heads * geometry.k.shape[2] * width,
    )


def _kept_width(geometry: Geometry, target: Target) -> int:
    """Return the queries in a row of the gradients of scores, if these are kept, else 0."""
    batch, heads, queries, keys = (*geometry.q.shape[:3], geometry.k.shape[2])
    plain = not geometry.rules.is_cut and not geometry.rules.softcap
    width = cdiv(queries, KEPT_STEP.value) * KEPT_STEP.value
    few = dq_dbias_config(target.capability, keys, pad_width(geometry.head_dim)) is not None
    few = few and batch * heads * keys * width * 2 <= _KEPT_BYTES
    return width if is_shared(geometry) and plain and few and geometry.dtype.itemsize == 2 else 0


def _row_sums_call(
    geometry: Geometry, out: Layout, dout: Layout, aligned: bool, lse_grad: bool, unit: object
) -> KernelCall:
    batch, heads, total_q = geometry.q.shape[:3]
    tiles = cdiv(total_q, _ROWS_AT_ONCE)
    return KernelCall(
        row_sums,
        tiles * heads * batch,
        {
            "out_ptr": Pointer(geometry.dtype, aligned),
            "dout_ptr": Pointer(geometry.dtype),
            "dlse_ptr": Pointer(torch.float32) if lse_grad else None,
            "delta_ptr": Pointer(torch.float32),
            **out.named("out"),
            **dout.named("dout"),
            "tiles": tiles,
            "heads": heads,
            "total_q": total_q,
        },
        {
            "HEAD_DIM": geometry.head_dim,
            "BLOCK_D": pad_width(geometry.head_dim),
            "BLOCK_M": _ROWS_AT_ONCE,
            "DLSE": lse_grad,
            "UNIT": unit,
        },
        {"num_warps": 4, "num_stages": 1},
    )


def _dk_dv_call(
    geometry: Geometry,
    shared: Arguments,
    constants: dict[str, object],
    target: Target,
    ds_width: int,
    tile: TileConfig | None,
) -> KernelCall:
    longest_q, longest_k = geometry.longest
    biased = geometry.bias is not None
    config = tile or dk_dv_config(
        target.capability, geometry.dtype, pad_width(geometry.head_dim), longest_q, biased
    )
    lists = geometry.blocks
    if lists:
        config = config.within(lists.rows, lists.cols)
    tiles = cdiv(longest_k, config.block_n)
    even = not geometry.ragged and longest_q % config.block_m == 0
    return KernelCall(
        attention_dk_dv,
        tiles * geometry.k.shape[1] * geometry.sequences,
        {
            **shared,
            **list_arguments(lists, by_keys=True),
            **geometry.k.like().named("dk"),
            **geometry.v.like().named("dv"),
            "ds_ptr": Pointer(geometry.dtype) if ds_width else None,
            "ds_width": ds_width,
            "dk_ptr": Pointer(geometry.dtype),
            "dv_ptr": Pointer(geometry.dtype),
            "tiles": tiles,
        },
        {
            **constants,
            **list_sides(lists),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "EVEN_Q": even,
        },
        config.options,
    )


def _dq_call(
    geometry: Geometry,
    shared: Arguments,
    constants: dict[str, object],
    target: Target,
    tile: TileConfig | None,
) -> KernelCall:
    biased = geometry.bias is not None
    config = tile or dq_config(
        target.capability, geometry.dtype, pad_width(geometry.head_dim), biased
    )
    lists = geometry.blocks
    if lists:
        config = config.within(lists.rows, lists.cols)
    longest_q, longest_k = geometry.longest
    tiles = cdiv(longest_q, config.block_m)
    even = not geometry.ragged and longest_k % config.block_n == 0
    return KernelCall(
        attention_dq,
        tiles * geometry.heads * geometry.sequences,
        {
            **shared,
            **list_arguments(lists, by_keys=False),
            **geometry.q.like().named("dq"),
            "dq_ptr": Pointer(geometry.dtype),
            "tiles": tiles,
        },
        {
            **constants,
            **list_sides(lists),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "EVEN_K": even,
        },
        config.options,
    )


def _dbias_call(
    geometry: Geometry,
    shared: Arguments,
    constants: dict[str, object],
    target: Target,
) -> tuple[KernelCall, int]:
    """Return a launch over the tiles of the bias, and the parts into which sums are split.

    A program sums over the broadcast dimensions. Where there are too few programs for the GPU, each
    sums a part.
    """
    assert geometry.bias is not None
    kind, strides, _ = geometry.bias
    shape = (*geometry.q.shape[:3], geometry.k.shape[2])
    config = dbias_config(geometry.dtype, pad_width(geometry.head_dim))
    own = own_shape(shape, strides)
    extent = (*shape[:2], cdiv(shape[2], config.block_m), cdiv(shape[3], config.block_n))
    tiles = tuple(
        1 if stride == 0 else count for count, stride in zip(extent, strides, strict=True)
    )
    sums = tuple(count if stride == 0 else 1 for count, stride in zip(extent, strides, strict=True))
    dbias = Layout.contiguous(own)
    programs, terms = math.prod(tiles), math.prod(sums)
    parts, chunk = _in_parts(terms, programs, _PROGRAMS * target.processors)
    call = KernelCall(
        attention_dbias,
        programs * parts,
        {
            **shared,
            **dbias.named("dbias"),
            "dbias_ptr": Pointer(torch.float32 if parts > 1 else kind),
            "tiles_m": tiles[2],
            "tiles_n": tiles[3],
            "own_batches": tiles[0],
            "own_heads": tiles[1],
            "chunk": chunk,
            "part_stride": math.prod(own),
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
    return call, parts


def _dq_dbias_call(
    geometry: Geometry,
    shared: Arguments,
    constants: dict[str, object],
    target: Target,
) -> tuple[KernelCall, int]:
    """Return a launch over the queries of the bias, and the parts into which its sums are split."""
    assert geometry.bias is not None
    batch, heads, queries, keys = (*geometry.q.shape[:3], geometry.k.shape[2])
    config = dq_dbias_config(target.capability, keys, pad_width(geometry.head_dim))
    assert config is not None
    tiles = cdiv(queries, config.block_m)
    parts, chunk = _in_parts(batch, tiles * heads, _STREAMS * target.processors)
    dbias = Strides(None, *Layout.contiguous((1, heads, queries, keys)).strides[1:])
    call = KernelCall(
        attention_dq_dbias,
        tiles * heads * parts,
        {
            **shared,
            **geometry.q.like().named("dq"),
            "dbias_strides": dbias,
            "ds_ptr": Pointer(geometry.dtype),
            "ds_width": _kept_width(geometry, target),
            "dq_ptr": Pointer(geometry.dtype),
            "dbias_ptr": Pointer(torch.float32 if parts > 1 else geometry.bias.dtype),
            "tiles": tiles,
            "sum_batches": batch,
            "chunk": chunk,
            "part_stride": heads * queries * keys,
        },
        {**constants, "BLOCK_M": config.block_m, "BLOCK_N": config.block_n},
        config.options,
    )
    return call, parts


def _in_parts(terms: int, programs: int, wanted: int) -> tuple[int, int]:
    """Return into how many parts sums are split so that there are enough programs, and the terms
    of each."""
    parts = max(1, min(terms, wanted // max(1, programs)))
    chunk = cdiv(terms, parts)
    return cdiv(terms, chunk) if chunk else 1, chunk


class _BackwardPlan(NamedTuple):
    """Hold the prepared launches of BackwardCalls, None where there is nothing to compute."""

    row_sums: Launch | None
    dk_dv: Launch | None
    dq: Launch | None
    dbias: Launch | None
    short: Launch | None
    parts: int
    kept: int


@lru_cache(maxsize=4096)
def _plan(
    key: tuple[object, ...],
    out_strides: tuple[int, ...],
    dout_strides: tuple[int, ...],
    aligned: bool,
    bias_grad: bool,
    lse_grad: bool,
    tiles: Tiles | None,
) -> _BackwardPlan:
    geometry = geometry_of(key)
    calls = backward_calls(
        geometry, out_strides, dout_strides, aligned, bias_grad, target_of(geometry.device),
        lse_grad, tiles,
    )  # fmt: skip

    def prepared(call: KernelCall | None) -> Launch | None:
        return prepare(call, geometry.device) if call is not None and call.grid else None

    return _BackwardPlan(
        prepared(calls.row_sums), prepared(calls.dk_dv), prepared(calls.dq), prepared(calls.dbias),
        prepared(calls.short), calls.parts, calls.kept,
    )  # fmt: skip
