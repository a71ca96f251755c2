"""The optimizer, and the course of its learning rate."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gpudeck.accel.training.settings import Settings

BETAS = (0.9, 0.95)
EPS = 1e-8


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.AdamW:
    """Return AdamW in one kernel for all weights; weights of norms do not decay."""
    weights = [w for w in model.parameters() if w.requires_grad]
    groups = [
        {"params": [w for w in weights if w.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.highest_rate, betas=BETAS, eps=EPS, fused=True)


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


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all weights."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def states(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return everything that the optimizer remembers, by weight and name."""
    return {
        f"{name}/{kind}": value
        for name, weight in model.named_parameters()
        for kind, value in optimizer.state[weight].items()
    }


@torch.no_grad()
def load_states(
    model: nn.Module, optimizer: torch.optim.Optimizer, saved: dict[str, Tensor]
) -> None:
    """Restore what `states` returned."""
    weights = dict(model.named_parameters())
    for key, value in saved.items():
        name, kind = key.rsplit("/", 1)
        optimizer.state[weights[name]][kind] = value.to(weights[name].device)
