"""Run Marlin and Machete, as the package vllm builds them, on weights in four bits with zeros.

The library is loaded without importing vllm itself. Both take a matrix's scales in bfloat16, and
their own order of its weights, which is computed here once for each matrix.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.primitives.quantize.int4 import Int4

_LIBRARY = "_C_stable_libtorch.abi3.so"
_UINT4 = 4 << 8 | 1 << 50
"""How these operators name a number of four bits without a sign: no exponent, four bits of
mantissa, no bias, and IEEE's form of NaN."""
_WORD = 8
"""The numbers of four bits in a word of 32."""
_BLOCK = 8
"""Marlin keeps the scales of 64 columns as a transposed block of 8 by 8."""
_INTERLEAVED = (0, 2, 4, 6, 1, 3, 5, 7)
"""The order of the zeros in a word of Marlin's."""


@lru_cache(maxsize=1)
def find_operators() -> Any:
    """Return vllm's operators, or None where its library is not installed."""
    package = util.find_spec("vllm")
    for place in (package and package.submodule_search_locations) or ():
        if (file := Path(place) / _LIBRARY).is_file():
            torch.ops.load_library(str(file))  # type: ignore[no-untyped-call]
            return torch.ops._C
    return None


class Marlin:
    """Hold a matrix as Marlin's kernel reads it."""

    def __init__(self, b: Int4) -> None:
        """Reorder the weights, scales and zeros of a matrix on a GPU."""
        self.rows, self.columns = b.shape
        device = b.packed.device
        self._none = torch.empty(0, dtype=torch.int32, device=device)
        self._packed = find_operators().gptq_marlin_repack(
            words_of_columns(b), self._none, self.columns, self.rows, 4, False
        )
        self._scales = in_blocks(b.scales.T.to(torch.bfloat16))
        zeros = in_blocks(b.zeros.T.int()).view(-1, _WORD)[:, list(_INTERLEAVED)]
        self._zeros = packed_words(zeros.reshape(b.scales.shape[1], self.rows))
        multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
        self._locks = torch.zeros(multiprocessors, dtype=torch.int32, device=device)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply vectors [M, K] in bfloat16 by the matrix; return [M, N], summed in float32."""
        return find_operators().marlin_gemm(
            x, None, self._packed, None, self._scales, None, None, self._zeros, self._none,
            self._none, self._locks, _UINT4, len(x), self.rows, self.columns, True, False, True,
            False,
        )  # fmt: skip


class Machete:
    """Hold a matrix as Machete's kernel reads it."""

    def __init__(self, b: Int4) -> None:
        """Reorder the weights of a matrix on a GPU; its zeros are kept times their scales."""
        words, bf16 = words_of_columns(b), torch.bfloat16
        self._packed = find_operators().machete_prepack_B(
            words.t().contiguous().t(), bf16, _UINT4, bf16
        )
        self._scales = b.scales.T.to(bf16).contiguous()
        self._zeros = (-b.scales * b.zeros.float()).T.to(bf16).contiguous()
        self._group = b.group

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply vectors [M, K] in bfloat16 by the matrix; return [M, N]."""
        return find_operators().machete_mm(
            x, self._packed, _UINT4, None, self._scales, self._zeros, self._group, None, None, None
        )


def words_of_columns(b: Int4) -> Tensor:
    """Return the weights as GPTQ stores them: int32 [K / 8, N], the first row in the low bits."""
    rows, columns = b.shape
    values = torch.stack((b.packed & 15, b.packed >> 4), dim=2).view(rows, columns)
    return packed_words(values.int()).T.contiguous()


def packed_words(values: Tensor) -> Tensor:
    """Pack numbers from 0 to 15 [N, K] into int32 [N, K / 8], the first in the low bits."""
    parts = values.view(len(values), -1, _WORD).to(torch.int64)
    places = 4 * torch.arange(_WORD, device=values.device)
    words = (parts << places).sum(2)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def in_blocks(x: Tensor) -> Tensor:
    """Return [groups, N] with each 64 columns as a transposed block."""
    blocks = x.reshape(len(x), -1, _BLOCK, _BLOCK)
    return blocks.transpose(2, 3).reshape(x.shape).contiguous()
