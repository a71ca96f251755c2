"""Validate the inputs of a product and arrange them as [batch, m, k] and [batch, k, n]."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.problem import (
    ACTIVATIONS,
    BLOCK,
    FLOATS,
    FP8,
    Problem,
    Scaling,
    Steps,
)
from gpudeck.accel.runtime.given import require_tensors
from gpudeck.accel.runtime.named import is_traced

ALIGNMENT = 16


@dataclass(frozen=True)
class Operands:
    """Hold the tensors of a product."""

    a: Tensor
    """[batch, m, k]"""
    b: Tensor
    """[batch, k, n]; its batch may be expanded."""
    scale_a: Tensor | None
    """float32 [m or 1, k/128 or 1], one for `steps.a` rows."""
    scale_b: Tensor | None
    """float32 [k/128 or 1, n or 1]"""
    bias: Tensor | None
    """[n]"""
    problem: Problem
    shape: tuple[int, ...]
    """The shape of the result as the caller sees it."""


def arrange(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    scales: tuple[Tensor, Tensor] | None,
    tile: int | None,
) -> Operands:
    """Return the operands of a product.

    Raises:
        ValueError: says what was given and what is possible.
    """
    _check_types(a, b)
    left, right, shape = _batch(a, b)
    batch, m, k = left.shape
    n = right.shape[2]
    scaling, steps = _scaling(scales, batch, m, n, k)
    if a.dtype in FP8 and scales is None:
        raise ValueError("operands in FP8 need scales=(of a, of b); tensors of ones do not scale")
    if a.dtype not in FP8 and scales is not None:
        raise ValueError(f"scales belong to operands in FP8; got {a.dtype}")
    if out_dtype is None:
        out_dtype = torch.bfloat16 if a.dtype in FP8 else a.dtype
    check_rules(bias, activation, out_dtype, n, a.device)
    if tile is not None and (tile < 16 or tile > 256 or tile & (tile - 1)):
        raise ValueError(f"tile_size is a power of two from 16 to 256; got {tile}")
    device = a.device
    problem = Problem(
        batch, m, n, k, a.dtype, out_dtype, device,
        torch.cuda.get_device_capability(device) if device.type == "cuda" else None,
        scaling, steps, bias is not None, activation or "none",
        left.stride(2) == 1 or k == 1, right.stride(1) == 1 or k == 1,
        boxes(left) and boxes(right), tile, torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    scale_a, scale_b = (None, None) if scales is None else (s.float() for s in scales)
    return Operands(left, right, scale_a, scale_b, bias, problem, shape)


def check_rules(
    bias: Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype,
    n: int,
    device: torch.device,
) -> None:
    """Check what is done with a product of n columns.

    Raises:
        ValueError: says what was given and what is possible.
    """
    if bias is not None and (bias.shape != (n,) or bias.device != device):
        raise ValueError(f"bias must be [{n}] on {device}; got {list(bias.shape)} on {bias.device}")
    if (activation or "none") not in ACTIVATIONS:
        raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}; got {activation!r}")
    if out_dtype not in FLOATS:
        raise ValueError(f"out_dtype is one of {', '.join(map(str, FLOATS))}; got {out_dtype!r}")


def _check_types(a: Tensor, b: Tensor) -> None:
    if a.device != b.device or a.device.type not in ("cpu", "cuda"):
        raise ValueError(f"a and b must be on one CPU or GPU; got {a.device} and {b.device}")
    both = {a.dtype, b.dtype}
    if not (len(both) == 1 and a.dtype in FLOATS) and not both <= set(FP8):
        raise ValueError(
            "a and b must have one floating-point type of 16 to 64 bits, or be in FP8; got"
            f" {a.dtype} and {b.dtype}"
        )


def _batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return both with one dimension for batches, and the shape of the result."""
    if min(a.dim(), b.dim()) < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"a [..., m, k] and b [..., k, n] must share k; got {list(a.shape)} and {list(b.shape)}"
        )
    if b.dim() == 2:
        # a batch of rows with one right operand is one product with more rows
        rows = a.reshape(1, math.prod(a.shape[:-1]), a.shape[-1])
        return rows, b.unsqueeze(0), (*a.shape[:-1], b.shape[-1])
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    except RuntimeError as e:
        raise ValueError(
            f"the batches of a and b do not go together: {list(a.shape)} and {list(b.shape)}"
        ) from e
    count = math.prod(batch)
    left = a.expand(*batch, *a.shape[-2:]).reshape(count, *a.shape[-2:])
    right = b.expand(*batch, *b.shape[-2:]).reshape(count, *b.shape[-2:])
    return left, right, (*batch, a.shape[-2], b.shape[-1])


def _scaling(
    scales: tuple[Tensor, Tensor] | None, batch: int, m: int, n: int, k: int
) -> tuple[Scaling, Steps]:
    """Return how scales are applied, and how many rows share one."""
    if scales is None:
        return "none", Steps(0, 0)
    if batch != 1:
        raise ValueError("products with scales take no batches; see grouped_gemm")
    require_tensors(**{"the scales of a": scales[0], "the scales of b": scales[1]})
    shapes = tuple(s.shape for s in scales)
    blocks = -(-k // BLOCK)
    for name, (outer, inner), size in (
        ("a", shapes[0] if len(shapes[0]) == 2 else (0, 0), m),
        ("b", shapes[1][::-1] if len(shapes[1]) == 2 else (0, 0), n),
    ):
        if outer not in (1, size, -(-size // BLOCK)) or inner not in (1, blocks):
            raise ValueError(
                f"the scales of {name} must be one, one a row of a (column of b), or one for each"
                f" {BLOCK} elements of k; got {list(shapes[0])} and {list(shapes[1])} for m {m},"
                f" n {n} and k {k}"
            )
    if (shapes[0][1] == 1) != (shapes[1][0] == 1):
        raise ValueError("either both operands have scales for each 128 elements of k, or none")
    steps = Steps(_step(shapes[0][0], m), _step(shapes[1][1], n))
    # with one block the two ways are one
    return ("block" if shapes[0][1] > 1 else "outer"), steps


def _step(count: int, size: int) -> int:
    """Return how many rows share one of `count` scales; 0 if all do."""
    return 1 if count == size else 0 if count == 1 else BLOCK


def boxes(x: Tensor) -> bool:
    """Return True if the copy engine can move boxes of a [batch, rows, columns]."""
    size = x.element_size()
    inner = 2 if x.stride(2) == 1 else 1
    outer = [s for d, s in enumerate(x.stride()) if d != inner and x.shape[d] > 1]
    return (
        x.stride(inner) == 1
        and (is_traced(x) or x.data_ptr() % ALIGNMENT == 0)
        and all(s > 0 and s * size % ALIGNMENT == 0 for s in outer)
        and 0 not in x.shape
    )
