"""The optimizers, and the course of their learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gpudeck.accel.training.adapters import Model
from gpudeck.accel.training.moments import pack, unpack
from gpudeck.accel.training.ranks import divided_like
from gpudeck.accel.training.settings import Settings

BETAS = (0.9, 0.95)
LION_BETAS = (0.9, 0.99)
EPS = 1e-8
MOMENTUM = 0.95
_UNPACKED = 2**26
"""The most numbers whose moments are in float32 at a time, if they are kept in eight bits."""


class Lion(torch.optim.Optimizer):
    """Move each weight by the sign of a mean of its gradients; only one mean is remembered.

    Source: Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv 2302.06675,
    algorithm 2.
    """

    def __init__(self, weights: Iterable[dict[str, Any]], lr: float) -> None:
        super().__init__(weights, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change all weights that have a gradient."""
        assert closure is None
        slow, fast = LION_BETAS
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            if not weights:
                continue
            gradients = [w.grad for w in weights]
            means = [self._mean(w) for w in weights]
            moves = torch._foreach_lerp(means, gradients, 1 - slow)
            torch._foreach_sign_(moves)
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, moves, alpha=-group["lr"])
            torch._foreach_lerp_(means, gradients, 1 - fast)

    def _mean(self, weight: Tensor) -> Tensor:
        mean: Tensor = self.state[weight].setdefault("mean", torch.zeros_like(weight))
        return mean


class Optimizers:
    """Change the weights of a model: one optimizer for all, or another one for some of them."""

    def __init__(self, model: Model, settings: Settings) -> None:
        """Choose the optimizer of each weight by the setting `optimizer`.

        Weights of norms do not decay. Muon changes the matrices of the layers, and AdamW what Muon
        is not made for: embedding, output matrix and vectors. Muon's steps are scaled to the size
        of AdamW's (Liu et al., Muon is Scalable for LLM Training, arXiv 2502.16982, section 2.2),
        so both use the same rate.
        """
        self._weights = model.trained()
        rate, decay = settings.highest_rate, settings.weight_decay
        matrices = model.matrices()
        vectors = [w for name, w in self._weights.items() if name not in matrices]
        inner = {}
        if settings.optimizer == "muon":
            inner = {name: w for name, w in matrices.items() if ".layers." in name}
        rest = [w for name, w in matrices.items() if name not in inner]
        self._packed, self._compiled = settings.moments == "8bit", settings.compile
        self.parts: list[torch.optim.Optimizer] = []
        for weights, share in ((rest, decay), (vectors, 0.0)):
            for some in self._portions(weights):
                group = {"params": some, "weight_decay": share}
                if settings.optimizer == "lion":
                    self.parts.append(Lion([group], rate))
                else:
                    self.parts.append(torch.optim.AdamW([group], rate, BETAS, EPS, fused=True))
        for some in self._portions(list(inner.values())):
            self.parts.append(
                torch.optim.Muon(some, rate, decay, MOMENTUM, adjust_lr_fn="match_rms_adamw")
            )

    def _portions(self, weights: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
        """Yield weights of which one optimizer takes care: all, or few if moments are packed."""
        some: list[nn.Parameter] = []
        for weight in weights:
            if some and self._packed and sum(w.numel() for w in some) >= _UNPACKED:
                yield some
                some = []
            some.append(weight)
        if some:
            yield some

    def step(self) -> None:
        """Change the weights by their gradients, and forget these."""
        for part in self.parts:
            if self._packed:
                unpack(part, compiled=self._compiled)
            part.step()
            if self._packed:
                pack(part, compiled=self._compiled)
            part.zero_grad(set_to_none=True)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of all weights."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate

    def states(self) -> dict[str, Tensor]:
        """Return everything that the optimizers remember, by weight and name."""
        return {
            f"{name}/{kind}": value
            for part in self.parts
            for name, weight in self._weights.items()
            if weight in part.state
            for kind, value in part.state[weight].items()
        }

    @torch.no_grad()
    def load_states(self, saved: dict[str, Tensor]) -> None:
        """Restore what `states` returned."""
        owners = {
            weight: part
            for part in self.parts
            for group in part.param_groups
            for weight in group["params"]
        }
        for key, value in saved.items():
            name, kind = key.rsplit("/", 1)
            weight = self._weights[name]
            owners[weight].state[weight][kind] = divided_like(value, weight)


def rate_at(step: int, settings: Settings) -> float:
    """Return the learning rate of a step, counted from 0.

    It rises linearly during warm-up. Then it falls along half a cosine (`cosine`), or stays and
    falls linearly at the end (`wsd`), to the share `final`.
    """
    warm, highest = settings.warmup * settings.steps, settings.highest_rate
    if step < warm:
        return highest * (step + 1) / (warm + 1)
    if settings.schedule == "cosine":
        done = (step - warm) / max(settings.steps - warm, 1)
        share = 0.5 * (1 + math.cos(math.pi * done))
    else:
        left = (settings.steps - step) / max(settings.decay * settings.steps, 1)
        share = min(1.0, left)
    return highest * (settings.final + (1 - settings.final) * share)
