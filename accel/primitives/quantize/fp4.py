"""Round tensors to FP4 (E2M1) in NVIDIA's format NVFP4 and in the OCP's MXFP4.

NVFP4 has a scale in E4M3 for 16 neighbours and one in float32 for the tensor; MXFP4 has a power of
two (E8M0) for 32 neighbours. A block with a NaN or an infinity gets the scale NaN, as E2M1 has
neither.

Sources: OCP Microscaling Formats (MX) Specification 1.0, sections 5.3.3, 5.4.1 and 6.3; NVIDIA,
"Introducing NVFP4 for Efficient and Accurate Low-Precision Inference" (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Format = Literal["nvfp4", "mxfp4"]
NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of E2M1 by their three bits; the fourth is the sign."""
BLOCKS = {"nvfp4": 16, "mxfp4": 32}
"""Neighbours in a row that share a scale."""
_LARGEST = NUMBERS[-1]
_LARGEST_EXPONENT = 2
_E4M3 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Fp4:
    """Hold a matrix [rows, columns] in FP4."""

    packed: Tensor
    """uint8 [rows, columns / 2], of whole blocks; the first of two neighbours has the lower bits.
    """
    scales: Tensor
    """One for each block: float8_e4m3fn (NVFP4) or float8_e8m0fnu (MXFP4)."""
    tensor_scale: Tensor
    """float32 []: what all scales of NVFP4 are multiplied with; 1 for MXFP4."""
    columns: int
    format: Format

    def unscaled(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the matrix without the scale of the tensor, which bfloat16 holds exactly."""
        low, high = self.packed & 15, self.packed >> 4
        codes = torch.stack((low, high), -1).flatten(1)
        table = torch.tensor((*NUMBERS, *(-x for x in NUMBERS)), device=codes.device)
        blocks = table[codes.int()].reshape(*self.scales.shape, BLOCKS[self.format])
        return (blocks * self.scales.float().unsqueeze(-1)).flatten(1)[:, : self.columns].to(dtype)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the matrix that this stands for."""
        return (self.unscaled() * self.tensor_scale).to(dtype)


def fp4_quantize(x: Tensor, format: Format = "nvfp4", *, tensor_scale: bool = True) -> Fp4:  # noqa: A002
    """Round a matrix to FP4, to nearest even.

    Args:
        x: [rows, columns], float16, bfloat16 or float32.
        format: `nvfp4` or `mxfp4`.
        tensor_scale: whether NVFP4 gets a scale for the tensor; without one it is 1.

    Raises:
        ValueError: says what was given and what is possible.
    """
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(
            "fp4_quantize takes a matrix of float16, bfloat16 or float32; got"
            f" {list(x.shape)} of {x.dtype}"
        )
    if format not in BLOCKS:
        raise ValueError(f"no format is called {format!r}. There are: {', '.join(BLOCKS)}")
    columns, size = x.shape[1], BLOCKS[format]
    padded = torch.nn.functional.pad(x.float(), (0, -columns % size))
    padded = padded.reshape(len(x), (columns + size - 1) // size, size)
    most = padded.abs().amax(2)
    one = torch.ones((), dtype=torch.float32, device=x.device)
    if format == "nvfp4":
        whole = _tensor_scale(most) if tensor_scale else one
        scales = _e4m3_scales(most, whole)
        inverse = (1.0 / whole) / scales.float()
    else:
        whole, scales = one, _e8m0_scales(most)
        inverse = 1.0 / scales.float()
    codes = _codes(padded * inverse.unsqueeze(-1)).flatten(1)
    return Fp4(codes[:, 0::2] | codes[:, 1::2] << 4, scales, whole, columns, format)


def _tensor_scale(most: Tensor) -> Tensor:
    """Return the scale that makes the largest block's scale the largest of E4M3."""
    finite = torch.where(torch.isfinite(most), most, 0.0)
    largest = finite.amax() if finite.numel() else finite.new_zeros(())
    return torch.where(largest > 0, largest / (torch.finfo(_E4M3).max * _LARGEST), 1.0)


def _e4m3_scales(most: Tensor, whole: Tensor) -> Tensor:
    """Return NVFP4's scales of blocks; those of tiny blocks are the smallest normal number."""
    limits = torch.finfo(_E4M3)
    scale = (most / _LARGEST / whole).clamp(limits.tiny, limits.max)
    return torch.where(torch.isfinite(most), scale, torch.nan).to(_E4M3)


def _e8m0_scales(most: Tensor) -> Tensor:
    """Return the powers of two of MX, whose exponent is that of the largest element, minus 2."""
    _, exponent = torch.frexp(most)  # most is in [2^(e-1), 2^e)
    exponent = torch.where(most > 0, exponent - 1 - _LARGEST_EXPONENT, -127).clamp(-127, 127)
    bits = torch.where(torch.isfinite(most), exponent + 127, 255)
    return bits.to(torch.uint8).view(torch.float8_e8m0fnu)


def _codes(x: Tensor) -> Tensor:
    """Return the four bits of each element, uint8, saturated and rounded to nearest even."""
    table = torch.tensor(NUMBERS, device=x.device)
    size = x.abs().clamp(max=_LARGEST).contiguous()
    # midpoints belong to the even neighbour: to the lower one where its code is even
    middles = (table[1:] + table[:-1]) / 2
    above = torch.bucketize(size, middles, right=False)
    at_most = torch.bucketize(size, middles, right=True)
    code = torch.where(above % 2 == 0, above, at_most)
    code = torch.where(torch.isnan(x), 0, code)
    return (code + 8 * torch.signbit(x)).to(torch.uint8)
