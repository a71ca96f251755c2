"""The operations of the transformer, which each kind of device computes by kernels of its own."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from accel.serving.batch import Batch
from accel.serving.cache import PagedCache
from accel.serving.families import Config
from accel.serving.linear import Linear


class Backend(Protocol):
    """Compute the parts of a transformer; the modules `cpu` and `gpu` do."""

    def multiply(self, linear: Linear, x: Tensor) -> Tensor:
        """Return x [T, K] times the matrix, plus its bias: [T, N] in the dtype of x."""
        ...

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return the rows of x [..., C] divided by their root mean square, times weight [C]."""
        ...

    def add_norm(
        self, x: Tensor, part: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return x + part [T, C], and its rows normalized."""
        ...

    def gated(self, linear: Linear, x: Tensor, activation: str) -> Tensor:
        """Return act(gate) * up for x [T, K], of a matrix that is a gate and an up."""
        ...

    def turn_and_store(
        self,
        qkv: Tensor,
        heads: int,
        turn: tuple[Tensor, Tensor] | None,
        norms: tuple[Tensor, Tensor] | None,
        eps: float,
        slots: Tensor,
        cache: PagedCache,
        layer: int,
    ) -> Tensor:
        """Normalize and rotate queries and keys, store keys and values, and return the queries.

        Shapes: qkv [T, H + 2 Hkv, D]; turn, the cosine and sine [T, dims / 2]; norms [D] each;
        slots [T]; the result [T, H, D].
        """
        ...

    def attend(
        self, q: Tensor, layer: int, batch: Batch, cache: PagedCache, config: Config
    ) -> Tensor:
        """Return what queries [T, H, D] find in the paged keys and values of their sequences."""
        ...


def backend_for(device: torch.device) -> Backend:
    """Return the kernels of a device. Imports Numba or Triton."""
    if device.type == "cuda":
        from accel.serving import gpu

        return gpu
    from accel.serving import cpu

    return cpu
