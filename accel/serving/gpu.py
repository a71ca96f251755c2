"""Compute the parts of a transformer on a GPU, by the kernels of `gpu_kernels`; see `backend`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention.kernels.decoding.plan import attend as attend_keys
from gpudeck.accel.attention.kernels.geometry import target_of
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.primitives.gemm.int4 import int4_gemm
from gpudeck.accel.serving import eight_bits
from gpudeck.accel.serving import gpu_kernels as kernels
from gpudeck.accel.serving.batch import Batch
from gpudeck.accel.serving.cache import PagedCache, Place
from gpudeck.accel.serving.families import Config
from gpudeck.accel.serving.launches import launch
from gpudeck.accel.serving.linear import FP8_BLOCK, Heads, Linear, Norm
from gpudeck.accel.serving.memory import BLOCK

FEW = 64
"""The most tokens that a quantized matrix is multiplied with as it is; for more it is converted."""
_FORMATS = {"dense": 0, "int8": 1, "fp8": 2}


class Tile(NamedTuple):
    """Describe what one program of `multiply_one` computes at once."""

    rows: int
    depth: int
    """Numbers of a row."""
    warps: int
    lanes: int
    """Neighbours that a thread multiplies at once."""


class Kept(NamedTuple):
    """Describe what one program computes at once that keeps the whole vector in registers."""

    rows: int
    warps: int
    resident: int
    """Programs of a multiprocessor."""


ONE: dict[str, Tile] = {
    "dense": Tile(2, 2048, 4, 8),
    "int8": Tile(4, 2048, 4, 16),
    "fp8": Tile(4, 2048, 4, 16),
}
"""By the format of the matrix: the fastest measured on an H200 (results/serving.csv)."""
PROGRAMS = 528
"""Programs that keep a large GPU busy: a matrix of fewer rows is computed with smaller tiles."""
PROMPT_ROWS = 128
"""Queries of all heads of a key head that are attended with at once."""


def multiply(
    linear: Linear,
    x: Tensor,
    norm: Norm | None = None,
    add: Tensor | None = None,
    precise: bool = False,
) -> Tensor:
    """Return x [T, K], normalized if asked, times the matrix, plus bias and `add`: [T, N]."""
    dtype = torch.float32 if precise else x.dtype
    if _reads_once(linear, x):
        out = x.new_empty(1, linear.shape[0], dtype=dtype)
        given = {"add": add, "out": out, "half": 0}
        _one("one", linear, x, norm, given, {"ADDS": add is not None, "GATE": None})
        return out
    inner = x if norm is None else normalized(x, norm)
    if linear.format == "int4":
        made = int4_gemm(inner, linear.int4, bias=linear.bias)
    elif linear.format == "dense" or len(x) > FEW:
        weight = linear.dense(x.dtype)
        if add is not None and linear.bias is None:
            return torch.addmm(add, inner, weight.T).to(dtype)
        bias = None if linear.bias is None else linear.bias.to(x.dtype)
        made = torch.nn.functional.linear(inner, weight, bias)
    else:
        made = _few(linear, inner)
    return (made if add is None else made + add).to(dtype)


def _reads_once(linear: Linear, x: Tensor) -> bool:
    """Return True if the kernels for one vector take these."""
    return len(x) == 1 and linear.format != "int4"


def _few(linear: Linear, x: Tensor) -> Tensor:
    """Multiply at most FEW vectors with a quantized matrix."""
    rows, depth = linear.shape
    out = x.new_empty(len(x), rows)
    groups = 1 if linear.scales is None or linear.scales.dim() == 1 else linear.scales.shape[1]
    tokens = 16 if len(x) <= 16 else 32 if len(x) <= 32 else 64
    launch(
        kernels.multiply_few, (-(-rows // 64), -(-len(x) // tokens), 1),
        {"weights": linear.values, "scales": linear.scales, "bias": linear.bias,
         "x": x.contiguous(), "out": out, "tokens": len(x), "rows": rows, "depth": depth,
         "groups": groups},
        {"FORMAT": _FORMATS[linear.format], "BIASED": linear.bias is not None, "TOKENS": tokens,
         "ROWS": 64, "DEPTH": FP8_BLOCK},
        stages=3,
    )  # fmt: skip
    return out


def kept_for(kind: str, depth: int) -> Kept | None:
    """Return how programs that keep a vector of this length work; None: they had better not.

    As measured on an H200 (results/serving.csv): a vector of 4,096 is too long.
    """
    return Kept(2, 4, 6) if kind == "dense" and depth <= 2048 else None


def _one(
    which: str,
    linear: Linear,
    x: Tensor,
    norm: Norm | None,
    given: dict[str, Any],
    constants: dict[str, object],
) -> None:
    """Launch a kernel for one vector, `one` or `heads`, with what only this one takes."""
    rows, depth = linear.shape
    kept = kept_for(linear.format, depth)
    if norm is not None and kept is None:
        x, norm = normalized(x, norm), None
    given |= {
        "scales": linear.scales, "bias": linear.bias, "x": x.contiguous(), "rows": rows,
    }  # fmt: skip
    constants |= {"BIASED": linear.bias is not None}
    if x.is_cuda and eight_bits.can(linear, target_of(x.device).capability):
        eight_bits.launch_one(which, linear, given, constants)
        return
    groups = linear.scales.shape[1] if linear.scales is not None and linear.format == "fp8" else 1
    given |= {
        "weights": linear.values, "depth": depth, "groups": groups,
        "norm": None if norm is None else norm.weight, "eps": 0.0 if norm is None else norm.eps,
    }  # fmt: skip
    tile = ONE[linear.format]
    if kept is not None:
        tile = Tile(kept.rows, _power(depth), kept.warps, tile.lanes)
        tiles = -(-rows // tile.rows)
        turns = -(-tiles // (target_of(x.device).processors * kept.resident))
        programs = -(-tiles // turns)
    else:
        while tile.rows > 2 and rows // tile.rows < PROGRAMS and 2 * tile.depth <= depth:
            tile = tile._replace(rows=tile.rows // 2, depth=tile.depth * 2)
        programs = -(-rows // tile.rows)
    constants |= {
        "FORMAT": _FORMATS[linear.format], "ROWS": tile.rows, "DEPTH": tile.depth,
        "LANES": tile.lanes, "NORMED": norm is not None, "HELD": kept is not None,
    }  # fmt: skip
    kernel = kernels.multiply_one if which == "one" else kernels.multiply_heads
    launch(kernel, (programs, 1, 1), given, constants, tile.warps, stages=1)


def normalized(x: Tensor, norm: Norm) -> Tensor:
    """Return the rows of x [..., C] divided by their root mean square, times the weight."""
    out, width = torch.empty_like(x), x.shape[-1]
    wide = _power(width)
    launch(
        kernels.norm_rows, (x.numel() // width, 1, 1),
        {"x": x.contiguous(), "weight": norm.weight, "out": out, "width": width, "eps": norm.eps},
        {"WIDE": wide}, 8 if wide > 2048 else 4,
    )  # fmt: skip
    return out


def gated(linear: Linear, x: Tensor, norm: Norm | None, activation: str) -> Tensor:
    """Return act(gate) * up for x [T, K], normalized if asked, of a gate and an up."""
    width, gelu = linear.shape[0] // 2, activation == "gelu_tanh"
    out = x.new_empty(len(x), width)
    if _reads_once(linear, x):
        given = {"add": None, "out": out, "half": width}
        _one("one", linear, x, norm, given, {"ADDS": False, "GATE": "gelu" if gelu else "silu"})
        return out
    both = multiply(linear, x, norm)
    wide = min(1024, _power(width))
    launch(
        kernels.gate_rows, (len(x), -(-width // wide), 1),
        {"x": both, "out": out, "width": width}, {"GELU": gelu, "WIDE": wide},
    )  # fmt: skip
    return out


def queries(linear: Linear, x: Tensor, norm: Norm | None, heads: Heads, place: Place) -> Tensor:
    """Return the queries, and store keys and values; see `Backend.queries`."""
    size, turn, cache = linear.shape[0] // heads.every, place.turn, place.cache
    half = 0 if turn is None else turn[0].shape[1]
    q = x.new_empty(len(x), heads.queries, size)
    whole = cache.scales is None and heads.norms is None and size % 2 == 0
    if whole and half in (0, size // 2) and _reads_once(linear, x):
        given = {
            "cos": turn and turn[0], "sin": turn and turn[1], "slots": place.slots, "q": q,
            "keys": cache.values[place.layer][0], "values": cache.values[place.layer][1],
            "heads": heads.queries, "kv_heads": heads.keys,
        }  # fmt: skip
        _one("heads", linear, x, norm, given, {"TURNED": half > 0, "HALF": size // 2})
        return q
    qkv = multiply(linear, x, norm)
    if heads.value_norm is not None and heads.keys:
        values = qkv.view(len(x), heads.every, size)[:, -heads.keys :]
        values.copy_(normalized(values.contiguous(), heads.value_norm))
    turn_and_store(qkv, q, heads, place)
    return q


def turn_and_store(qkv: Tensor, q: Tensor, heads: Heads, place: Place) -> None:
    """Normalize and rotate queries and keys; write the queries, and store keys and values."""
    size, (turn, slots, cache, layer) = q.shape[2], place
    half = 0 if turn is None else turn[0].shape[1]
    keys, values = cache.values[layer]
    scales = (None, None) if cache.scales is None else tuple(cache.scales[layer])
    most = 0.0 if cache.scales is None else 127.0 if keys.dtype == torch.int8 else 448.0
    norms = heads.norms
    arguments = {
        "qkv": qkv, "cos": turn and turn[0], "sin": turn and turn[1],
        "query_norm": norms and norms[0].weight, "key_norm": norms and norms[1].weight,
        "slots": slots, "q": q, "keys": keys, "values": values, "key_scales": scales[0],
        "value_scales": scales[1], "heads": heads.queries, "kv_heads": heads.keys,
        "eps": 0.0 if norms is None else norms[0].eps,
    }  # fmt: skip
    constants = {
        "D": size, "HALF": half, "WIDE": _power(max(half, 1)),
        "REST": _power(max(size - 2 * half, 1)), "NORMS": norms is not None, "MOST": most,
        "ROUNDS": keys.dtype == torch.int8,
    }  # fmt: skip
    launch(kernels.turn_and_store, (len(q), heads.every, 1), arguments, constants, 1)


def attend_few(
    q: Tensor,
    layer: int,
    tables: Tensor,
    rows: Tensor,
    positions: Tensor,
    cache: PagedCache,
    window: int,
    scale: float,
    softcap: float,
) -> Tensor:
    """Return what each query [T, H, D] finds in the paged keys and values of its sequence."""

    def paged(part: Tensor) -> Tensor:
        return part.view(-1, BLOCK, *part.shape[1:]).transpose(1, 2)

    keys, values = cache.values[layer]
    scales = None
    if cache.scales is not None:
        scales = (paged(cache.scales[layer][0]), paged(cache.scales[layer][1]))
    rules = Rules(window - 1 if window else None, None, scale, softcap)
    out, _ = attend_keys(
        q.unsqueeze(2), paged(keys), paged(values), rules, scales=scales, tables=tables, rows=rows,
        lengths=positions, more=1,
    )  # fmt: skip
    return out.squeeze(2)


def attend_prompts(
    q: Tensor, layer: int, batch: Batch, cache: PagedCache, config: Config, out: Tensor
) -> None:
    """Write what the queries of prompts [T, H, D] find, of all sequences in one launch."""
    kv_heads, size = cache.values[layer].shape[2:]
    group = q.shape[1] // kv_heads
    padded, wide = _power(group), max(16, _power(size))
    queries = max(1, PROMPT_ROWS // (padded * max(1, wide // 128)))
    tiles = batch.tiles(queries)
    scales = (None, None) if cache.scales is None else tuple(cache.scales[layer])
    arguments = {
        "q": q, "keys": cache.values[layer][0], "values": cache.values[layer][1],
        "key_scales": scales[0], "value_scales": scales[1], "tiles": tiles,
        "tables": batch.tables, "out": out, "kv_heads": kv_heads,
        "window": config.windows[layer], "scale": config.attention_scale,
        "softcap": config.attention_softcap,
    }  # fmt: skip
    constants = {
        "BLOCK": BLOCK, "GROUP": group, "PADDED": padded, "QUERIES": queries, "D": size,
        "WIDE": wide, "TILE": 64 if wide <= 256 else 32, "QUANTIZED": cache.scales is not None,
        "CAPPED": config.attention_softcap > 0,
    }  # fmt: skip
    launch(kernels.attend_prompts, (len(tiles), kv_heads, 1), arguments, constants, 8, stages=3)


def attend(q: Tensor, layer: int, batch: Batch, cache: PagedCache, config: Config) -> Tensor:
    """Return what each query finds: those of answers first, which have a few tokens each."""
    few, window = batch.few, config.windows[layer]
    scale, softcap = config.attention_scale, config.attention_softcap
    if few == len(q):
        return attend_few(
            q, layer, batch.tables, batch.rows, batch.positions, cache, window, scale, softcap
        )
    out = torch.empty_like(q)
    if few:
        out[:few] = attend_few(
            q[:few], layer, batch.tables, batch.rows[:few], batch.positions[:few], cache, window,
            scale, softcap,
        )  # fmt: skip
    attend_prompts(q, layer, batch, cache, config, out)
    return out


def _power(number: int) -> int:
    """Return the smallest power of two that is not smaller."""
    return 1 << (number - 1).bit_length()
