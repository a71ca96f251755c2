"""Measure the products that programs used, on random tensors, while a GPU is idle."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from gpudeck.accel.lessons.measuring import has_room
from gpudeck.accel.lessons.store import gpu
from gpudeck.accel.lessons.usage import Pending
from gpudeck.accel.primitives.gemm.dispatch import choose, contenders
from gpudeck.accel.primitives.gemm.lessons import USAGE, measure
from gpudeck.accel.primitives.gemm.operands import Operands, arrange
from gpudeck.accel.primitives.gemm.problem import BLOCK, Problem, Steps
from gpudeck.accel.primitives.gemm.records import Shape


def find_pending(device: torch.device) -> Iterator[Pending]:
    """Yield what programs used on this type of GPU and nobody measured with the present versions,
    the most frequent product first.

    Operands whose addresses or strides no copy engine takes are left to the programs.
    """
    own = gpu(device)
    for used in sorted(USAGE.read(), key=lambda u: -u.forward):
        problem = pose(used.shape, device)
        if used.gpu != own.name or not used.shape.boxes or problem.spot != used.spot:
            continue
        if choose(problem).basis != "measured here":
            yield Pending(used.text, "forward", partial(tune, problem))


def pose(shape: Shape, device: torch.device) -> Problem:
    """Return the problem of a shape."""
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    return Problem(
        shape.batch, shape.m, shape.n, shape.k, getattr(torch, shape.dtype),
        getattr(torch, shape.out_dtype), device, capability, shape.scaling, Steps(*shape.steps),
        shape.bias, shape.activation, shape.a_along, shape.b_along, shape.boxes, shape.tile,
    )  # fmt: skip


def tune(problem: Problem) -> bool:
    """Measure a product of random tensors; return False if there is no choice, or no room."""
    names = contenders(problem)
    if len(names) < 2 or not has_room(2 * problem.moved, problem.device):
        return False
    x = draw(problem)
    if x.problem != problem:
        return False
    measure(x, choose(problem), names)
    return True


def draw(p: Problem) -> Operands:
    """Return random operands of a problem, with scales of 1, that lie in memory as the caller's."""
    shared = (p.batch,) if p.batch > 1 else ()

    def normal(rows: int, columns: int, along: bool) -> Tensor:
        shape = (rows, columns) if along else (columns, rows)
        made = torch.randn(*shared, *shape, dtype=torch.bfloat16, device=p.device).to(p.dtype)
        return made if along else made.mT

    a, b = normal(p.m, p.k, p.a_along), normal(p.n, p.k, p.b_along).mT
    scales = None
    if p.scaling != "none":
        inner = 1 if p.scaling == "outer" else -(-p.k // BLOCK)
        of_a, of_b = _count(p.steps.a, p.m), _count(p.steps.b, p.n)
        ones = partial(torch.ones, device=p.device)
        # as `fp8_quantize` leaves them: those of neighbouring rows side by side, or of blocks of k
        scales = (
            ones(inner, of_a).t() if p.steps.a == 1 else ones(of_a, inner),
            ones(inner, of_b) if p.steps.b == 1 else ones(of_b, inner).t(),
        )
    bias = torch.randn(p.n, dtype=p.out_dtype, device=p.device) if p.bias else None
    return arrange(a, b, bias, p.activation, p.out_dtype, scales, p.tile)


def _count(step: int, size: int) -> int:
    """Return how many scales rows have of which each `step` share one, or all if it is 0."""
    return -(-size // step) if step else 1
