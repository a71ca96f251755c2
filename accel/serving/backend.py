"""The operations of the transformer, which each kind of device computes by kernels of its own."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from gpudeck.accel.serving.batch import Batch
from gpudeck.accel.serving.cache import PagedCache, Place
from gpudeck.accel.serving.families import Config
from gpudeck.accel.serving.linear import Heads, Linear, Norm


class Backend(Protocol):
    """Compute the parts of a transformer; the modules `cpu` and `gpu` do."""

    def multiply(
        self,
        linear: Linear,
        x: Tensor,
        norm: Norm | None = None,
        add: Tensor | None = None,
        precise: bool = False,
    ) -> Tensor:
        """Return x [T, K], normalized if asked, times the matrix, plus its bias and `add` [T, N].

        The result is in the dtype of x, or in fp32 if it is to be precise.
        """

    def normalized(self, x: Tensor, norm: Norm) -> Tensor:
        """Return the rows of x [..., C] normalized."""

    def gated(self, linear: Linear, x: Tensor, norm: Norm | None, activation: str) -> Tensor:
        """Return act(gate) * up for x [T, K], normalized if asked, of a gate and an up."""

    def queries(
        self, linear: Linear, x: Tensor, norm: Norm | None, heads: Heads, place: Place
    ) -> Tensor:
        """Compute and rotate queries and keys, store keys and values, and return the queries.

        Shapes: x [T, C]; the result [T, H, D].
        """

    def attend(
        self, q: Tensor, layer: int, batch: Batch, cache: PagedCache, config: Config
    ) -> Tensor:
        """Return what queries [T, H, D] find in the paged keys and values of their sequences."""


def backend_for(device: torch.device) -> Backend:
    """Return the kernels of a device. Imports Numba or Triton."""
    if device.type == "cuda":
        from gpudeck.accel.serving import gpu

        return gpu
    from gpudeck.accel.serving import cpu

    return cpu
