"""Launch the product of some vectors with a matrix in four bits, by tiles."""

from __future__ import annotations

import torch
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from gpudeck.accel.primitives.gemm.int4_kernels import int4_product
from gpudeck.accel.primitives.gemm.portable_kernels import finish
from gpudeck.accel.primitives.quantize.int4 import GROUP, Int4
from gpudeck.accel.runtime.named import launch
from gpudeck.language.text import Text, phrase

ROWS = 64
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_LEAST = 16
"""Columns of a group: tensor cores sum over as many."""
_OPTIONS = {"num_warps": 4, "num_stages": 4}
_PROGRAMS = 528
"""Those that keep a large GPU busy."""
_FINISH_COLUMNS = 1024


def refusal(b: Int4, dtype: torch.dtype, device: torch.device) -> Text | None:
    """Return why the kernel cannot multiply with a matrix, or None."""
    if dtype not in _DTYPES:
        return phrase("takes vectors of float16, bfloat16 and float32")
    if b.group % _LEAST or (GROUP % b.group and b.group % GROUP):
        return phrase(
            "takes groups of {low} to {high} columns, a power of two; these have {n}",
            low=_LEAST,
            high=GROUP,
            n=b.group,
        )
    if not isinstance(int4_product, InterpretedFunction) and device.type != "cuda":
        return phrase("needs a CUDA GPU")
    return None


def by_tiles(x: Tensor, b: Int4, bias: Tensor | None = None, splits: int | None = None) -> Tensor:
    """Return x [count, K] times the transposed matrix: [count, N] in the dtype of x."""
    rows, depth = b.shape
    count, groups = len(x), b.scales.shape[1]
    x, out = x.contiguous(), x.new_empty(len(x), rows)
    vectors = min(64, max(16, 1 << (count - 1).bit_length()))
    block = min(GROUP, b.group)
    down, right = -(-rows // ROWS), -(-count // vectors)
    if splits is None:
        splits = max(1, min(8, _PROGRAMS // (down * right), depth // block // 4))
    steps = -(-(depth // block) // splits)
    splits = -(-(depth // block) // steps)
    parts = out if splits == 1 else x.new_empty(splits, count, rows, dtype=torch.float32)
    tensors: dict[str, Tensor | None] = {
        "weights": b.packed, "scales": b.scales, "zeros": b.zeros, "x": x, "out": parts,
        "bias": bias if splits == 1 else None,
    }  # fmt: skip
    numbers = {
        "count": count, "rows": rows, "depth": depth, "group": b.group, "groups": groups,
        "steps": steps,
    }  # fmt: skip
    constants: dict[str, object] = {
        "COUNT": vectors, "ROWS": ROWS, "DEPTH": block, "SPLITS": splits,
        "BIAS": bias is not None and splits == 1,
    }  # fmt: skip
    launch(
        int4_product, (down, right, splits), tensors, numbers, constants, _OPTIONS
    )  # fmt: skip
    if splits > 1:
        _finish(parts, bias, out)
    return out


def _finish(parts: Tensor, bias: Tensor | None, out: Tensor) -> None:
    count, rows = out.shape
    tensors = {
        "parts_ptr": parts, "out_ptr": out, "bias_ptr": bias, "scale_a_ptr": None,
        "scale_b_ptr": None,
    }  # fmt: skip
    constants = {
        "SPLITS": len(parts), "SCALING": "none", "STEP_A": 0, "STEP_B": 0,
        "BIAS": "none" if bias is None else "columns", "ACTIVATION": "none",
        "BN": _FINISH_COLUMNS,
    }  # fmt: skip
    numbers = {"m": count, "n": rows, "stride_sam": 0, "stride_sbn": 0}
    launch(finish, (count, -(-rows // _FINISH_COLUMNS), 1), tensors, numbers, constants)
