"""Plan attention of a few queries once for each kind of problem, then launch it quickly."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from triton import cdiv

from gpudeck.accel.attention.kernels.decoding import latent
from gpudeck.accel.attention.kernels.decoding.kernel import decode
from gpudeck.accel.attention.kernels.decoding.splits import split
from gpudeck.accel.attention.kernels.geometry import Target, name_strides, target_of
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.runtime.call import ALIGNMENT, KernelCall, Pointer
from gpudeck.accel.runtime.launch import Launch, prepare

_MOST_ROWS = 64
"""Rows of a tile: all rows that share a key head, or this many."""
_BATCHES = (1, 64, 1024)
"""Numbers of sequences of different lengths that kernels are compiled for."""
_HELD = 2048
"""Numbers of partial results that a program holds at once while it combines them."""
_AHEAD = 4
"""So many times as many are on their way, unless one part alone is more than these."""
_COUNTERS = 1 << 20
_Shape = tuple[int, ...]


class Tile(NamedTuple):
    """Describe the work of one program at once."""

    keys: int
    warps: int
    stages: int
    """Tiles of keys that are on their way at once; in pages, twice as many less one, since the
    numbers of pages are on their way before."""
    fewest: int
    """The least number of tiles of a part."""


class Class(NamedTuple):
    """Group the problems that have the same tile."""

    width: Literal["small", "narrow", "wide", "widest", "latent"]
    """Head sizes below 128, 128, up to 256, up to 512, and MLA."""
    paged: bool
    quantized: bool


TILES: dict[Class, Tile] = {
    Class("small", False, False): Tile(64, 2, 4, 2),
    Class("narrow", False, False): Tile(128, 4, 3, 1),
    Class("wide", False, False): Tile(64, 4, 3, 2),
    Class("widest", False, False): Tile(32, 8, 3, 2),
    Class("latent", False, False): Tile(64, 8, 2, 2),
    Class("small", True, False): Tile(64, 2, 5, 2),
    Class("narrow", True, False): Tile(64, 2, 5, 2),
    Class("wide", True, False): Tile(32, 4, 3, 2),
    Class("widest", True, False): Tile(16, 8, 3, 2),
    Class("latent", True, False): Tile(64, 8, 2, 2),
    Class("small", True, True): Tile(128, 4, 5, 1),
    Class("narrow", True, True): Tile(128, 4, 5, 1),
    Class("wide", True, True): Tile(64, 4, 5, 2),
    Class("widest", True, True): Tile(32, 8, 3, 2),
}
"""For sm_90, the fastest measured on an H200 (results/attention_decoding.csv)."""
_SMALLER = {
    "small": Tile(64, 4, 3, 2), "narrow": Tile(64, 4, 2, 2), "wide": Tile(32, 4, 2, 2),
    "widest": Tile(16, 8, 2, 4), "latent": Tile(16, 8, 2, 4),
}  # fmt: skip
"""For GPUs with less shared memory; not measured."""
_GUESS = 3
"""Programs that a multiprocessor runs at once, until the kernel is compiled."""


def class_of(kind: Kind) -> Class:
    """Return the class of a problem."""
    size = kind.q[3]
    width: Any = "small" if size < 128 else "narrow" if size == 128 else "wide"
    if size > 256:
        width = "widest" if kind.values == size else "latent"
    return Class(width, kind.table_width > 0, kind.scale_strides is not None)


def tile_for(kind: Kind, target: Target) -> Tile:
    """Return the tile of a problem."""
    known = class_of(kind)
    if target.capability not in (90, 100):
        return _SMALLER[known.width]
    return TILES.get(known) or TILES[known._replace(paged=True)]


class Kind(NamedTuple):
    """Hold everything about a call except its data: the key of a plan."""

    q: _Shape
    """[B, H, Sq, D]"""
    q_strides: _Shape
    k: _Shape
    """[B, Hkv, Sk, D]; paged: [pages, Hkv, positions of a page, D]"""
    k_strides: _Shape
    v_strides: _Shape
    values: int
    """The head size of the values; another one than D if they are a part of the keys."""
    scale_strides: _Shape | None
    dtype: torch.dtype
    kept: torch.dtype
    """The type of keys and values."""
    aligned: bool
    device: torch.device
    rules: Rules
    """Without a window after a query's own position: `right` is 0 or None."""
    table_width: int
    """0: keys are not in pages."""
    counted: torch.dtype | None
    """The type of the lengths, if sequences have lengths of their own."""
    more: int
    chosen_rows: bool
    wants_lse: bool


class Plan(NamedTuple):
    """Hold what a launch needs, and the sizes of the memory it works in."""

    call: KernelCall
    partial: int
    """Elements; 0 if keys are not split."""
    sums: int
    counters: int


