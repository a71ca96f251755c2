"""Products of operands that are rounded to FP8 or FP4 first."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.api import explain_gemm, gemm
from gpudeck.accel.primitives.quantize.fp4 import Format, Fp4, fp4_quantize
from gpudeck.accel.primitives.quantize.fp8 import Fp8, Granularity, fp8_quantize
from gpudeck.accel.runtime.refusals import CannotCompute

Recipe = Literal["tensor", "row", "block"]
OF_A: dict[str, Granularity] = {"tensor": "tensor", "row": "row", "block": "tile"}
OF_B: dict[str, Granularity] = {"tensor": "tensor", "row": "row", "block": "block"}


def fp8_gemm(
    a: Tensor | Fp8,
    b: Tensor | Fp8,
    *,
    recipe: Recipe = "row",
    bias: Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    backend: str = "auto",
) -> Tensor:
    """Compute activation(a b + bias) with a [m,k] and b [k,n] in FP8.

    Args:
        a: a matrix, which is quantised here, or one that is quantised along k.
        b: likewise; a weight [n,k] that was quantised once is passed as its view `.t`.
        recipe: what shares a scale of what is quantised here: `tensor`; `row` (of a; column of b);
            `block`: 1x128 tiles of a and 128x128 blocks of b, added in float32.
        bias, activation, out_dtype, backend: as for `gemm`.

    Raises:
        ValueError: if the inputs do not fit together, or the named backend cannot compute them.
    """
    if recipe not in OF_A:
        raise ValueError(f"no recipe is called {recipe!r}. There are: {', '.join(OF_A)}")
    left = a if isinstance(a, Fp8) else fp8_quantize(a, OF_A[recipe])
    right = b if isinstance(b, Fp8) else fp8_quantize(b.t(), OF_B[recipe]).t
    return gemm(
        left.values, right.values, scales=(left.scales, right.scales), bias=bias,
        activation=activation, out_dtype=out_dtype, backend=backend,
    )  # fmt: skip


def fp4_gemm(
    a: Tensor | Fp4,
    b: Tensor | Fp4,
    *,
    format: Format = "nvfp4",  # noqa: A002
    bias: Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    backend: str = "auto",
) -> Tensor:
    """Compute activation(a bᵀ + bias) with a [m,k] and b [n,k] in FP4, EMULATED unless `native`.

    The operands are rounded exactly to NVFP4 or MXFP4 along k; their product is then one of
    bfloat16, which holds every such number (float32 on a CPU).

    Args:
        a, b: matrices, which are quantised here, or ones that `fp4_quantize` made.
        format: `nvfp4` or `mxfp4`, of what is quantised here.
        bias, activation, out_dtype: as for `gemm`.
        backend: as for `gemm`, or `native`: the tensor cores of Blackwell (compute capability 10
            on), which multiply FP4 themselves. `auto` does not take it, as it never ran on one. See
            `fp4_backend` for what runs.

    Raises:
        ValueError: if the inputs do not fit together, or the named backend cannot compute them.
    """
    left, right = (x if isinstance(x, Fp4) else fp4_quantize(x, format) for x in (a, b))
    if left.format != right.format:
        raise ValueError(f"both operands need one format; got {left.format} and {right.format}")
    out = _native(left, right) if backend == "native" else _emulate(left, right, backend)
    from gpudeck.accel.primitives.gemm.plain import activate

    return activate(out if bias is None else out + bias.float(), activation or "none").to(out_dtype)


def fp4_backend(a: Fp4, b: Fp4, *, backend: str = "auto") -> str:
    """Return what `fp4_gemm` runs for these operands: `native`, or EMULATED and by which backend.

    Raises:
        ValueError: if the named backend cannot compute them.
    """
    if backend == "native":
        _check_native(a, b)
        return backend
    left, right = _unscaled(a, b)
    choice = explain_gemm(left, right, out_dtype=torch.float32, backend=backend)
    held = str(left.dtype).removeprefix("torch.")
    return f"{choice.backend}, FP4 is EMULATED in {held} on this device"


def _emulate(left: Fp4, right: Fp4, backend: str) -> Tensor:
    # the scale of both tensors is applied to the sums, as bfloat16 could not hold it
    out = gemm(*_unscaled(left, right), out_dtype=torch.float32, backend=backend)
    return out * (left.tensor_scale * right.tensor_scale)


def _unscaled(left: Fp4, right: Fp4) -> tuple[Tensor, Tensor]:
    held = torch.bfloat16 if left.packed.device.type == "cuda" else torch.float32
    return left.unscaled(held), right.unscaled(held).t()


def _native(left: Fp4, right: Fp4) -> Tensor:
    from gpudeck.accel.primitives.gemm import fp4

    _check_native(left, right)
    return fp4.multiply(left, right, torch.float32)


def _check_native(left: Fp4, right: Fp4) -> None:
    from gpudeck.accel.primitives.gemm import fp4

    if left.columns != right.columns:
        raise ValueError(f"both operands must share k; got {left.columns} and {right.columns}")
    if (why := fp4.refusal(left.packed.device)) is not None:
        raise CannotCompute("native", why, ("auto",))
