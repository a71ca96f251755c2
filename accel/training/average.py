"""Keep a moving average of the trained weights, which is evaluated and written in their place.

Source: Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992; the
exponential average with a shorter memory in the first steps is that of diffusers' EMAModel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gpudeck.accel.training.ranks import fill, whole


class Average:
    """Follow some weights."""

    def __init__(self, weights: Mapping[str, nn.Parameter], share: float) -> None:
        """Begin with the weights as they are.

        Args:
            weights: by their names; they are read after each step.
            share: what the average keeps of itself in a step, in the long run.
        """
        self._weights, self._share = weights, share
        self._values = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 1."""
        share = min(self._share, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self._values.values()), list(self._weights.values()), 1 - share)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let the model have the averages for its weights while the block runs."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, weight in self._weights.items():
            kept = weight.clone()
            weight.copy_(self._values[name])
            self._values[name].copy_(kept)

    def states(self) -> dict[str, Tensor]:
        """Return the whole averages by the names of the weights."""
        return {name: whole(value) for name, value in self._values.items()}

    def load_states(self, saved: Mapping[str, Tensor]) -> None:
        """Restore what `states` returned."""
        for name, value in self._values.items():
            fill(value, saved[name])
