"""Run a captured function for one set of shapes, in kernels and in the library."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from gpudeck.accel.runtime import state_files
from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare
from gpudeck.accel.runtime.state_files import state_folder
from gpudeck.accel.search.fusion import split_kernels
from gpudeck.accel.search.fusion.capture import graph_of
from gpudeck.accel.search.fusion.grouping import Step, steps_of
from gpudeck.accel.search.fusion.kernel_text import extras, write_kernel
from gpudeck.accel.search.space import Config
from gpudeck.accel.search.verdict import Source

Make = Callable[[Mapping[fx.Node, Any]], Tensor]
_HALF = torch.float16


class Program:
    """Hold the launches of a function for inputs of certain shapes."""

    def __init__(
        self, source: Source, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype,
        device: torch.device, config: Config,
    ) -> None:  # fmt: skip
        """Plan the steps, and compile the kernels.

        Raises:
            Exception: what torch or Triton raise if the shapes do not fit or cannot be compiled.
        """
        graph = graph_of(source, shapes, dtype)
        self._inputs = [n for n in graph.nodes if n.op == "placeholder"]
        (self._result,) = (n.args[0] for n in graph.nodes if n.op == "output")
        self._steps: list[tuple[fx.Node, Make]] = [
            (step.exit, _made(step, dtype, device, config)) for step in steps_of(graph.nodes)
        ]

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the result."""
        values: dict[fx.Node, Any] = dict(zip(self._inputs, inputs, strict=True))
        for node, make in self._steps:
            values[node] = make(values)
        result = values[self._result]  # type: ignore[index]
        assert isinstance(result, Tensor)
        return result


def _made(step: Step, dtype: torch.dtype, device: torch.device, config: Config) -> Make:
    if step.kind == "library":
        return _by_library(step.exit)
    if step.kind == "product":
        return _Product(step, dtype, device, config)
    launch = prepare(tile_call(step, dtype, config), device)
    read, shape = step.outside, tuple(step.exit.meta["val"].shape)

    def make(values: Mapping[fx.Node, Any]) -> Tensor:
        out = torch.empty(shape, dtype=dtype, device=device)
        launch(*(values[n] for n in read), out)
        return out

    return make


def _by_library(node: fx.Node) -> Make:
    function: Any = node.target

    def make(values: Mapping[fx.Node, Any]) -> Tensor:
        args = map_arg(node.args, values.__getitem__)
        kwargs = map_arg(node.kwargs, values.__getitem__)
        made: Tensor = function(*args, **kwargs)
        return made

    return make


