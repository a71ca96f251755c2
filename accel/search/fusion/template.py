"""Make tasks and templates of modules, so that they are searched and judged like all kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gpudeck.accel.search.fusion.capture import Captured, graph_of, with_batch
from gpudeck.accel.search.fusion.grouping import Step, steps_of
from gpudeck.accel.search.fusion.program import Program, product_call, tile_call
from gpudeck.accel.search.space import Config, Space
from gpudeck.accel.search.tasks import Size, Sizes, Task
from gpudeck.accel.search.templates import Template, fits_registers
from gpudeck.accel.search.verdict import Source
from gpudeck.accel.search.worker import load

DRAWS = ("normal", "uniform", "shifted", "outliers", "rows apart")
"""Distributions for which norms and losses of most modules are well conditioned."""
_PRODUCT = {
    "split": (1, 0), "m": (64, 128), "n": (64, 128, 256), "k": (32, 64), "warps": (4, 8),
    "stages": (2, 3, 4),
}  # fmt: skip
_USUAL_PRODUCTS = tuple(
    {"split": 1, "m": m, "n": n, "k": k, "warps": warps, "stages": stages}
    for m, n, k, warps, stages in (
        (128, 128, 64, 8, 3),
        (128, 128, 32, 8, 4),
        (64, 128, 32, 4, 3),
        (64, 256, 32, 8, 3),
        (128, 128, 64, 8, 2),
        (64, 128, 64, 4, 3),
    )
)
_TILES = {"rows": (1, 2, 4, 8, 16), "elements": (1, 2, 4, 8, 16), "warps": (4, 8, 16, 32)}
_USUAL_TILES = (
    {"rows": 1, "elements": 4, "warps": 8}, {"rows": 1, "elements": 8, "warps": 4},
    {"rows": 1, "elements": 2, "warps": 16}, {"rows": 1, "elements": 2, "warps": 32},
)  # fmt: skip
_USUAL_FLAT = tuple(
    {"elements": elements, "warps": warps}
    for elements, warps in ((4, 8), (8, 4), (16, 4), (4, 4), (8, 8), (16, 2))
)
"""Four elements of 32 bits are one load of a thread; some need more bytes in flight."""
_FLAT = {"elements": (1, 2, 4, 8, 16, 32), "warps": (1, 2, 4, 8)}
_ROWS = {"rows": (1, 2, 4, 8, 16, 32), "warps": (1, 2, 4, 8, 16, 32)}
_HELD = 64
"""The most elements of a product's sum that a thread holds."""
_FEW = 3
"""The least batch that is drawn: of one row, some modules have no variance."""


def task_of_module(name: str, captured: Captured, dtype: torch.dtype) -> Task:
    """Return the task of computing what a captured function computes.

    The batch is drawn where it is free; all other sizes are the module's.
    """
    free, shapes = captured.free, captured.shapes
    sizes = {"batch": Size(shapes[free[0]][0], _FEW, min(shapes[free[0]][0], 300))} if free else {}

    def shapes_at(sizes: Sizes) -> tuple[tuple[int, ...], ...]:
        return with_batch(shapes, free, sizes["batch"]) if free else shapes

    def result_at(sizes: Sizes) -> tuple[int, ...]:
        return graph_of(captured.source, shapes_at(sizes), dtype).result

    reference: Callable[..., Tensor] = load(captured.source)
    counter = FlopCounterMode(display=False)
    with counter:
        reference(*(torch.empty(shape, dtype=dtype, device="meta") for shape in shapes))
    products = float(counter.get_total_flops())
    digest = sha256(captured.source.text.encode()).hexdigest()[:8]

    def flops_at(sizes: Sizes) -> float:
        share = sizes["batch"] / shapes[free[0]][0] if free else 1.0
        return products * share or float(math.prod(result_at(sizes)))

    return Task(
        f"{name}-{digest}", sizes, shapes_at, result_at, reference, flops_at, dtype=dtype,
        draws=DRAWS, own=False, product=products > 0, written=captured.source,
    )  # fmt: skip


def template_of_module(task: Task) -> Template:
    """Return the template of a task that was made of a module.

    Raises:
        ValueError: if the library has to compute all of it.
    """
    assert task.written is not None
    place = task.written.place
    steps = _steps(task.written, task.shapes(task.timed), task.dtype)
    kinds = {step.kind for step in steps}
    if "product" in kinds:
        # only float32 has more bits than tensor cores take
        ways = _PRODUCT["split"] if task.dtype == torch.float32 else (0,)
        space = Space({**_PRODUCT, "split": ways}, _fits_product)
        usual = tuple({**config, "split": ways[0]} for config in _USUAL_PRODUCTS)
    elif kinds & {"rows", "flat"}:
        choices = _TILES if kinds >= {"rows", "flat"} else _ROWS if "rows" in kinds else _FLAT
        widest = max((s.shape[-1] for s in steps if s.kind == "rows"), default=0)
        space = Space(choices, fits_registers(widest) if widest else _fits_flat)
        tried = _USUAL_FLAT if "rows" not in kinds else _USUAL_TILES
        shared = ({k: v for k, v in c.items() if k in choices} for c in tried)
        usual = tuple(filter(space.holds, shared))
    else:
        raise ValueError("no template computes a part of the module")
    dtype = str(task.dtype).removeprefix("torch.")
    known = {"place": place, "shapes": task.shapes(task.timed), "dtype": dtype}
    return Template(
        ", ".join(step.kind for step in steps), space,
        lambda c: Source(__name__, "fused", {"place": place, "config": c}),
        lambda c: Source(__name__, "fused_call", {**known, "config": c}),
        usual,
    )  # fmt: skip


def _fits_product(config: Config) -> bool:
    """Return whether a thread has registers for both of its sums."""
    return config["m"] * config["n"] <= _HELD * 32 * config["warps"]


def _fits_flat(config: Config) -> bool:
    return config["elements"] * config["warps"] <= _HELD


def library_operators(task: Task) -> tuple[str, ...]:
    """Return the operators of a module's task that are left to the library."""
    assert task.written is not None
    steps = _steps(task.written, task.shapes(task.timed), task.dtype)
    return tuple(str(s.exit.target) for s in steps if s.kind == "library")


def _steps(source: Source, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[Step]:
    return steps_of(graph_of(source, [tuple(s) for s in shapes], dtype).nodes)


def fused(place: str, config: Config) -> Callable[..., Tensor]:
    """Return the captured function of a file in fused kernels; each new shape is compiled."""
    source = Source(place, "reference")
    programs: dict[tuple[torch.Size, ...], Program] = {}
    settings = _completed(config)

    def call(*inputs: Tensor) -> Tensor:
        shapes = tuple(x.shape for x in inputs)
        if (program := programs.get(shapes)) is None:
            first = inputs[0]
            program = Program(source, shapes, first.dtype, first.device, settings)
            programs[shapes] = program
        return program(*inputs)

    return call


def fused_call(place: str, shapes: Sequence[Sequence[int]], dtype: str, config: Config) -> Any:
    """Return the launch of the first of the function's kernels, a product if there is one."""
    kind: torch.dtype = getattr(torch, dtype)
    steps = _steps(Source(place, "reference"), [tuple(s) for s in shapes], kind)
    own = [step for step in steps if step.kind != "library"]
    product = next((step for step in own if step.kind == "product"), None)
    if product is not None:
        return product_call(product, kind, config)
    return tile_call(own[0], kind, _completed(config))


def _completed(config: Config) -> Config:
    """Return a configuration that also has what other kinds of steps need."""
    return {**_USUAL_TILES[0], **config}
