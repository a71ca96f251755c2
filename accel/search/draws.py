"""Draw inputs: many distributions, so that what is right only for usual values is found out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]


def _normal(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=random, device=random.device)


def _uniform(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=random, device=random.device)


def _outliers(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    x = torch.randn(shape, generator=random, device=random.device)
    return torch.where(torch.rand(shape, generator=random, device=random.device) < 0.01, 30 * x, x)


def _constant(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    return torch.randn((), generator=random, device=random.device).expand(shape)


def _ramp(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=random, device=random.device).sort(dim=-1).values


def _sparse(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Return values of which half are zero; more zeros would hide errors behind a sparse factor."""
    x = torch.randn(shape, generator=random, device=random.device)
    return torch.where(
        torch.rand(shape, generator=random, device=random.device) < 0.5,
        torch.zeros((), device=random.device),
        x,
    )


def _rows_apart(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Return rows of very different sizes, of which none may be neglected beside another."""
    scales = 10.0 ** (3 * torch.rand((*shape[:-1], 1), generator=random, device=random.device) - 2)
    return torch.randn(shape, generator=random, device=random.device) * scales


DRAWS: dict[str, Draw] = {
    "normal": _normal,
    "uniform": _uniform,
    "large": lambda shape, random: 50 * torch.randn(shape, generator=random, device=random.device),
    "small": lambda shape, random: (
        1e-3 * torch.randn(shape, generator=random, device=random.device)
    ),
    "shifted": lambda shape, random: 3 + torch.randn(shape, generator=random, device=random.device),
    "negative": lambda shape, random: -torch.rand(shape, generator=random, device=random.device),
    "outliers": _outliers,
    "constant": _constant,
    "sorted": _ramp,
    "sparse": _sparse,
    "rows apart": _rows_apart,
}
"""By name; each returns float32 on the generator's device, the same for the same state."""


def draw(name: str, shape: tuple[int, ...], dtype: torch.dtype, random: torch.Generator) -> Tensor:
    """Return values of a distribution."""
    return DRAWS[name](shape, random).to(dtype)
