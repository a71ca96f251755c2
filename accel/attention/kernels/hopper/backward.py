"""Compute the gradients of attention on NVIDIA Hopper: choose the kernels and their tiles.

Source: FlashAttention-2 and -3 (arXiv 2307.08691, 2407.08608). The scores are recomputed. Each CTA
owns a tile of keys, iterates over the queries that see them, and adds to dq in float32. For
deterministic gradients a separate kernel computes dq.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl

from gpudeck.accel.attention.kernels.geometry import Geometry, Layout, geometry_key, geometry_of
from gpudeck.accel.attention.kernels.hopper.backward_keys import backward_keys
from gpudeck.accel.attention.kernels.hopper.backward_keys_claimed import backward_keys_claimed
from gpudeck.accel.attention.kernels.hopper.backward_queries import backward_queries
from gpudeck.accel.attention.kernels.hopper.backward_queries_claimed import (
    backward_queries_claimed,
)
from gpudeck.accel.attention.kernels.hopper.backward_rows import prepare_rows
from gpudeck.accel.attention.kernels.hopper.backward_sums import backward_sums
from gpudeck.accel.attention.kernels.hopper.backward_wide import backward_wide
from gpudeck.accel.attention.kernels.hopper.descriptors import describe, fits
from gpudeck.accel.attention.kernels.hopper.forward import _multiprocessors, heads_at_once
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.call import Argument, KernelCall, Pointer, TensorBox
from gpudeck.accel.runtime.launch import prepare

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Tiles:
    """Hold the tile sizes for one head size."""

    queries: int
    """Rows of a query tile in the kernel whose CTAs own keys."""
    keys: int
    """Rows of a key tile in the same kernel."""
    keys_of_dq: int
    """Rows of a key tile in the kernel whose CTAs own queries, which computes dq."""
    stages_of_v: int
    """Tiles of v that the dq kernel loads ahead; of k it always loads two."""
    atomic_from: int
    """The number of queries from which the keys' kernel adds to dq atomically; with fewer
    queries the dq kernel computes it.

    The dq kernel computes the scores once more. Atomic additions are limited by the L2 cache, which
    sustains about 1.7 TB/s of them on an H100, while the tensor cores wait. Mixtures of the two
    were never the fastest (results/attention_tiles.csv).
    """
    claimed_to: int = 0
    """The most queries and keys of sequences whose tiles are claimed by CTAs that stay
    (`claims.py`, results/attention_short_backward.csv)."""
    claimed_atomic_from: int = 0
    """`atomic_from` of these."""


WAVES = 4
"""Query heads that share a key head are spread over several CTAs, whose dk and dv are added after,
until there are so many CTAs for each multiprocessor: a causal mask gives them unequal work. Half as
many are left as they are."""
LEAST_STEPS = 12
"""The tiles of queries that a CTA has at least after that: adding up must not cost more."""
FEW = 4
"""The tiles of keys a multiprocessor below which a second kernel for dq costs more than additions,
where tiles are claimed (from FEW_FROM queries on, if additions are used at all)."""
FEW_FROM = 512
AT_ONCE = 8
"""The most heads whose tiles under a causal mask run at once, the longest first."""
NEVER = 1 << 62
NARROW = 96
"""Heads of 65 to so many elements lie in tiles of 128: where tiles are claimed, products that sum
over the elements of a head leave out the zeros behind them."""
NOT_CLAIMED = (
    "starts_q", "starts_k", "at_once", "ROTATE", "RAGGED", "DV", "K_STAGES", "V_STAGES"
)  # fmt: skip
"""What the kernels that claim tiles do not take of the others' arguments."""
TILES = {
    64: Tiles(128, 128, 128, 2, 1024, 4096, 1025),
    128: Tiles(64, 128, 64, 2, 4096, 4095, NEVER),
    256: Tiles(64, 64, 64, 1, NEVER),
}


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
    deterministic: bool = False,
    slopes: Tensor | None = None,
    dlse: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dq, dk and dv in the shapes of q, k and v.

    Shapes: q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D] with strides that boxes take (`fits`); the
    heads of v, out and dout may be smaller. out and dout may have any strides; lse is float32
    [B,H,Sq], the natural logarithm.

    Args:
        deterministic: repeats are bit-identical; otherwise the order of float32 additions
        in dq may vary.
        slopes: ALiBi's, as in the forward pass.
        dlse: the gradient of lse, like it; 0 where lse is -inf.
    """
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if not q.numel() or not k.numel():
        return dq.zero_(), dk.zero_(), dv.zero_()
    out, dout = (
        x if fits(x) else x.clone(memory_format=torch.contiguous_format) for x in (out, dout)
    )
    key = geometry_key(q, k, v, rules, ragged, slopes=slopes)
    lse_grad = dlse is not None
    plan = _plan(key, out.stride(), dout.stride(), lse.stride(), deterministic, lse_grad)
    rows = torch.empty(plan.rows_size, dtype=torch.float32, device=q.device)
    sums = (
        (torch.empty(plan.sums_size, dtype=torch.float32, device=q.device),)
        if plan.sums_size
        else ()
    )
    starts = () if ragged is None else (ragged.starts_q, ragged.starts_k)
    tilts = () if slopes is None else (slopes,)
    given = () if dlse is None else (dlse,)
    claims = (torch.empty(2, dtype=torch.int32, device=q.device),) if plan.claimed else ()
    plan.rows(out, dout, lse, rows, *sums, *starts[:1], *tilts, *given, *claims)
    whole, parts = (dk, dv), (dk, dv)
    if plan.split > 1:
        parts = (_new_parts(dk, plan.split), _new_parts(dv, plan.split))
    plan.keys(q, k, v, dout, rows, *parts, *sums, *claims, *starts, *tilts)
    if plan.split > 1:
        for part, sum_of_parts in zip(parts, whole, strict=True):
            torch.sum(part.unflatten(1, (-1, plan.split)), 2, out=sum_of_parts)
    if sums:
        plan.queries(dq, *sums, *starts[:1])
    elif claims:
        plan.queries(q, k, v, dout, dq, rows, claims[0][1:], *tilts)
    else:
        plan.queries(q, k, v, dout, dq, rows, *starts, *tilts)
    return dq, dk, dv


Kernel = TypeVar("Kernel", KernelCall, Callable[..., None])


class Kernels(NamedTuple, Generic[Kernel]):
    """List the kernels of one backward pass in their order, planned or ready to launch, and the
    sizes of their extra buffers."""

    rows: Kernel
    keys: Kernel
    queries: Kernel
    """The dq kernel, or `backward_sums` if the keys' kernel adds to dq."""
    rows_size: int
    """The float32 elements that hold two numbers for each query of a tile."""
    sums_size: int
    """The float32 elements of the sum for dq; 0 if no kernel adds to it."""
    split: int
    """The parts of dk and dv of a key head, each of some of its query heads, that are then added
    up."""
    claimed: bool
    """Whether CTAs claim their tiles."""


