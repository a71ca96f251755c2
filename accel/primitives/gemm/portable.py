"""Choose tiles for the Triton kernels of products, and launch them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from gpudeck.accel.primitives.gemm import portable_kernels as kernels
from gpudeck.accel.primitives.gemm.operands import Operands
from gpudeck.accel.primitives.gemm.problem import BLOCK, FP8, Problem, Steps
from gpudeck.accel.runtime.call import KernelCall
from gpudeck.accel.runtime.named import USUAL, describe, launch
from gpudeck.accel.runtime.refusals import this_gpu_has
from gpudeck.language.text import Text, phrase

DTYPES = (torch.float16, torch.bfloat16, torch.float32, *FP8)
FEW_ROWS = 64
"""Up to this number of rows the operands are swapped: columns of the weight fill the tensor cores'
rows, and k is split so that every multiprocessor reads a part of the weight."""
_OLDEST = (8, 0)
_FINISH_COLUMNS = 1024


class Tiles(NamedTuple):
    """Hold how a product is cut into programs."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    splits: int = 1
    swapped: bool = False


def refusal(p: Problem) -> Text | None:
    """Return why the kernels cannot compute a problem, or None."""
    if p.dtype not in DTYPES or p.out_dtype == torch.float64:
        return phrase("takes float16, bfloat16, float32 and FP8")
    if isinstance(kernels.product, InterpretedFunction):
        return None
    if p.capability is None:
        return phrase("needs a CUDA GPU")
    if p.capability < _OLDEST:
        needed = phrase("needs compute capability {version}", version="8.0")
        return this_gpu_has(needed, p.capability)
    if p.dtype in FP8 and p.capability < (8, 9):
        return phrase("needs compute capability {version} for FP8", version="8.9")
    return None


def portable(x: Operands) -> Tensor:
    """Return the result [batch, m, n]."""
    return with_tiles(x, tiles(x.problem, _processors(x.problem.device)))


