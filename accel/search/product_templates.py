"""Offer our portable kernel of matrix products to the search: its tiles are its space.

What is tried first is the tile that the kernel chooses itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.search.space import Config, Space
from gpudeck.accel.search.tasks import Sizes
from gpudeck.accel.search.templates import Template, here
from gpudeck.accel.search.verdict import Source

_SIDES = (16, 32, 64, 128, 256)
_TILE = {
    "m": _SIDES, "n": _SIDES, "k": (16, 32, 64, 128), "warps": (4, 8), "stages": (2, 3, 4, 5),
    "splits": (1, 2, 4, 8, 16, 32),
}  # fmt: skip
_FEWEST, _MOST = 8, 128
"""Sums that a thread holds."""
_WAVES = 4
"""Parts of k are for products with too few tiles to give each multiprocessor so many programs."""


def product_template(task: str, dtype: torch.dtype, sizes: Sizes) -> Template:
    """Return the template of products for GPUs with at least the capability 8.0."""
    from gpudeck.accel.primitives.gemm.portable import FEW_ROWS, tiles

    given = {"dtype": str(dtype).removeprefix("torch."), "sizes": dict(sizes)}
    target, rows = here(), sizes["rows"]
    usual = tiles(_operands(dtype, sizes).problem, target.processors)._asdict()
    swapped = int(rows <= FEW_ROWS)
    down, right = (sizes["columns"], rows) if swapped else (rows, sizes["columns"])

    def fits(config: Config) -> bool:
        sums = config["m"] * config["n"] / (32 * config["warps"])
        programs = -(-down // config["m"]) * -(-right // config["n"]) * config["splits"]
        whole = config["splits"] == 1
        parts = whole or (
            programs <= _WAVES * target.processors
            and config["splits"] * config["k"] <= sizes["inner"]
        )
        return _FEWEST <= sums <= _MOST and parts

    space = Space({**_TILE, "swapped": (swapped,)}, fits)
    first = {name: int(value) for name, value in usual.items()}
    return Template(
        "product tiles", space, lambda c: Source(__name__, "run_product", {"config": c}),
        lambda c: Source(__name__, "product_calls", {**given, "config": c}),
        (first,) if space.holds(first) else (),
    )  # fmt: skip


def run_product(config: Config) -> Callable[..., Tensor]:
    """Return the product of two matrices with a tile; kernels are compiled for each shape."""
    from gpudeck.accel.runtime.launch import prepare

    launches: dict[object, list[Callable[..., None]]] = {}

    def call(x: Tensor, y: Tensor) -> Tensor:
        (rows, inner), columns = x.shape, y.shape[1]
        at = (rows, inner, columns, x.dtype, x.device)
        if at not in launches:
            sizes = {"rows": rows, "inner": inner, "columns": columns}
            calls = product_calls(str(x.dtype).removeprefix("torch."), sizes, config)
            launches[at] = [prepare(c, x.device) for c in calls]
        multiply, *add = launches[at]
        both = (y, x) if config["swapped"] else (x, y)
        out = x.new_empty(rows, columns)
        if not add:
            multiply(*both, out)
            return out
        parts = x.new_empty(config["splits"], rows, columns, dtype=torch.float32)
        multiply(*both, parts)
        add[0](parts, out)
        return out

    return call


def product_calls(dtype: str, sizes: Sizes, config: Config) -> Any:
    """Return the launches of a product, before there are tensors: that of the product, and with
    splits that which adds the parts."""
    from gpudeck.accel.primitives.gemm.portable import Tiles, calls

    tile = Tiles(**{**config, "swapped": bool(config["swapped"])})  # type: ignore[arg-type]
    return calls(_operands(getattr(torch, dtype), sizes), tile)


def _operands(dtype: torch.dtype, sizes: Sizes) -> Any:
    """Return the operands of a product of contiguous matrices, without memory."""
    from gpudeck.accel.primitives.gemm.operands import Operands
    from gpudeck.accel.primitives.gemm.problem import Problem

    rows, inner, columns = sizes["rows"], sizes["inner"], sizes["columns"]
    device = torch.device("meta")
    a = torch.empty(1, rows, inner, dtype=dtype, device=device)
    b = torch.empty(1, inner, columns, dtype=dtype, device=device)
    capability = divmod(here().capability, 10)
    problem = Problem(1, rows, columns, inner, dtype, dtype, device, capability, b_along=False)
    return Operands(a, b, None, None, None, problem, (rows, columns))