@lru_cache(maxsize=4096)
def _plan(
    key: tuple[object, ...],
    out_strides: tuple[int, ...],
    dout_strides: tuple[int, ...],
    lse_strides: tuple[int, ...],
    deterministic: bool,
    lse_grad: bool,
) -> Kernels[Callable[..., None]]:
    g = geometry_of(key)
    calls = backward_calls(
        g,
        out_strides,
        dout_strides,
        lse_strides,
        deterministic=deterministic,
        lse_grad=lse_grad,
        processors=_multiprocessors(g.device),
    )
    launches = (
        prepare(calls.rows, g.device),
        prepare(calls.keys, g.device),
        prepare(calls.queries, g.device),
    )
    return Kernels(*launches, calls.rows_size, calls.sums_size, calls.split, calls.claimed)


def _split(g: Geometry, ctas: int, steps: int, processors: int) -> int:
    """Return into how many parts, a divisor of the group, dk and dv are split.

    Args:
        g: the problem.
        ctas: the CTAs without any split.
        steps: the tiles of queries of such a CTA.
        processors: the multiprocessors.
    """
    if 2 * ctas >= WAVES * processors:
        return 1
    parts = [n for n in range(1, g.group + 1) if g.group % n == 0]
    wanted = next((n for n in parts if n * ctas >= WAVES * processors), g.group)
    return max(n for n in parts if n == 1 or (n <= wanted and steps >= n * LEAST_STEPS))


