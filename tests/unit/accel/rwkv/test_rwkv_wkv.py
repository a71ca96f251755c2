"""Compare all forms of the recurrence with the definition in float64, with extreme decays."""

from __future__ import annotations

import math

import pytest
import torch

from gpudeck.accel.rwkv.wkv import chunked, sequential

SLOWEST, FASTEST = 1.0 - 1e-6, math.exp(-math.exp(-0.5))


def problem(
    length: int, decay: float | None = None, batch: int = 2, heads: int = 2, dtype=torch.float64
):
    """Return r, w, k, v, a, b and a state like those of a model; `decay` for all, or random."""
    g = torch.Generator().manual_seed(length)
    r, k, v, key, rate, w = (
        torch.randn(batch, length, heads, 64, generator=g, dtype=torch.float64) for _ in range(6)
    )
    removal = torch.nn.functional.normalize(key, dim=-1)
    w = (
        torch.exp(-math.exp(-0.5) * torch.sigmoid(3 * w))
        if decay is None
        else torch.full_like(w, decay)
    )
    state = torch.randn(batch, heads, 64, 64, generator=g, dtype=torch.float64)
    return tuple(x.to(dtype) for x in (r, w, k, v, -removal, removal * torch.sigmoid(rate), state))


def worst(
    found: tuple[torch.Tensor, torch.Tensor], known: tuple[torch.Tensor, torch.Tensor]
) -> float:
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, known, strict=True))


@pytest.mark.parametrize("decay", [None, SLOWEST, FASTEST])
@pytest.mark.parametrize("length", [1, 64, 65, 150])
def test_every_form_equals_the_definition(length, decay) -> None:
    known = sequential(*problem(length, decay))
    single = problem(length, decay, dtype=torch.float32)
    assert worst(chunked(*problem(length, decay)), known) < 1e-10
    assert worst(chunked(*problem(length, decay), chunk=16), known) < 1e-10
    assert worst(chunked(*single), known) < 1e-4


def test_the_chunked_form_has_the_gradients_of_the_definition() -> None:
    def gradients(form) -> list[torch.Tensor]:
        inputs = [x.requires_grad_() for x in problem(70, batch=1, heads=1)]
        y, state = form(*inputs)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
        return list(torch.autograd.grad((y * weights).sum() + state.square().sum(), inputs))

    for ours, known in zip(gradients(chunked), gradients(sequential), strict=True):
        assert float((ours - known).norm() / known.norm()) < 1e-9
