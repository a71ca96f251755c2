"""Describe a matrix product as one validated value that holds all that dispatch needs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from gpudeck.accel.lessons.store import step

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
ACTIVATIONS = ("none", "relu", "silu", "gelu")
BLOCK = 128
"""The elements of the reduced dimension that share a scale, if not all of them do."""

Scaling = Literal["none", "outer", "block"]
"""`outer`: scales of rows or of the whole tensor, applied at the end; `block`: of 128 elements of
the reduced dimension, applied while sums are made."""


class Steps(NamedTuple):
    """Say how many rows (of A, or columns of B) share a scale; 0 if all do."""

    a: int
    b: int


NO_STEPS = Steps(0, 0)
_SIZES = ("batch", "m", "n", "k")
_MACHINE = ("device", "capability", "deterministic")


@dataclass(frozen=True)
class Problem:
    """The product of a [batch, m, k] and b [batch, k, n], with what follows it."""

    batch: int
    m: int
    n: int
    k: int
    dtype: torch.dtype
    """Of both operands; FP8's two may be mixed, and this is that of a."""
    out_dtype: torch.dtype
    device: torch.device
    capability: tuple[int, int] | None
    scaling: Scaling = "none"
    steps: Steps = NO_STEPS
    bias: bool = False
    activation: str = "none"
    a_along: bool = True
    """True if the elements of a row of a lie side by side."""
    b_along: bool = True
    """True if the elements of a column of b lie side by side, as those of a weight [n,k]."""
    boxes: bool = True
    """True if the copy engine (TMA) can move both: addresses and strides are multiples of 16 bytes.
    """
    tile: int | None = None
    """The rows and columns of a tile of the result that the caller asks for."""
    deterministic: bool = False
    """True if the result must not depend on what was measured when."""

    def __str__(self) -> str:
        sizes = f"{self.m} x {self.n} x {self.k}, {self.precision}"
        return sizes if self.batch == 1 else f"{self.batch} times {sizes}"

    @property
    def flops(self) -> float:
        """Return the floating-point operations of the product."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def moved(self) -> float:
        """Return the fewest bytes: each operand read once, the result written once."""
        read = (self.m + self.n) * self.k * self.dtype.itemsize
        return float(self.batch * (read + self.m * self.n * self.out_dtype.itemsize))

    @property
    def precision(self) -> str:
        """Return the name of the operands' numbers with their scaling, as tables have it."""
        name = str(self.dtype).removeprefix("torch.")
        if self.dtype not in FP8:
            return name
        if self.scaling == "block":
            return f"fp8-block{self.steps.a}x{self.steps.b}"
        return "fp8-row" if 1 in self.steps else "fp8-tensor"

    @property
    def spot(self) -> str:
        """Return what problems share that are computed fastest by the same backend.

        Rows and batches, which vary from call to call, are rounded to steps; the sizes of weights,
        and whatever else changes the work of a kernel, are told exactly.
        """
        sizes = f"batch{step(self.batch)} rows{step(self.m)} {self.n}x{self.k}"
        rest = [
            f"{field.name}={value}"
            for field in dataclasses.fields(self)
            if field.name not in (*_SIZES, *_MACHINE)
            and (value := getattr(self, field.name)) != field.default
        ]
        return " ".join([sizes, *rest]).replace("torch.", "")