def _atomic_from(g: Geometry, tiles: Tiles, processors: int) -> int:
    """Return the queries from which CTAs that claim tiles add to dq."""
    in_all = -(-g.k.shape[2] // tiles.keys) * g.k.shape[1] * g.sequences
    few = in_all < FEW * processors and tiles.claimed_atomic_from < NEVER
    return min(FEW_FROM, tiles.claimed_atomic_from) if few else tiles.claimed_atomic_from


def backward_calls(
    g: Geometry,
    out_strides: tuple[int, ...],
    dout_strides: tuple[int, ...],
    lse_strides: tuple[int, ...],
    *,
    deterministic: bool,
    lse_grad: bool = False,
    processors: int,
) -> Kernels[KernelCall]:
    """Return what `backward` launches for a problem on a GPU of so many multiprocessors."""
    size = next(size for size in TILES if size >= g.head_dim)
    wide = size == max(TILES)
    # Only the kernels of the largest heads have boxes of their own for narrower values.
    value_size = 128 if wide and g.v.shape[3] <= 128 else size
    tiles = TILES[size]
    seq_q, seq_k, ragged = g.q.shape[2], g.k.shape[2], g.ragged is not None
    many = seq_q // tiles.queries + g.sequences if ragged else -(-seq_q // tiles.queries)
    in_all = g.q.shape[0] * g.heads * many
    claimed = not ragged and max(seq_q, seq_k) <= tiles.claimed_to
    atomic_from = _atomic_from(g, tiles, processors) if claimed else tiles.atomic_from
    atomic = not deterministic and g.longest[0] >= atomic_from
    scale_in = g.rules.scale or 1e-30  # The scores begin with -lse / scale.
    lse_scale = LOG2_E if g.rules.softcap else 1 / scale_in
    log2s = (
        (g.rules.scale / g.rules.softcap * LOG2_E, g.rules.softcap * LOG2_E)
        if g.rules.softcap
        else (scale_in * LOG2_E, 0.0)
    )
    dout = Layout((*g.q.shape[:3], g.v.shape[3]), dout_strides)
    floats, starts = Pointer(torch.float32), Pointer(torch.int32, False) if ragged else None
    sums = floats if atomic else None
    slopes = None if g.slopes is None else Pointer(torch.float32, False)
    tilts: dict[str, Pointer | int | None] = {"slopes": slopes, "slopes_batch": g.slopes or 0}

    def boxes(x: Layout, count: int) -> TensorBox:
        return describe(x, g.dtype, count, size, ragged=ragged)

    def value_boxes(x: Layout, count: int) -> TensorBox:
        return describe(x, g.dtype, count, value_size, ragged=ragged)

    rows = KernelCall(
        prepare_rows,
        (-(-g.longest[0] // tiles.queries), g.heads, g.sequences),
        {
            **dict.fromkeys(("out", "dout"), Pointer(g.dtype)),
            **{"lse": floats, "rows": floats, "dq": sums, "starts_q": starts},
            **{"dlse": floats if lse_grad else None, **tilts},
            "claims": Pointer(torch.int32) if claimed else None,
            **dict(zip(("out_batch", "out_head", "out_row"), out_strides, strict=False)),
            **dict(zip(("dout_batch", "dout_head", "dout_row"), dout_strides, strict=False)),
            **dict(zip(("lse_batch", "lse_head"), lse_strides, strict=False)),
            **{"heads": g.heads, "seq_q": seq_q, "tiles": many, "lse_scale": lse_scale},
        },
        {
            **{"BM": tiles.queries, "D": size, "DIM": g.v.shape[3], "DQ": atomic, "RAGGED": ragged},
            **{"ALIBI": g.slopes is not None, "DLSE": lse_grad, "CLAIMS": claimed},
        },
        {"num_warps": 8},
    )
    rule = {
        "LEFT": g.rules.left is not None,
        "RIGHT": g.rules.right is not None,
        "CAPPED": g.rules.softcap != 0,
        "ALIBI": g.slopes is not None,
        "RAGGED": ragged,
        "GROUP": g.group,
    }
    cut = ragged or g.rules.is_cut
    common = {
        **{
            "starts_q": starts,
            "starts_k": starts,
            "heads": g.heads,
            "seq_q": seq_q,
            "seq_k": seq_k,
            "tiles_a_head": many,
        },
        **{
            "left": g.rules.left or 0,
            "right": g.rules.right or 0,
            "scale": float(g.rules.scale),
            "scale_log2": log2s[0],
            "cap_log2": log2s[1],
        },
        **tilts,
    }
    of_rows = TensorBox(
        torch.float32,
        (2 * in_all, tiles.queries),
        (tiles.queries, 1),
        (2, tiles.queries),
        gl.NVMMASharedLayout(0, 32, 2),
    )
    options = {"num_warps": 4, "maxnreg": 168}
    key_tiles = -(-g.longest[1] // tiles.keys)
    seen = g.longest[0] if g.rules.left is None else min(g.longest[0], g.rules.left + tiles.keys)
    steps = g.group * -(-seen // tiles.queries)
    split = _split(g, key_tiles * g.k.shape[1] * g.sequences, steps, processors)
    dk, dv = (_parts(x, split) for x in (g.k, g.v))
    longest_first = g.rules.right is not None and g.rules.left is None
    together = [
        _at_once(heads) if longest_first else 1 for heads in (split * g.k.shape[1], g.heads)
    ]
    keys = KernelCall(
        backward_wide if wide else backward_keys,
        _grid(key_tiles, split * g.k.shape[1], g.sequences, together[0]),
        {
            **{
                "q_desc": boxes(g.q, tiles.queries),
                "k_desc": boxes(g.k, 64),
                "v_desc": value_boxes(g.v, 64),
            },
            **{"do_desc": value_boxes(dout, tiles.queries), "rows_desc": of_rows},
            **{"dk_desc": boxes(dk, 64), "dv_desc": value_boxes(dv, 64)},
            **({} if wide else {"dq": sums}),
            **common,
            "at_once": together[0],
        },
        {
            **{
                "BM": tiles.queries,
                "D": size,
                "STAGES": 2,
                "ROTATE": not cut,
                "MASKED": cut or seq_k % tiles.keys != 0,
            },
            **({"DV": value_size} if wide else {"ATOMIC": atomic}),
            **rule,
            **{"GROUP": g.group // split, "SPLIT": split},
        },
        options,
    )
    queries = KernelCall(
        backward_queries,
        _grid(-(-g.longest[0] // 128), g.heads, g.sequences, together[1]),
        {
            **{
                "q_desc": boxes(g.q, 64),
                "k_desc": boxes(g.k, tiles.keys_of_dq),
                "v_desc": value_boxes(g.v, tiles.keys_of_dq),
            },
            **{"do_desc": value_boxes(dout, 64), "dq_desc": boxes(g.q.like(), 64), "rows": floats},
            **common,
            "at_once": together[1],
        },
        {
            **{
                "BN": tiles.keys_of_dq,
                "D": size,
                "DV": value_size,
                "K_STAGES": 2,
                "V_STAGES": tiles.stages_of_v,
                "TILE": tiles.queries,
            },
            **{"MASKED": cut or seq_k % 128 != 0},
            **rule,
        },
        options,
    )
    if claimed:
        keys, queries = _claimed_calls(g, keys, queries, split, processors)
    rounding = KernelCall(
        backward_sums,
        (-(-g.longest[0] // 64), g.heads, g.sequences),
        {
            "dq_desc": boxes(g.q.like(), 64),
            "sums": sums,
            **{n: common[n] for n in ("starts_q", "heads", "seq_q", "tiles_a_head", "scale")},
        },
        {"D": size, "TILE": tiles.queries, "RAGGED": ragged},
        {"num_warps": 4},
    )
    rows_size = in_all * tiles.queries
    return Kernels(
        rows,
        keys,
        rounding if atomic else queries,
        2 * rows_size,
        rows_size * size if atomic else 0,
        split,
        claimed,
    )


def _claimed_calls(
    g: Geometry, keys: KernelCall, queries: KernelCall, split: int, processors: int
) -> tuple[KernelCall, KernelCall]:
    """Return the calls of the kernels whose CTAs stay, with the arguments of those that do not."""

    adds = keys.constants["ATOMIC"]

    def stay(kernel: object, call: KernelCall, size: int, heads: int) -> KernelCall:
        row_tiles = -(-size // 128)
        tiles = row_tiles * heads * g.sequences
        arguments: dict[str, Argument] = {
            **{name: x for name, x in call.arguments.items() if name not in NOT_CLAIMED},
            **{"claims": Pointer(torch.int32, False), "sequences": g.sequences},
            **{"tiles": tiles, "row_tiles": row_tiles},
            "group": max(1, heads_at_once(g, row_tiles, processors) * heads // g.heads),
        }
        constants = {name: x for name, x in call.constants.items() if name not in NOT_CLAIMED}
        padded = constants["D"] == 128 and g.head_dim <= NARROW and not adds
        return KernelCall(
            kernel,
            min(tiles, processors),
            arguments,
            {
                **constants,
                "DEPTH": NARROW if padded else constants["D"],
                "COUNT": tiles > processors and g.rules.is_cut,
            },
            {"num_warps": 4, "maxnreg": 168, "launch_pdl": 1},
        )

    kv_heads = g.k.shape[1] * split
    keys = replace(keys, arguments={**keys.arguments, "kv_heads": kv_heads})
    stages = {**queries.constants, "STAGES": queries.constants["K_STAGES"]}
    return (
        stay(backward_keys_claimed, keys, g.k.shape[2], kv_heads),
        stay(backward_queries_claimed, replace(queries, constants=stages), g.q.shape[2], g.heads),
    )


def _at_once(heads: int) -> int:
    return next(n for n in range(min(AT_ONCE, heads), 0, -1) if heads % n == 0)


def _grid(tiles: int, heads: int, sequences: int, at_once: int) -> tuple[int, int, int]:
    """Return the grid that `backward_tiles.own_tile` reads."""
    return tiles * at_once, heads // at_once, sequences


def _new_parts(x: Tensor, split: int) -> Tensor:
    return x.new_empty(_parts(Layout(tuple(x.shape), x.stride()), split).shape)


def _parts(x: Layout, split: int) -> Layout:
    """Return the layout of the parts of a gradient, or of the gradient itself if it has one."""
    if split == 1:
        return x.like()
    batch, heads, length, dim = x.shape
    return Layout.contiguous((batch, heads * split, length, dim))