def tile_call(step: Step, dtype: torch.dtype, config: Config) -> KernelCall:
    """Return the launch of a kernel on elements or rows."""
    kernel = compiled_text(write_kernel(step))
    pointer = Pointer(dtype)
    columns = step.shape[-1] if step.shape else 1
    count = math.prod(step.shape)
    arguments: dict[str, Any] = {f"x{i}_at": pointer for i in range(len(step.outside))}
    arguments |= {"out_at": pointer, "columns": columns}
    options = {"num_warps": config["warps"], "num_stages": 1}
    if step.kind == "flat":
        block = config["elements"] * 32 * config["warps"]
        arguments["count"] = count
        return KernelCall(kernel, -(-count // block), arguments, {"BLOCK": block}, options)
    rows = count // columns
    arguments["rows"] = rows
    block = max(16, 1 << (columns - 1).bit_length())
    constants = {"ROWS": config["rows"], "BLOCK": block}
    return KernelCall(kernel, -(-rows // config["rows"]), arguments, constants, options)


class Sizes(NamedTuple):
    """Hold the sizes of a product, and how its operands lie."""

    batch: int
    m: int
    n: int
    depth: int
    a: tuple[int, int, int]
    """Strides of batch, row and depth."""
    b: tuple[int, int, int]
    """Strides of batch, column and depth."""


def sizes_of(step: Step) -> Sizes:
    """Return the sizes of a product's step."""
    node = step.nodes[0]
    x, y = (n.meta["val"] for n in node.args[:2])  # type: ignore[union-attr]
    depth = x.shape[-1]
    if str(node.target) == "aten.bmm.default":
        a = (x.stride(0), x.stride(1), x.stride(2))
        b = (y.stride(0), y.stride(2), y.stride(1))
        return Sizes(x.shape[0], x.shape[1], y.shape[2], depth, a, b)
    weight = str(node.target) == "aten.linear.default"
    a = (0, x.stride(-2), x.stride(-1))
    b = (0, y.stride(0), y.stride(1)) if weight else (0, y.stride(1), y.stride(0))
    n = y.shape[0] if weight else y.shape[1]
    return Sizes(1, math.prod(x.shape[:-1]), n, depth, a, b)


def product_call(step: Step, dtype: torch.dtype, config: Config) -> KernelCall:
    """Return the launch of a product with what follows it."""
    s = sizes_of(step)
    split = bool(config["split"])
    kernel = compiled_text(write_kernel(step, split=split))
    pointer, half = Pointer(dtype), Pointer(_HALF)
    m, n, k = config["m"], config["n"], config["k"]
    along, across = -(-s.m // m), -(-s.n // n)
    strides: tuple[tuple[int, int, int], ...] = (s.a, s.b)
    depth = s.depth
    arguments: dict[str, Any] = {"a_at": pointer, "b_at": pointer}
    if split:
        depth = -(-s.depth // k) * k
        strides = (_lain(s.a, along * m, depth), _lain(s.b, across * n, depth))
        arguments = dict.fromkeys(("a_high", "a_low", "b_high", "b_low"), half)
        arguments |= {"a_scale": pointer, "b_scale": pointer}
    arguments |= {f"x{i}_at": pointer for i in range(len(extras(step)))}
    (a_batch, a_row, a_depth), (b_batch, b_column, b_depth) = strides
    arguments |= {
        "out_at": pointer, "m": s.m, "n": s.n, "depth": depth, "nothing": 0.0,
        "a_row": a_row, "a_depth": a_depth, "a_batch": a_batch,
        "b_column": b_column, "b_depth": b_depth, "b_batch": b_batch,
    }  # fmt: skip
    constants = {"BM": m, "BN": n, "BK": k, "GROUP": 8}
    options = {"num_warps": config["warps"], "num_stages": config["stages"]}
    return KernelCall(kernel, (along * across, s.batch, 1), arguments, constants, options)


def _lain(strides: tuple[int, int, int], rows: int, depth: int) -> tuple[int, int, int]:
    """Return the strides of a split operand: packed, in the order in which the operand lies."""
    if strides[2] == 1 or strides[1] != 1:
        return rows * depth, depth, 1
    return rows * depth, 1, rows


class _Product:
    """Compute a product with what follows it, from operands that are split first if needed."""

    def __init__(
        self, step: Step, dtype: torch.dtype, device: torch.device, config: Config
    ) -> None:
        self._step, self._dtype, self._device = step, dtype, device
        self._extras = extras(step)
        self._shape = tuple(step.exit.meta["val"].shape)
        call = product_call(step, dtype, config)
        self._launch = prepare(call, device)
        self._splits: list[tuple[Callable[..., None], tuple[int, int, int]]] = []
        if not config["split"]:
            return
        s = sizes_of(step)
        depth = int(call.arguments["depth"])  # type: ignore[arg-type]
        for strides, rows, tile in ((s.a, s.m, config["m"]), (s.b, s.n, config["n"])):
            padded = -(-rows // tile) * tile
            made = split_call(strides, (s.batch, rows, s.depth), padded, depth, dtype)
            self._splits.append((prepare(made, device), (s.batch, padded, depth)))

    def __call__(self, values: Mapping[fx.Node, Any]) -> Tensor:
        operands: list[Tensor] = [values[n] for n in self._step.nodes[0].args[:2]]  # type: ignore[index]
        read = [values[n] for n in self._extras]
        out = torch.empty(self._shape, dtype=self._dtype, device=self._device)
        if not self._splits:
            self._launch(*operands, *read, out)
            return out
        halves: list[Tensor] = []
        scales: list[Tensor] = []
        for operand, (split, shape) in zip(operands, self._splits, strict=True):
            high, low = torch.empty(2, math.prod(shape), dtype=_HALF, device=self._device)
            scale = torch.empty(shape[:2], dtype=self._dtype, device=self._device)
            split(operand, high, low, scale)
            halves += (high, low)
            scales.append(scale)
        self._launch(*halves, *scales, *read, out)
        return out


def split_call(
    strides: tuple[int, int, int], shape: tuple[int, int, int], padded: int, depth: int,
    dtype: torch.dtype,
) -> KernelCall:  # fmt: skip
    """Return the launch that splits an operand.

    Args:
        strides: of batch, row and depth.
        shape: batch, rows and depth of the operand.
        padded: the rows that are written.
        depth: the depth that is written.
        dtype: of the operand.
    """
    batch, rows, inner = shape
    to_batch, to_row, to_depth = _lain(strides, padded, depth)
    pointer, half = Pointer(dtype), Pointer(_HALF)
    along = to_depth == 1
    constants = {"ROWS": 16 if along else 64, "DEPTH": 256 if along else 64}
    arguments: dict[str, Any] = {
        "x_at": pointer, "high_at": half, "low_at": half, "scale_at": pointer, "rows": rows,
        "depth": inner, "padded": depth, "x_row": strides[1], "x_depth": strides[2],
        "x_batch": strides[0], "to_row": to_row, "to_depth": to_depth, "to_batch": to_batch,
    }  # fmt: skip
    grid = (-(-padded // constants["ROWS"]), batch, 1)
    return KernelCall(
        split_kernels.split, grid, arguments, constants, {"num_warps": 8, "num_stages": 2}
    )


@lru_cache(maxsize=256)
def compiled_text(text: str) -> Any:
    """Return the kernel `compute` of a source, which is kept as a file as Triton reads it."""
    file = state_folder() / "search" / "generated" / f"{sha256(text.encode()).hexdigest()[:16]}.py"
    if not file.exists():  # several processes that compile may write it at once
        state_files.change(file, lambda _: text.encode())
    spec = importlib.util.spec_from_file_location(f"generated_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compute