def plan_of(kind: Kind, target: Target, tile: Tile | None = None, programs: int = _GUESS) -> Plan:
    """Return what is launched for a kind of problem.

    Args:
        tile: another tile than that of `tile_for`.
        programs: how many of the kernel's programs a multiprocessor runs at once.
    """
    batch, heads, queries, size = kind.q
    kv_heads, rules = kind.k[1], kind.rules
    group = heads // kv_heads
    # Up to 128, one vector with empty places is faster than two without: on an H200, 80 by 13 %
    # and 96 by 7 %.
    main = max(16, _power(size) if 64 < size < 128 else 1 << (size.bit_length() - 1))
    rest = 0 if size <= main else max(16, _power(size - main))
    values_rest = 0 if kind.values <= main else rest
    rows = min(_MOST_ROWS, max(16, _power(queries * group)))
    tiles = cdiv(queries * group, rows)
    real = min(rows, _power(queries * group))
    tile = tile or tile_for(kind, target)
    units, slots = kv_heads * tiles, target.processors * programs
    dynamic = kind.counted is not None
    if dynamic:
        if slots < 2 * batch * units < 4 * slots:
            slots *= 4  # programs that follow one another: smaller parts end closer together
        splits, parts = 1, batch + cdiv(slots, units)
    else:
        length = kind.k[2] if rules.left is None else min(kind.k[2], rules.left + queries)
        splits = split(batch * units, cdiv(length, tile.keys), slots, tile.fewest)
        parts = batch * splits
    joined = dynamic or splits > 1
    index = None if kind.counted is None else Pointer(kind.counted, False)
    number = Pointer(torch.int32, False)
    scaled = kind.scale_strides is not None
    kept, wide = Pointer(kind.kept, kind.aligned), Pointer(torch.float32)
    arguments: dict[str, Any] = {
        "q_ptr": Pointer(kind.dtype, kind.aligned), "k_ptr": kept, "v_ptr": kept,
        "k_scales_ptr": Pointer(torch.float32, False) if scaled else None,
        "v_scales_ptr": Pointer(torch.float32, False) if scaled else None,
        "tables_ptr": number if kind.table_width else None,
        "rows_ptr": number if kind.chosen_rows else None, "lengths_ptr": index,
        "out_ptr": Pointer(kind.dtype), "lse_ptr": wide if kind.wants_lse else None,
        "partial_ptr": wide if joined else None, "sums_ptr": wide if joined else None,
        "arrived_ptr": Pointer(torch.int32) if joined else None,
        **name_strides("q", "bhm", kind.q_strides), **name_strides("k", "bhn", kind.k_strides),
        **name_strides("v", "bhn", kind.v_strides),
        **name_strides("s", "bhn", kind.scale_strides or (0, 0, 0)),
        **name_strides("o", "bhm", _out_strides(kind)),
        "batch": batch, "more": kind.more, "keys": kind.k[2], "table_width": kind.table_width,
        "splits": splits, "slots": slots, "left": rules.left or 0,
        "qk_scale": rules.factor, "softcap": rules.softcap,
    }  # fmt: skip
    constants = {
        "QUERIES": queries, "GROUP": group, "ROWS": rows, "REAL": real, "TILES": tiles,
        "SIZE": size, "VALUES": kind.values, "MAIN": main, "REST": rest, "VREST": values_rest,
        "TILE": tile.keys, "PAGE": kind.k[2] if kind.table_width else 0,
        "SHARED": kind.values != size, "CAUSAL": rules.right == 0, "LEFT": rules.left is not None,
        "SOFTCAP": rules.softcap > 0, "DYNAMIC": dynamic, "JOINED": joined,
        "BATCH": next(most for most in _BATCHES if most >= batch) if dynamic else 0,
        "FEWEST": tile.fewest, "PARTS": max(1, min(64, _HELD // (real * main))),
        "AHEAD": _AHEAD if real * main <= _HELD else 1,
        "ALIKE": kind.k_strides == kind.v_strides, "FAR": _far(kind), "QUANTIZED": scaled,
        "QUARTETS": scaled and _in_quartets(kind, target),
        "EARLY": target.capability >= 90,
    }  # fmt: skip
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    if target.capability >= 90:
        options["launch_pdl"] = 1
    call = KernelCall(decode, (parts, units, 1), arguments, constants, options)
    if not joined:
        return Plan(call, 0, 0, 0)
    made = parts * units * real
    return Plan(call, made * kind.values, made * 2, -(-batch * units // 4) * 4)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rules: Rules,
    *,
    scales: tuple[Tensor, Tensor] | None = None,
    tables: Tensor | None = None,
    lengths: Tensor | None = None,
    more: int = 0,
    rows: Tensor | None = None,
    wants_lse: bool = False,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attend with a few queries of each sequence, which stand at its end.

    Shapes: q [B, H, Sq, D] with Sq up to 16, in float16, bfloat16 or float32; k and v [B, Hkv, Sk,
    D], or with `tables` [pages, Hkv, positions, D], in the type of q, or in float8_e4m3fn or int8
    with scales; any strides, but elements of a head are contiguous. v may be the first dimensions
    of k (MLA). Nothing is checked.

    Args:
        rules: which keys are seen, and how scores are made; `right` is 0 or None.
        scales: float32 [B, Hkv, Sk] (or as the pages are) of the vectors of k and of v, with the
            same strides.
        tables: int32 [n, pages of a sequence], contiguous: the pages of each sequence.
        lengths: int32 or int64 [B]: the keys of each sequence; required with tables.
        more: is added to the lengths.
        rows: int32 [B]: the row of each sequence in `tables`; without, they have the same order.
        wants_lse: compute the logarithm of each row's sum of exponentials.
        tile: another tile than that of `tile_for`.

    Returns:
        The output like q, with the head size of v, and the logarithms [B, H, Sq] or None. A query
        that sees no key gives 0 and -inf.
    """
    known = (q, k, v)
    kind = Kind(
        tuple(q.shape), q.stride()[:3], tuple(k.shape), k.stride()[:3], v.stride()[:3], v.shape[3],
        None if scales is None else scales[0].stride(), q.dtype, k.dtype,
        all(tensor.data_ptr() % ALIGNMENT == 0 for tensor in known), q.device, rules,
        0 if tables is None else tables.shape[1],
        None if lengths is None else lengths.dtype, more, rows is not None, wants_lse,
    )  # fmt: skip
    out = torch.empty_strided(
        (*q.shape[:3], kind.values), (*_out_strides(kind), 1), dtype=q.dtype, device=q.device
    )
    lse = q.new_empty(q.shape[:3], dtype=torch.float32) if wants_lse else None
    if kind.values != q.shape[3] and tile is None and latent.takes(kind):
        latent.attend(q, k, out, lse, kind)
        return out, lse
    plan, launch = _prepare(kind, tile)
    work: tuple[Tensor, ...] = ()
    if plan.counters:
        work = (
            q.new_empty(plan.partial, dtype=torch.float32),
            q.new_empty(plan.sums, dtype=torch.float32),
            _counters(q.device, plan.counters),
        )
    given = (*known, *(scales or ()), tables, rows, lengths, out, lse, *work)
    launch(*(tensor for tensor in given if tensor is not None))
    return out, lse


@lru_cache(maxsize=4096)
def _prepare(kind: Kind, tile: Tile | None) -> tuple[Plan, Any]:
    target = target_of(kind.device)
    plan = plan_of(kind, target, tile)
    launch = prepare(plan.call, kind.device)
    if isinstance(launch, Launch) and launch.per_processor != _GUESS:
        plan = plan_of(kind, target, tile, launch.per_processor)
        launch = prepare(plan.call, kind.device)
    return plan, launch


class _Ring:
    """Hold counters that are 0 between launches, and give each launch some of its own.

    A launch gets those that were not used for the longest time, so that launches that run at once,
    on several streams or in graphs, do not share any.
    """

    def __init__(self, device: torch.device) -> None:
        self._counters = torch.zeros(_COUNTERS, dtype=torch.int32, device=device)
        self._next = 0

    def take(self, count: int) -> Tensor:
        if self._next + count > _COUNTERS:
            self._next = 0
        first, self._next = self._next, self._next + count
        return self._counters[first : first + count]


_RINGS: dict[torch.device, _Ring] = {}


def _counters(device: torch.device, count: int) -> Tensor:
    ring = _RINGS.get(device)
    if ring is not None and count <= _COUNTERS:
        return ring.take(count)
    if count > _COUNTERS or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
        return torch.zeros(count, dtype=torch.int32, device=device)  # the graph sets them to 0
    return _RINGS.setdefault(device, _Ring(device)).take(count)


def _out_strides(kind: Kind) -> _Shape:
    """Return the strides of the output: those of torch.empty_like(q) if the head size is its."""
    if kind.values != kind.q[3]:
        return torch.empty(*kind.q[:3], kind.values, device="meta").stride()[:3]
    like = torch.empty_strided(kind.q, (*kind.q_strides, 1), device="meta")
    return torch.empty_like(like).stride()[:3]


def _far(kind: Kind) -> bool:
    """Return whether the elements of keys or values are more than 2^31 apart."""
    pages = kind.k[0] if kind.table_width else 1
    return any(
        pages * strides[0] * (kind.table_width > 0) + kind.k[2] * strides[2] >= 1 << 31
        for strides in (kind.k_strides, kind.v_strides)
    )


def _in_quartets(kind: Kind, target: Target) -> bool:
    """Return whether instructions of this GPU convert the numbers of a cache four at once."""
    whole = all(n % 4 == 0 for n in (kind.q[3], *kind.k_strides, *kind.v_strides))
    offers = kind.kept == torch.int8 or target.capability >= 89
    return whole and offers and kind.aligned and kind.device.type == "cuda"


def _power(number: int) -> int:
    """Return the smallest power of two that is not smaller."""
    return 1 << (number - 1).bit_length()
