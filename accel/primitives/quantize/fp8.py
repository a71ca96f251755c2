"""Round tensors to FP8 with one scale a tensor, row, tile or block.

A scale is the largest finite magnitude of its elements divided by the largest number of the format,
so that value * scale is the element again. A NaN or an infinity has no influence on the scale and
becomes NaN: it is passed on to the results that it belongs to, and to no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

Granularity = Literal["tensor", "row", "tile", "block"]
"""What shares a scale: all elements; a row; 128 neighbours of a row; 128 by 128 elements."""
GRANULARITIES: tuple[str, ...] = get_args(Granularity)
DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
BLOCK = 128
"""The elements along a side of a tile or block."""


@dataclass(frozen=True)
class Fp8:
    """Hold a tensor [rows, columns] in FP8 and its scales.

    Scales are float32: [1,1], [rows,1], [rows, columns/128] or [rows/128, columns/128], rounded up.
    """

    values: Tensor
    scales: Tensor
    granularity: Granularity

    @property
    def t(self) -> Fp8:
        """Return a transposed view, such as a weight [N,K] as the right operand [K,N]."""
        return Fp8(self.values.t(), self.scales.t(), self.granularity)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return value * scale, multiplied in float32."""
        return (self.values.float() * expand(self.scales, self.values.shape)).to(dtype)


def expand(scales: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Return the scale of each element of a matrix, or what broadcasts to that."""
    for dim in (0, 1):
        if scales.shape[dim] not in (1, shape[dim]):
            scales = scales.repeat_interleave(BLOCK, dim).narrow(dim, 0, shape[dim])
    return scales


def fp8_quantize(
    x: Tensor,
    granularity: Granularity = "tensor",
    *,
    dtype: torch.dtype = torch.float8_e4m3fn,
    scale: Tensor | None = None,
) -> Fp8:
    """Round a matrix to FP8, in one pass on a GPU (two for one scale a tensor).

    GPUs before compute capability 8.9 have no FP8: there, as on a CPU, torch rounds.

    Args:
        x: [rows, columns], float16, bfloat16 or float32, of any strides.
        granularity: what shares a scale.
        dtype: float8_e4m3fn or float8_e5m2.
        scale: the scale of the tensor if it is known before, such as from a history of largest
            magnitudes: float32 with one element. Larger elements become the largest number.

    Raises:
        ValueError: says what was given and what is possible.
    """
    check(x, granularity, dtype, scale)
    if by_kernels(x):
        from gpudeck.accel.primitives.quantize.fused import quantize

        return quantize(x, granularity, dtype, scale)
    return emulate(x, granularity, dtype, scale)


def by_kernels(x: Tensor) -> bool:
    """Return True if kernels round this tensor: there is something to round, on a GPU with FP8."""
    return bool(x.numel()) and native(x.device)


@lru_cache(maxsize=64)
def native(device: torch.device) -> bool:
    """Return True if a device computes in FP8: a GPU of compute capability 8.9 or newer."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def emulate(
    x: Tensor, granularity: Granularity, dtype: torch.dtype, scale: Tensor | None = None
) -> Fp8:
    """Compute in torch what the kernels compute, on any device."""
    scales = scales_of(x, granularity, dtype) if scale is None else scale.reshape(1, 1).float()
    return Fp8(round_to(x, 1.0 / expand(scales, x.shape), dtype), scales, granularity)


def scales_of(x: Tensor, granularity: Granularity, dtype: torch.dtype) -> Tensor:
    """Return the scales of a matrix; 1 for elements that are all zero."""
    most = magnitudes(x)
    if granularity == "tensor":
        most = most.amax().reshape(1, 1) if x.numel() else most.new_zeros(1, 1)
    elif granularity == "row":
        most = most.amax(1, keepdim=True) if x.shape[1] else most.new_zeros(len(x), 1)
    else:
        most = _tile(most).amax(2)
        if granularity == "block":
            most = _tile(most.t()).amax(2).t()
    return scale_of(most, dtype)


def scale_of(most: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the scale of elements whose largest magnitude is known, 1 if that is 0.

    The smallest scale is the smallest normal number of float32, so that its inverse is finite.
    """
    # a product is the same on every device; a quotient by a number is not, in torch
    scale = most.float() * (1.0 / torch.finfo(dtype).max)
    scale = scale.clamp(min=torch.finfo(torch.float32).tiny)
    return torch.where(most > 0, scale, 1.0)


def magnitudes(x: Tensor) -> Tensor:
    """Return |x| in float32, 0 where x is not finite."""
    size = x.float().abs()
    return torch.where(torch.isfinite(size), size, 0.0)


def round_to(x: Tensor, inverse: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x * inverse in FP8: saturated, rounded to nearest even; NaN where x is not finite."""
    most = torch.finfo(dtype).max
    product = (x.float() * inverse).clamp(-most, most)
    return torch.where(torch.isfinite(x), product, torch.nan).to(dtype)


def check(x: Tensor, granularity: str, dtype: torch.dtype, scale: Tensor | None) -> None:
    """Raise ValueError for what cannot be quantised."""
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(
            "fp8_quantize takes a matrix of float16, bfloat16 or float32; got"
            f" {list(x.shape)} of {x.dtype}"
        )
    if granularity not in GRANULARITIES:
        raise ValueError(
            f"no granularity is called {granularity!r}. There are: {', '.join(GRANULARITIES)}"
        )
    if dtype not in DTYPES:
        raise ValueError(f"dtype is float8_e4m3fn or float8_e5m2; got {dtype}")
    if scale is not None and (granularity != "tensor" or scale.numel() != 1):
        raise ValueError("a known scale is one number, for the granularity tensor")


def _tile(x: Tensor) -> Tensor:
    """Return [rows, tiles, 128] of a matrix, filled with zeros."""
    rows, columns = x.shape
    padded = torch.nn.functional.pad(x, (0, -columns % BLOCK))
    return padded.reshape(rows, (columns + BLOCK - 1) // BLOCK, BLOCK)
