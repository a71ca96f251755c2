"""Multiply matrices in FP4 by the tensor cores that do so themselves (compute capability 10 on).

The kernel is compiled for these GPUs and checked in Triton's interpreter; it has never run on one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from gpudeck.accel.primitives.gemm.fp4_kernels import fp4_product
from gpudeck.accel.primitives.quantize.fp4 import BLOCKS, Fp4
from gpudeck.accel.runtime.call import KernelCall, Pointer, TensorBox
from gpudeck.accel.runtime.named import launch
from gpudeck.accel.runtime.refusals import refuse_older
from gpudeck.language.text import Text

_TILES = {"BM": 128, "BN": 128, "BK": 128, "GROUP": 8}
_OPTIONS = {"num_warps": 4, "num_stages": 2}
_OLDEST = (10, 0)


def refusal(device: torch.device) -> Text | None:
    """Return why the kernel cannot run on a device, or None."""
    if isinstance(fp4_product, InterpretedFunction):
        return None
    return refuse_older(device, _OLDEST)


def multiply(a: Fp4, b: Fp4, dtype: torch.dtype) -> Tensor:
    """Return a bᵀ with a [m,k] and b [n,k] of one format."""
    (m, packed), n = a.packed.shape, len(b.packed)
    out = torch.empty(m, n, dtype=dtype, device=a.packed.device)
    tensors: dict[str, Tensor | None] = {
        "a_ptr": a.packed, "a_scale_ptr": _bits(a), "b_ptr": b.packed, "b_scale_ptr": _bits(b),
        "whole_ptr": (a.tensor_scale * b.tensor_scale).reshape(1), "out_ptr": out,
    }  # fmt: skip
    numbers = {"m": m, "n": n, "packed": packed, "blocks": a.scales.shape[1]}
    constants = {**_TILES, "SHARE": BLOCKS[a.format]}
    grid = (-(-m // _TILES["BM"]) * -(-n // _TILES["BN"]), 1, 1)
    launch(fp4_product, grid, tensors, numbers, constants, _OPTIONS)
    return out


def call_of(format_: str, m: int, n: int, k: int) -> KernelCall:
    """Return the launch for sizes, which compiles without a GPU."""
    share = BLOCKS[format_]
    scale = Pointer(torch.uint8 if share == BLOCKS["mxfp4"] else torch.float8_e4m3fn)
    u8, f32 = Pointer(torch.uint8), Pointer(torch.float32)
    arguments: dict[str, Pointer | TensorBox | int | float | None] = {
        "a_ptr": u8, "a_scale_ptr": scale, "b_ptr": u8, "b_scale_ptr": scale, "whole_ptr": f32,
        "out_ptr": Pointer(torch.bfloat16), "m": m, "n": n, "packed": k // 2, "blocks": k // share,
    }  # fmt: skip
    grid = -(-m // _TILES["BM"]) * -(-n // _TILES["BN"])
    return KernelCall(fp4_product, grid, arguments, {**_TILES, "SHARE": share}, _OPTIONS)


def _bits(x: Fp4) -> Tensor:
    """Return the scales as the kernel takes them: powers of two as their exponents' bytes."""
    return x.scales.view(torch.uint8) if x.format == "mxfp4" else x.scales