def tiles(p: Problem, processors: int) -> Tiles:
    """Return how a problem is cut on a GPU with so many multiprocessors."""
    if p.tile is not None:
        return Tiles(p.tile, p.tile, min(p.tile, 64 // p.dtype.itemsize * 2), 4, 3)
    if p.dtype == torch.float32:
        return Tiles(64, 64, 32, 4, 3)
    wide = BLOCK // p.dtype.itemsize
    hopper = p.capability is not None and p.capability[0] in (9, 10)
    if p.m <= FEW_ROWS:
        return _few_rows(p, processors, wide, hopper)
    if p.scaling == "block":
        return Tiles(128, 128, BLOCK, 8, 3) if hopper else Tiles(64, 128, BLOCK, 4, 2)
    if not hopper:
        return Tiles(128, 128, wide // 2, 8, 3)
    return Tiles(128, 128, wide, 8, 4)


def _few_rows(p: Problem, processors: int, wide: int, hopper: bool) -> Tiles:
    """Return tiles for a product whose time is that of reading the right operand."""
    n = max(16, 1 << (p.m - 1).bit_length())
    m = 128 if hopper and p.dtype in FP8 and p.m > 32 else 64
    k = wide * 2 if hopper and p.dtype not in FP8 else wide
    programs = p.batch * -(-p.n // m)
    # the sums of parts are written and read again: of large tiles, fewer parts are faster
    most = (2 if m > 64 else 4) * processors // programs
    splits = max(1, min(most, -(-p.k // k) // 4, 32))
    return Tiles(m, n, k, 4, 4 if hopper else 3, splits, swapped=True)


def with_tiles(x: Operands, t: Tiles) -> Tensor:
    """Compute a product with these tiles."""
    p = x.problem
    out = torch.empty(p.batch, p.m, p.n, dtype=p.out_dtype, device=p.device)
    if out.numel() == 0:
        return out
    if p.k == 0:
        from gpudeck.accel.primitives.gemm.plain import product

        return product(x, torch.float32).to(p.out_dtype)
    parts, described = _product(x, t, out)
    launch(*described)
    if parts is not None:
        launch(*_sum(x, parts, out))
    return out


def calls(x: Operands, t: Tiles) -> tuple[KernelCall, ...]:
    """Return the launches that compute a product of operands that may be without memory: one, which
    takes a, b and the result (b and a if they are swapped), or with splits one that writes parts
    and one that takes the parts and the result.
    """
    p = x.problem
    out = x.a.new_empty(p.batch, p.m, p.n, dtype=p.out_dtype)
    parts, described = _product(x, t, out)
    first = describe(*described)
    return (first,) if parts is None else (first, describe(*_sum(x, parts, out)))


_Described = tuple[Any, tuple[int, int, int], Any, Any, Any, Any]
"""What `launch` and `describe` take."""


def _product(x: Operands, t: Tiles, out: Tensor) -> tuple[Tensor | None, _Described]:
    """Return the tensor of the parts of k, if there are several, and the launch of the product."""
    p = x.problem
    steps = -(-p.k // (t.k * t.splits))
    splits = -(-p.k // (t.k * steps))
    parts = None
    if splits > 1:
        parts = torch.empty(splits, *out.shape, dtype=torch.float32, device=out.device)
    target = out if parts is None else parts
    a, b, scale_a, scale_b = x.a, x.b, x.scale_a, x.scale_b
    along = out if parts is None else parts[0]
    m, n, shares = p.m, p.n, p.steps
    if t.swapped:
        a, b, along = b.mT, a.mT, along.mT
        scale_a, scale_b = (None if s is None else s.t() for s in (scale_b, scale_a))
        m, n, shares = n, m, Steps(shares.b, shares.a)
    strides = {
        f"stride_{name}{axis}": step if size > 1 else 0
        for name, axes, t_ in (("a", "zmk", a), ("b", "zkn", b), ("o", "zmn", along))
        for axis, step, size in zip(axes, t_.stride(), t_.shape, strict=True)
    }
    numbers = {
        "m": m, "n": n, "k": p.k, **strides, **_scale_strides(scale_a, scale_b),
        "stride_split": 0 if parts is None else parts.stride(0), "steps": steps,
    }  # fmt: skip
    tensors = {
        "a_ptr": a, "b_ptr": b, "out_ptr": target, "bias_ptr": x.bias, "scale_a_ptr": scale_a,
        "scale_b_ptr": scale_b,
    }  # fmt: skip
    constants = {
        "BM": t.m, "BN": t.n, "BK": t.k, "GROUP": 8, "SPLITS": splits, "SCALING": p.scaling,
        "STEP_A": shares.a, "STEP_B": shares.b,
        "BIAS": "none" if not p.bias else "rows" if t.swapped else "columns",
        "ACTIVATION": p.activation, "PRECISION": "ieee", "WHOLE": p.k % t.k == 0,
    }  # fmt: skip
    grid = (-(-m // t.m) * -(-n // t.n), p.batch, splits)
    options = {"num_warps": t.warps, "num_stages": t.stages}
    return parts, (kernels.product, grid, tensors, numbers, constants, options)


def _sum(x: Operands, parts: Tensor, out: Tensor) -> _Described:
    """Return the launch that adds the parts."""
    p = x.problem
    columns = min(_FINISH_COLUMNS, max(16, 1 << (p.n - 1).bit_length()))
    strides = _scale_strides(x.scale_a, x.scale_b)
    numbers = {
        "m": p.m, "n": p.n, "stride_sam": strides["stride_sam"], "stride_sbn": strides["stride_sbn"]
    }  # fmt: skip
    tensors = {
        "parts_ptr": parts, "out_ptr": out, "bias_ptr": x.bias, "scale_a_ptr": x.scale_a,
        "scale_b_ptr": x.scale_b,
    }  # fmt: skip
    constants = {
        "SPLITS": len(parts), "SCALING": p.scaling, "STEP_A": p.steps.a, "STEP_B": p.steps.b,
        "BIAS": "columns" if p.bias else "none", "ACTIVATION": p.activation, "BN": columns,
    }  # fmt: skip
    grid = (p.batch * p.m, -(-p.n // columns), 1)
    return kernels.finish, grid, tensors, numbers, constants, USUAL


def _scale_strides(a: Tensor | None, b: Tensor | None) -> dict[str, int]:
    am, ak = (0, 0) if a is None else a.stride()
    bk, bn = (0, 0) if b is None else b.stride()
    return {"stride_sam": am, "stride_sak": ak, "stride_sbk": bk, "stride_sbn": bn}


@lru_cache(maxsize=16)
def _processors(device: torch.device) -> int:
    """Return the multiprocessors of a GPU; a few for the interpreter."""
    if device.type != "cuda":
        return 16
    return torch.cuda.get_device_properties(device).multi_processor_count
