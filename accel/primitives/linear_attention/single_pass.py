"""Run the Triton kernels of rules that need one pass over a sequence: see `single_kernels`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gpudeck.accel.primitives.linear_attention import single_kernels
from gpudeck.accel.primitives.linear_attention.plan import (
    Bounds,
    Shape,
    Tensors,
    capability_of,
    parts_of,
    processors_of,
    shape_of,
    single,
    tables,
)
from gpudeck.accel.primitives.linear_attention.problem import Operands, Rule
from gpudeck.accel.runtime import named
from gpudeck.accel.runtime.call import KernelCall

_LARGEST = 128
"""The largest head size: states of 256 channels leave no registers, which made gradients slower."""
_DTYPES = (torch.bfloat16,)
"""The dtype that was measured. Others need products in float32, which do not fit the registers."""
_PARTS = 8
"""The most parts that other kernels would cut sequences into where training by one pass over whole
sequences still takes less time, by calculation from the times of an H200."""
Tile = tuple[int, Mapping[str, int]]
"""The columns of a state that a program holds, and its compiler options."""
_GRADIENTS = 3
"""The gradients that one launch computes, each by a pass of its own: those of q, k and v."""


def suffices(x: Operands, trained: bool) -> bool:
    """Return whether one pass computes the outputs, and the gradients if they are wanted.

    It does where every head has one decay for all tokens, which is expanded to their number. For
    gradients keys and values must be alike, as each takes the other's place.
    """
    decay, keys, values = x.decay, x.q.shape[3], x.v.shape[3]
    if decay.dim() != 3 or x.rule.erases or max(keys, values) > _LARGEST or not decay.numel():
        return False
    if x.q.dtype not in _DTYPES:
        return False
    if any(decay.stride(n) != 0 and decay.shape[n] > 1 for n in (0, 1)):
        return False
    if not trained:  # the other kernels would not cut the sequences, either
        return True
    alike = x.group == 1 and keys == values and not decay.requires_grad
    return alike and _parts(x) <= _PARTS


def _parts(x: Operands) -> int:
    """Return into how many parts other kernels would cut the sequences."""
    device, heads = x.q.device, x.v.shape[2]
    shape = shape_of(x.q.shape[3], x.v.shape[3], heads, x.group, False, x.rule, x.q.dtype)
    longest = tables(x.bounds, device).longest
    return parts_of(shape, capability_of(device), len(x.bounds), longest, processors_of(device))


def single_pass(x: Operands, trained: bool) -> tuple[Tensor, Tensor]:
    """Return the output [B,T,H,Dv] in the dtype of v and the final states [N,H,Dk,Dv] float32."""
    decay = x.decay.detach()[0, 0].float().contiguous()
    given = (x.q, cast(Tensor, x.k), x.v, x.state, decay, x.rule, x.scale, x.bounds)
    if not trained:
        found, _ = _compute(*given)
        return cast(Tensor, found["out"]), cast(Tensor, found["last"])
    out, last = _SinglePass.apply(*given)  # type: ignore[no-untyped-call]
    return cast(Tensor, out), cast(Tensor, last)


class _SinglePass(torch.autograd.Function):
    """Compute outputs, and gradients from the inputs alone."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        """Compute the output and the final states; the arguments are those of `_compute`."""
        x, shape = _compute(*given)
        ctx.names = ("q", "k", "v", "start", "decay")
        ctx.save_for_backward(*(x[name] for name in ctx.names))
        ctx.given = shape, *given[-2:]
        return cast(Tensor, x["out"]), cast(Tensor, x["last"])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor, dlast: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of q, k, v and the first states."""
        x: Tensors = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        x |= {"dout": dout.contiguous(), "dlast": dlast.float().contiguous()}
        for name in ("q", "k", "v", "start"):
            given = x[name]
            x[f"d{name}"] = None if given is None else torch.empty_like(given)
        named.launch(*_described(single_kernels.gradients, _GRADIENTS, x, *ctx.given))
        return (x["dq"], x["dk"], x["dv"], x["dstart"], None, None, None, None)


def with_tile(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, rule: Rule, scale: float, tile: Tile
) -> Tensor:
    """Return the output of sequences that begin with no state, by programs of another tile.

    Args:
        q: [B,T,H,D], as k and v are.
        k: as q.
        v: as q.
        decay: the log decay of each head, float32 [H].
        rule: one that `suffices`.
        scale: of the output.
        tile: the columns of a state that a program holds, and its options.
    """
    x, shape = _arguments(q, k, v, None, decay, rule, scale, _bounds(q))
    named.launch(*_described(single_kernels.outputs, 1, x, shape, scale, _bounds(q), tile))
    return cast(Tensor, x["out"])


def call_with_tile(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, rule: Rule, scale: float, tile: Tile
) -> KernelCall:
    """Return the launch of `with_tile` on tensors that may be without memory."""
    x, shape = _arguments(q, k, v, None, decay, rule, scale, _bounds(q))
    return named.describe(
        *_described(single_kernels.outputs, 1, x, shape, scale, _bounds(q), tile)
    )  # fmt: skip


def _bounds(q: Tensor) -> Bounds:
    batch, length = q.shape[:2]
    return tuple((n * length, (n + 1) * length) for n in range(batch))


def _compute(*given: Any) -> tuple[Tensors, Shape]:
    """Return the inputs with the results, and the shape; the arguments are those of
    `_arguments`."""
    x, shape = _arguments(*given)
    named.launch(*_described(single_kernels.outputs, 1, x, shape, *given[-2:]))
    return x, shape


def _arguments(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, decay: Tensor, rule: Rule, scale: float,
    bounds: Bounds,
) -> tuple[Tensors, Shape]:  # fmt: skip
    """Return the inputs, contiguous, with room for the outputs and the last states, and the
    shape."""
    heads, group = v.shape[2], v.shape[2] // q.shape[2]
    shape = shape_of(q.shape[3], v.shape[3], heads, group, False, rule, q.dtype)
    x: Tensors = {"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous(), "decay": decay}
    x["start"] = None if state is None else state.float().contiguous()
    x["out"] = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    x["last"] = decay.new_empty(len(bounds), heads, shape.keys, shape.values)
    return x, shape


def _described(
    kernel: Any, kinds: int, x: Tensors, shape: Shape, scale: float, bounds: Bounds,
    tile: Tile | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the launch of a kernel that computes so many kinds of results."""
    device = cast(Tensor, x["q"]).device
    at, states = tables(bounds, device), kinds * shape.heads * len(bounds)
    columns, options = tile or single(
        shape, capability_of(device), states, processors_of(device)
    )  # fmt: skip
    grid = (kinds * -(-shape.values // columns), shape.heads, len(bounds))
    pointers = {f"{name}_ptr": tensor for name, tensor in x.items()}
    pointers |= {"chunks_ptr": at.chunks, "sequences_ptr": at.sequences}
    constants = {**shape.constants, "BLOCK": columns, "SIZE": shape.keys}
    numbers = {"heads": shape.heads, "scale": float(scale)}
    return kernel, grid, pointers, numbers, constants, options
