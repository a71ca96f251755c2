"""What a layer is made of: a matrix as it is stored (dense, FP8, int8, int4), a norm, heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpudeck.accel.primitives.quantize.int4 import Int4, int4_quantize

Format = Literal["dense", "int8", "fp8", "int4"]
FP8_BLOCK = 128
"""Rows and columns that share a scale in FP8."""
_FP8_MOST = 448.0


@dataclass(frozen=True)
class Linear:
    """Hold a matrix [N, K] of N outputs, and its bias."""

    format: Format
    values: Tensor
    """[N, K]: fp32, fp16 or bf16; int8; float8_e4m3fn; or uint8 [N, K / 2] with two int4, the
    first in the low half."""
    scales: Tensor | None = None
    """fp32: [N] with int8; [N / 128, K / 128], rounded up, with FP8; [N, groups] with int4."""
    zeros: Tensor | None = None
    """uint8 [N, groups] with int4: a weight is (value - zero) * scale."""
    bias: Tensor | None = None
    """[N]"""

    @property
    def shape(self) -> tuple[int, int]:
        """Return N and K."""
        rows, columns = self.values.shape
        return rows, columns * 2 if self.format == "int4" else columns

    @cached_property
    def array(self) -> npt.NDArray[np.generic]:
        """Return the values' memory on a CPU as an array; bf16 as uint16."""
        if self.values.dtype == torch.bfloat16:
            bits: npt.NDArray[np.generic] = self.values.view(torch.int16).numpy()
            return bits.view(np.uint16)
        found: npt.NDArray[np.generic] = self.values.numpy()
        return found

    @property
    def nbytes(self) -> int:
        """Return the bytes of all its tensors."""
        return sum(
            t.nbytes for t in (self.values, self.scales, self.zeros, self.bias) if t is not None
        )

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the matrix in floating point."""
        if self.format == "dense":
            return self.values.to(dtype)
        assert self.scales is not None
        if self.format == "int8":
            return (self.values.float() * self.scales.unsqueeze(1)).to(dtype)
        rows, columns = self.shape
        if self.format == "fp8":
            wide = self.scales.repeat_interleave(FP8_BLOCK, 0)[:rows]
            wide = wide.repeat_interleave(FP8_BLOCK, 1)[:, :columns]
            return (self.values.float() * wide).to(dtype)
        return self.int4.dequantize(dtype)

    @property
    def int4(self) -> Int4:
        """Return it as what products with four bits take."""
        assert self.scales is not None and self.zeros is not None
        return Int4(self.values, self.scales, self.zeros)

    def as_dense(self, dtype: torch.dtype) -> Linear:
        """Return it in floating point."""
        return Linear("dense", self.dense(dtype), bias=self.bias)

    def quantized(self, to: Format) -> Linear:
        """Return it in another format; each weight is rounded to the nearest value there is."""
        if to == self.format:
            return self
        weight = self.dense(torch.float32)
        if to == "dense":
            return Linear("dense", weight, bias=self.bias)
        made = of_int4(int4_quantize(weight)) if to == "int4" else _ROUNDED[to](weight)
        return replace(made, bias=self.bias)

    @staticmethod
    def join(parts: Sequence[Linear]) -> Linear:
        """Return one matrix with the outputs of all, which share their inputs.

        It is dense if they cannot be joined as they are, since their tiles would not fit together.
        """
        first = parts[0]
        if len(parts) == 1:
            return first
        whole = first.format != "fp8" or all(p.shape[0] % FP8_BLOCK == 0 for p in parts[:-1])
        if not whole or {p.format for p in parts} != {first.format}:
            joined = torch.cat([p.dense(torch.float32) for p in parts])
            return Linear("dense", joined, bias=_biases(parts))
        scales, zeros = [p.scales for p in parts], [p.zeros for p in parts]
        return Linear(
            first.format,
            torch.cat([p.values for p in parts]),
            None if first.scales is None else torch.cat([s for s in scales if s is not None]),
            None if first.zeros is None else torch.cat([z for z in zeros if z is not None]),
            _biases(parts),
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> Linear:
        """Return it on a device; a dense matrix and the bias also in `dtype`."""

        def moved(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device).contiguous()

        values = self.values.to(dtype) if self.format == "dense" else self.values
        bias = None if self.bias is None else self.bias.to(device, torch.float32)
        return Linear(
            self.format, values.to(device).contiguous(), moved(self.scales), moved(self.zeros), bias
        )


class Norm(NamedTuple):
    """Divide rows by their root mean square, times a weight."""

    weight: Tensor
    """[C] fp32"""
    eps: float


class Heads(NamedTuple):
    """Describe the vectors that a token has in attention."""

    queries: int
    keys: int
    """As many as there are values; 0: the layer uses those of another."""
    norms: tuple[Norm, Norm] | None
    """Of each query and each key."""
    value_norm: Norm | None = None
    """Of each value."""

    @property
    def every(self) -> int:
        """Return the number of all."""
        return self.queries + 2 * self.keys


def _biases(parts: Sequence[Linear]) -> Tensor | None:
    if all(p.bias is None for p in parts):
        return None
    return torch.cat(
        [
            p.values.new_zeros(p.shape[0], dtype=torch.float32)
            if p.bias is None
            else p.bias.float()
            for p in parts
        ]
    )


def _int8(weight: Tensor) -> Linear:
    scales = weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return Linear("int8", (weight / scales.unsqueeze(1)).round().to(torch.int8), scales)


def _fp8(weight: Tensor) -> Linear:
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % FP8_BLOCK, 0, -rows % FP8_BLOCK))
    tiles = padded.view(padded.shape[0] // FP8_BLOCK, FP8_BLOCK, -1, FP8_BLOCK)
    scales = tiles.abs().amax(dim=(1, 3)).clamp_min(1e-30) / _FP8_MOST
    values = (tiles / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return Linear("fp8", values.view(padded.shape)[:rows, :columns].contiguous(), scales)


_ROUNDED = {"int8": _int8, "fp8": _fp8}


def of_int4(matrix: Int4) -> Linear:
    """Return a matrix in four bits as a Linear."""
    return Linear("int4", matrix.packed, matrix.scales.float(), matrix.zeros)
