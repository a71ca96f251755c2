"""Measure the shapes that programs used, on random tensors, while a GPU is idle."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from gpudeck.accel.attention.dispatch import choose, contenders
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.lessons import USAGE, measure, spot
from gpudeck.accel.attention.passes import backward, bind, forward
from gpudeck.accel.attention.problem import Problem, default_scale
from gpudeck.accel.attention.records import Shape
from gpudeck.accel.lessons.measuring import has_room
from gpudeck.accel.lessons.records import Direction
from gpudeck.accel.lessons.store import gpu
from gpudeck.accel.lessons.usage import Pending


def find_pending(device: torch.device) -> Iterator[Pending]:
    """Yield what programs used on this type of GPU and nobody measured with the present versions,
    the most frequent shape first.

    Ragged batches are left to the programs, as their lengths are not known.
    """
    own = gpu(device)
    for used in sorted(USAGE.read(), key=lambda u: -(u.forward + u.backward)):
        if used.gpu != own.name or used.shape.ragged:
            continue
        problem = pose(used.shape, device)
        if spot(problem) != used.spot:  # it asked for more than a Shape can tell
            continue
        directions: tuple[Direction, ...] = ("forward", "backward")
        for direction in directions if used.backward else directions[:1]:
            if not choose(problem, direction=direction).is_measured:
                yield Pending(used.text, direction, partial(tune, problem, direction))


def pose(shape: Shape, device: torch.device) -> Problem:
    """Return the problem of a shape."""
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    return Problem(
        shape.batch, shape.heads, shape.kv_heads, shape.seq_q, shape.seq_k, shape.head_dim,
        getattr(torch, shape.dtype), device, capability, default_scale(shape.head_dim),
        left=shape.left, right=shape.right, softcap=shape.softcap, bias=shape.bias,
        bias_grad=shape.bias_grad, ragged=shape.ragged,
    )  # fmt: skip


def fits(p: Problem) -> bool:
    """Return whether the tensors of a problem take a small part of the free memory."""
    elements = 4 * p.head_dim * p.batch * (p.heads * p.seq_q + p.kv_heads * p.seq_k)
    if p.bias != "none":
        elements += 2 * p.batch * p.heads * p.seq_q * p.seq_k
    return has_room(elements * p.dtype.itemsize, p.device)


def tune(problem: Problem, direction: Direction) -> bool:
    """Measure one pass of a problem on random tensors; return False if there is no choice."""
    names = contenders(problem, direction)
    if len(names) < 2 or not fits(problem):
        return False
    x, choice = tensors(problem), choose(problem, direction=direction)
    if direction == "forward":
        measure(problem, direction, choice.backend, partial(bind, x, problem), names)
        return True
    out, lse = forward(x, problem, choose(problem).backend)
    dout = torch.randn_like(out)
    passes = partial(partial, backward, dout, x, out, lse, problem)
    measure(problem, direction, choice.backend, passes, names)
    return True


def tensors(p: Problem) -> Inputs:
    """Return random tensors of a problem that lie in memory as [B,S,H,D], as those of models do."""

    def normal(heads: int, length: int) -> Tensor:
        return torch.randn(
            p.batch, length, heads, p.head_dim, dtype=p.dtype, device=p.device
        ).transpose(1, 2)

    bias = None
    if p.bias != "none":
        bias = torch.randn(1, p.heads, p.seq_q, p.seq_k, dtype=p.dtype, device=p.device)
        bias = bias > -1.0 if p.bias == "bool" else bias.requires_grad_(p.bias_grad)
    k, v = normal(p.kv_heads, p.seq_k), normal(p.kv_heads, p.seq_k)
    return Inputs(normal(p.heads, p.seq_q), k, v, bias)
