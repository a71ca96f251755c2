"""Offer our portable attention kernels to the search: their tiles, warps and stages are its space.

What is tried first is the tile that the kernels choose themselves, so that a search never ends with
a slower one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.search.attention_tasks import GROUP
from gpudeck.accel.search.space import Config, Space
from gpudeck.accel.search.tasks import Sizes
from gpudeck.accel.search.templates import TARGET, Template, here
from gpudeck.accel.search.verdict import Source

_HELD = 200
"""The most elements of a thread: sums and scores; more spill by far, and take long to compile."""
_QUERIES, _KEYS = (16, 32, 64, 128), (16, 32, 64, 128)
_TILE = {"queries": _QUERIES, "keys": _KEYS, "warps": (4, 8), "stages": (1, 2, 3)}
_DECODING = {"keys": _KEYS, "warps": (2, 4, 8), "stages": (2, 3, 4, 5), "least": (1, 2)}
_PASSES = ("kv", "q")
"""The kernel of the gradients of keys and values, and that of queries: each has a tile."""


def attention_template(task: str, dtype: torch.dtype, sizes: Sizes) -> Template:
    """Return the template of one of the tasks of `templates.ATTENTION`, for GPUs with at least the
    capability 8.0."""

    known = {"dtype": str(dtype).removeprefix("torch."), "sizes": dict(sizes)}

    def source(entry: str, given: Mapping[str, Any], config: Config) -> Source:
        return Source(__name__, entry, {**given, "config": config})

    space, usual = {"attention": _tiles, "attention_gradients": _pairs, "decoding": _steps}[task](
        dtype, sizes
    )
    return Template(
        f"{task} tiles", space, lambda c: source(f"run_{task}", {}, c),
        lambda c: source(f"{task}_call", known, c), (usual,) if space.holds(usual) else (),
    )  # fmt: skip


def run_attention(config: Config) -> Callable[..., Tensor]:
    """Return the portable forward pass with a tile."""
    from gpudeck.accel.attention.kernels.portable.forward import plan_run

    def call(*inputs: Tensor) -> Tensor:
        q, k, v = (x[None] for x in inputs)
        out, _ = plan_run(q, k, v, _causal(q.shape[3]), _tile(config))(q, k, v)
        return out[0]

    return call


def run_attention_gradients(config: Config) -> Callable[..., Tensor]:
    """Return the portable forward and backward passes, the latter with two tiles."""
    from gpudeck.accel.attention.kernels.portable.backward import backward
    from gpudeck.accel.attention.kernels.portable.forward import forward

    def call(*inputs: Tensor) -> Tensor:
        q, k, v, dout = (x[None] for x in inputs)
        rules = _causal(q.shape[3])
        out, lse = forward(q, k, v, rules)
        tiles = _tile(_part(config, "kv")), _tile(_part(config, "q"))
        found = backward(dout, q, k, v, out, lse, rules, tiles=tiles)
        stacked = q.new_empty(q.shape[1], 3, q.shape[2] * q.shape[3])
        for number, gradient in enumerate(found[:3]):
            assert gradient is not None
            stacked[:, number].copy_(gradient[0].flatten(1))
        return stacked

    return call


def run_decoding(config: Config) -> Callable[..., Tensor]:
    """Return the decoding step with a tile."""
    from gpudeck.accel.attention.kernels.decoding.plan import attend

    def call(k: Tensor, v: Tensor, q: Tensor) -> Tensor:
        rules = _rules(q.shape[2])
        tile = _decoding_tile(config)
        out, _ = attend(q[:, :, None], k[:, None], v[:, None], rules, tile=tile)
        return out[:, :, 0]

    return call


def attention_call(dtype: str, sizes: Sizes, config: Config) -> Any:
    """Return the launch of the forward pass, before there are tensors."""
    from gpudeck.accel.attention.kernels.geometry import Target
    from gpudeck.accel.attention.kernels.portable.forward import forward_calls

    return forward_calls(_geometry(dtype, sizes), Target(*TARGET), tile=_tile(config)).attend


def attention_gradients_call(dtype: str, sizes: Sizes, config: Config) -> Any:
    """Return the two launches of the backward pass that have tiles."""
    from gpudeck.accel.attention.kernels.geometry import Target
    from gpudeck.accel.attention.kernels.portable.backward import backward_calls

    geometry = _geometry(dtype, sizes)
    tiles = _tile(_part(config, "kv")), _tile(_part(config, "q"))
    strides = geometry.q.strides
    calls = backward_calls(geometry, strides, strides, True, False, Target(*TARGET), tiles=tiles)
    return calls.dk_dv, calls.dq


def decoding_call(dtype: str, sizes: Sizes, config: Config) -> Callable[[int], Any]:
    """Return what returns the launch of a decoding step for a compute capability.

    Since 9.0 the kernel has a part more. What is compiled must be what is launched, or it would be
    compiled again where it is measured.
    """
    from gpudeck.accel.attention.kernels.decoding.plan import plan_of
    from gpudeck.accel.attention.kernels.geometry import Target

    kind, tile = _kind(dtype, sizes), _decoding_tile(config)
    return lambda capability: plan_of(kind, Target(capability, TARGET[1]), tile).call


def _tiles(dtype: torch.dtype, sizes: Sizes) -> tuple[Space, Config]:
    from gpudeck.accel.attention.kernels.portable.tile_sizes import forward_config, pad_width

    width = pad_width(sizes["width"])
    usual = forward_config(here().capability, dtype, width, sizes["tokens"], False)
    return Space(_TILE, lambda c: _holds(c, width)), _config_of(usual)


def _pairs(dtype: torch.dtype, sizes: Sizes) -> tuple[Space, Config]:
    from gpudeck.accel.attention.kernels.portable import tile_sizes

    width, capability = tile_sizes.pad_width(sizes["width"]), here().capability
    usual = {
        "kv": tile_sizes.dk_dv_config(capability, dtype, width, sizes["tokens"], False),
        "q": tile_sizes.dq_config(capability, dtype, width, False),
    }
    choices = {f"{of} {name}": values for of in _PASSES for name, values in _TILE.items()}

    def fits(config: Config) -> bool:
        kv, q = (_part(config, of) for of in _PASSES)
        # one holds two sums for its keys, the other one for its queries
        return _holds(kv | {"queries": kv["keys"], "keys": kv["queries"]}, 2 * width) and _holds(
            q, width
        )

    first = {f"{of} {name}": n for of in _PASSES for name, n in _config_of(usual[of]).items()}
    return Space(choices, fits), first


def _steps(dtype: torch.dtype, sizes: Sizes) -> tuple[Space, Config]:
    from gpudeck.accel.attention.kernels.decoding.plan import tile_for

    usual = tile_for(_kind(str(dtype).removeprefix("torch."), sizes), here())
    first = {
        "keys": usual.keys, "warps": usual.warps, "stages": usual.stages, "least": usual.fewest,
    }  # fmt: skip
    return Space(_DECODING), first


def _holds(tile: Config, width: int) -> bool:
    return tile["queries"] * (width + tile["keys"]) <= _HELD * 32 * tile["warps"]


def _part(config: Config, of: str) -> Config:
    return {name: config[f"{of} {name}"] for name in _TILE}


def _tile(config: Config) -> Any:
    from gpudeck.accel.attention.kernels.portable.tile_sizes import TileConfig

    return TileConfig(config["queries"], config["keys"], config["warps"], config["stages"])


def _config_of(tile: Any) -> Config:
    return dict(zip(_TILE, tile, strict=True))


def _decoding_tile(config: Config) -> Any:
    from gpudeck.accel.attention.kernels.decoding.plan import Tile

    return Tile(config["keys"], config["warps"], config["stages"], config["least"])


def _rules(width: int, right: int | None = None) -> Any:
    from gpudeck.accel.attention.problem import Rules

    return Rules(right=right, scale=width**-0.5)


def _causal(width: int) -> Any:
    return _rules(width, right=0)


def _geometry(dtype: str, sizes: Sizes) -> Any:
    from gpudeck.accel.attention.kernels.geometry import geometry_key, geometry_of

    shape = 1, sizes["heads"], sizes["tokens"], sizes["width"]
    x = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    return geometry_of(geometry_key(x, x, x, _causal(sizes["width"])))


def _kind(dtype: str, sizes: Sizes) -> Any:
    from gpudeck.accel.attention.kernels.decoding.plan import Kind

    width, keys = sizes["width"], sizes["keys"]
    q = torch.empty(sizes["sequences"], GROUP, 1, width, device="meta")
    k = torch.empty(sizes["sequences"], 1, keys, width, device="meta")
    kept = getattr(torch, dtype)
    return Kind(
        tuple(q.shape), q.stride()[:3], tuple(k.shape), k.stride()[:3], k.stride()[:3], width,
        None, kept, kept, True, torch.device("meta"), _rules(width), 0, None, 0, False, False,
    )  # fmt: skip
