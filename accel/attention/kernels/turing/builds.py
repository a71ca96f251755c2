"""Describe how each kernel is compiled for a problem: its macros, threads and shared memory."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from gpudeck.accel.attention.kernels.turing.arguments import declare
from gpudeck.accel.runtime.cuda_function import CudaFunction
from gpudeck.accel.runtime.nvrtc import compile_cuda

CAPABILITY = (7, 5)
LARGEST_HEAD, LARGEST_HEAD_BACKWARD = 256, 128
ROWS = 16
"""The rows of a warp."""
Bias = Literal["none", "bool", "float"]


class Kind(NamedTuple):
    """Hold what the kernels compile in of a problem."""

    head_dim: int
    """A multiple of 8."""
    left: bool = False
    right: bool = False
    softcap: bool = False
    bias: Bias = "none"
    alibi: bool = False
    ragged: bool = False
    bias_grad: bool = False

    @property
    def width(self) -> int:
        """Return the head size of tiles."""
        if self.head_dim > 192:
            return 256
        return 192 if self.head_dim > 128 else -(-self.head_dim // 16) * 16

    @property
    def pitch(self) -> int:
        """Return the elements from row to row of a tile; see `place` in tiles.cu."""
        return self.width + 8 if self.width % 64 else self.width

    @property
    def is_heavy(self) -> bool:
        """Return whether what is done to scores takes registers that wide tiles need, too."""
        return self.width > 64 and (self.softcap or self.alibi or self.bias != "none")

    def macros(self) -> dict[str, int]:
        """Return the macros that all kernels have."""
        return {
            "HEAD": self.head_dim, "WIDTH": self.width, "LEFT": self.left, "RIGHT": self.right,
            "SOFTCAP": self.softcap, "BIAS": ("none", "bool", "float").index(self.bias),
            "ALIBI": self.alibi, "RAGGED": self.ragged, "BIAS_GRAD": self.bias_grad,
        }  # fmt: skip


class Build(NamedTuple):
    """Describe a kernel before it is compiled; hashable."""

    kernel: str
    file: str
    macros: tuple[tuple[str, int], ...]
    threads: int
    tile_rows: int
    """The rows of all tiles in shared memory, in float16."""
    pitch: int

    @property
    def rows(self) -> int:
        """Return the rows of a block: queries, or keys in `attention_keys`."""
        return self.threads // 32 * ROWS

    @property
    def shared(self) -> int:
        """Return the bytes of shared memory of a block."""
        return 2 * self.tile_rows * self.pitch

    @property
    def source(self) -> str:
        """Return the CUDA C++ of the kernel."""
        return declare() + _read("tiles.cu") + _read(self.file)

    def compile(self, target: str) -> bytes:
        """Return the code for a target; see `compile_cuda`."""
        return compile_cuda(self.source, target, dict(self.macros))


def forward_build(kind: Kind) -> Build:
    """Return the forward pass."""
    wide = kind.width > 128
    keys, blocks = (16, 1) if wide else (32, 2) if kind.is_heavy else (64, 2)
    more = {"KEYS": keys, "BLOCKS": blocks, "QUERIES_KEPT": not wide}
    # queries that stay in registers pass through the tiles of keys and values
    rows = 2 * keys + 64 if wide else max(2 * keys, 64)
    return _build("attention_forward", "forward.cu", kind, 128, rows, more)


def delta_build(kind: Kind) -> Build:
    """Return the sums of dout x out of each row."""
    return _build("attention_delta", "backward.cu", kind, 128, 0, {"DELTA": 1})


def keys_build(kind: Kind) -> Build:
    """Return what computes dk and dv."""
    queries = 32 if kind.width <= 64 else 16
    more = {"QUERIES": queries, "BLOCKS": 1, "KEYS_SIDE": 1}
    return _build("attention_keys", "backward.cu", kind, 256, 128 + 4 * queries, more)


def queries_build(kind: Kind) -> Build:
    """Return what computes dq, and dbias if that is asked for."""
    keys = 16 if kind.is_heavy else 32
    more = {"KEYS": keys, "BLOCKS": 2, "QUERIES_SIDE": 1}
    return _build("attention_queries", "backward.cu", kind, 128, max(4 * keys, 64), more)


@lru_cache(maxsize=512)
def load(build: Build, device: torch.device) -> CudaFunction:
    """Return a kernel, compiled and loaded on a GPU.

    On a newer GPU than the kernels are for, the driver translates their PTX.
    """
    exact = torch.cuda.get_device_capability(device) == CAPABILITY
    code = build.compile("sm_75" if exact else "compute_75")
    return CudaFunction(code, build.kernel, build.threads, build.shared, device)


def _build(
    kernel: str, file: str, kind: Kind, threads: int, tile_rows: int, more: dict[str, int]
) -> Build:
    macros = {**kind.macros(), **more, "THREADS": threads}
    told = tuple((name, int(value)) for name, value in macros.items())
    return Build(kernel, file, told, threads, tile_rows, kind.pitch)


@lru_cache(maxsize=8)
def _read(file: str) -> str:
    return (Path(__file__).parent / file).read_text()
