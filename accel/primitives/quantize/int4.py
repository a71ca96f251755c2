"""Hold matrices of weights in four bits, with a scale and a zero for each group of a row.

A weight is (value - zero) * scale, with values and zeros from 0 to 15 (zeros of GPTQ up to 16).

Sources: GPTQ, arXiv 2210.17323; AWQ, arXiv 2306.00978, whose files hold eight values in a word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 128
"""The columns of a row that share a scale and a zero; fewer where 128 does not divide a row."""
_MOST = 15
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""The place of each column in a word of AWQ's, whose order is 0 2 4 6 1 3 5 7."""


@dataclass(frozen=True)
class Int4:
    """Hold a matrix [N, K] in four bits."""

    packed: Tensor
    """uint8 [N, K / 2]; the first of two neighbours has the lower bits."""
    scales: Tensor
    """Floating point [N, groups]."""
    zeros: Tensor
    """uint8 [N, groups]."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return N and K."""
        rows, columns = self.packed.shape
        return rows, columns * 2

    @property
    def group(self) -> int:
        """Return the columns that share a scale."""
        return self.shape[1] // self.scales.shape[1]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all its tensors."""
        return self.packed.nbytes + self.scales.nbytes + self.zeros.nbytes

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the matrix that this stands for."""
        rows, columns = self.shape
        pairs = torch.stack((self.packed & 15, self.packed >> 4), dim=2).view(rows, columns)
        groups = pairs.view(rows, self.scales.shape[1], -1).float()
        less = groups - self.zeros.unsqueeze(2)
        return (less * self.scales.float().unsqueeze(2)).view(rows, columns).to(dtype)

    def regroup(self, most: int = GROUP) -> Int4:
        """Return it with groups of at most `most` columns: larger ones' scales come repeatedly."""
        again = self.group // math.gcd(most, self.group)
        scales, zeros = (t.repeat_interleave(again, dim=1) for t in (self.scales, self.zeros))
        return Int4(self.packed, scales, zeros)


def int4_quantize(weight: Tensor, group: int = GROUP) -> Int4:
    """Round a matrix to the nearest of 16 values between the ends of each group.

    Args:
        weight: [N, K], floating point, with an even K.
        group: the columns that share a scale; its greatest common divisor with K is used.

    Raises:
        ValueError: if the matrix is none, or has an odd number of columns.
    """
    if weight.dim() != 2 or not weight.is_floating_point() or weight.shape[1] % 2:
        raise ValueError(
            "int4_quantize takes a matrix of floating-point numbers with an even number of"
            f" columns; got {list(weight.shape)} of {weight.dtype}"
        )
    rows, columns = weight.shape
    groups = weight.float().view(rows, -1, math.gcd(group, columns))
    low, high = groups.amin(2).clamp_max(0), groups.amax(2).clamp_min(0)
    scales = ((high - low) / _MOST).clamp_min(1e-30)
    zeros = (-low / scales).round()
    values = (groups / scales.unsqueeze(2) + zeros.unsqueeze(2)).round().clamp(0, _MOST)
    return Int4(pack(values.view(rows, columns).to(torch.uint8)), scales, zeros.to(torch.uint8))


def pack(values: Tensor) -> Tensor:
    """Pack numbers from 0 to 15 [N, K], uint8, two in a byte [N, K / 2]."""
    return (values[:, 0::2] | (values[:, 1::2] << 4)).contiguous()


def from_gptq(words: Tensor, zeros: Tensor, scales: Tensor) -> Int4:
    """Return a matrix from GPTQ's tensors, whose groups follow each other.

    Args:
        words: `qweight`, int32 [K / 8, N].
        zeros: `qzeros`, int32 [groups, N / 8]; they are stored less one.
        scales: [groups, N].
    """
    values = _nibbles(words).permute(1, 0, 2).flatten(1)
    return Int4(pack(values), scales.T.contiguous(), _nibbles(zeros).flatten(1).T.contiguous() + 1)


def from_awq(words: Tensor, zeros: Tensor, scales: Tensor) -> Int4:
    """Return a matrix from the tensors of AWQ's version `gemm`.

    Args:
        words: `qweight`, int32 [K, N / 8].
        zeros: `qzeros`, int32 [groups, N / 8].
        scales: [groups, N].
    """
    order = torch.tensor(_AWQ_ORDER)
    values, less = (_nibbles(x)[..., order].flatten(1).T.contiguous() for x in (words, zeros))
    return Int4(pack(values), scales.T.contiguous(), less)


def _nibbles(words: Tensor) -> Tensor:
    """Return the eight numbers of each word, lowest bits first: uint8 [..., 8]."""
    places = torch.arange(0, 32, 4, dtype=torch.int32)
    return ((words.unsqueeze(-1) >> places) & 15).to(torch.uint8)
