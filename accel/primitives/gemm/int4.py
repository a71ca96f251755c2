"""Products with a matrix of weights in four bits (W4A16)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import util
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.primitives.quantize.int4 import Int4
from gpudeck.accel.runtime.refusals import CannotCompute, check_name
from gpudeck.language.text import Text, phrase


class _Backend(NamedTuple):
    refusal: Callable[[Int4, torch.dtype, torch.device], Text | None]
    """Returns why it cannot multiply, as the end of a sentence that begins with "it"."""
    run: Callable[[Tensor, Int4, Tensor | None], Tensor]
    most: float
    """The vectors up to which `auto` takes it."""


def _ours(module: str, name: str, most: float) -> _Backend:
    """Return a backend whose module needs Triton; it is imported when it is asked for."""
    path = f"gpudeck.accel.primitives.gemm.{module}"

    def refusal(b: Int4, dtype: torch.dtype, device: torch.device) -> Text | None:
        if util.find_spec("triton") is None:
            return phrase("needs the package triton")
        why: Text | None = importlib.import_module(path).refusal(b, dtype, device)
        return why

    def run(x: Tensor, b: Int4, bias: Tensor | None) -> Tensor:
        out: Tensor = getattr(importlib.import_module(path), name)(x, b, bias)
        return out

    return _Backend(refusal, run, most)


def _dequantize(x: Tensor, b: Int4, bias: Tensor | None) -> Tensor:
    added = None if bias is None else bias.to(x.dtype)
    return functional.linear(x, b.dequantize(x.dtype), added)


BACKENDS = {
    "few": _ours("int4_few", "few", 16),
    "tiles": _ours("int4_tiles", "by_tiles", 64),
    "dequantized": _Backend(lambda *_: None, _dequantize, float("inf")),
}
"""By name, in the order in which `auto` takes them: the tensor cores fed from registers; tiles in
Triton; a floating-point product with the matrix in the type of the vectors."""


def int4_gemm(a: Tensor, b: Int4, *, bias: Tensor | None = None, backend: str = "auto") -> Tensor:
    """Compute a bᵀ + bias with vectors in floating point and weights in four bits.

    Args:
        a: [..., K], float16, bfloat16 or float32.
        b: a matrix [N, K].
        bias: [N], added before the result is rounded.
        backend: a name in BACKENDS, or `auto`; see `int4_backend`.

    Returns:
        [..., N] in the dtype of a.

    Raises:
        ValueError: if the inputs do not fit together, or the named backend cannot compute them.
    """
    rows, columns = b.shape
    if a.dim() < 1 or a.shape[-1] != columns or a.device != b.packed.device:
        raise ValueError(
            f"a must be [..., {columns}] on {b.packed.device} for a matrix of"
            f" {rows} x {columns}; got {list(a.shape)} on {a.device}"
        )
    if bias is not None and bias.shape != (rows,):
        raise ValueError(f"bias must be [{rows}]; got {list(bias.shape)}")
    x = a.reshape(-1, columns)
    if not len(x):
        return a.new_empty(*a.shape[:-1], rows)
    found = BACKENDS[int4_backend(x, b, backend)].run(x, b, bias)
    return found.view(*a.shape[:-1], rows)


def int4_backend(x: Tensor, b: Int4, backend: str = "auto") -> str:
    """Return the name of the backend that `int4_gemm` runs for vectors [count, K].

    Raises:
        ValueError: if no backend has this name, or it cannot multiply these.
    """
    check_name(backend, tuple(BACKENDS))
    if backend == "auto":
        return next(
            name
            for name, one in BACKENDS.items()
            if len(x) <= one.most and one.refusal(b, x.dtype, x.device) is None
        )
    if (why := BACKENDS[backend].refusal(b, x.dtype, x.device)) is not None:
        raise CannotCompute(backend, why)
    return backend
