"""The model in training computes the same by the kernels, as on a GPU, as by torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.rwkv import wkv
from gpudeck.assistant.training import network


def loss_and_gradients(form: str) -> dict[str, Tensor]:
    """Return the loss of a small model on random tokens, and its gradients."""
    torch.manual_seed(4)
    model = network.Network(2, 64, 40)
    with torch.no_grad():  # many weights begin at zero, and would hide what the recurrence does
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    tokens = torch.randint(40, (2, 21))
    wanted = tokens[:, 1:].flatten()
    with pytest.MonkeyPatch.context() as patches:
        run = {"torch": wkv.chunked, "kernels": network.by_kernels}[form]
        patches.setattr(network, "_recurrence", run)
        loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), wanted)
    names = list(model.canonical())
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    gradients = {n: g for n, g in zip(names, found, strict=True) if g is not None}
    return {"loss": loss.detach(), **gradients}


@pytest.mark.xdist_group("interpreted")
def test_a_step_by_the_kernels_is_that_by_torch(interpreted, one_thread):
    expected = loss_and_gradients("torch")
    found = interpreted(loss_and_gradients, "kernels")
    assert found.keys() == expected.keys()
    for name, right in expected.items():
        error = float((found[name] - right).norm() / right.norm().clamp(min=1e-12))
        assert error < 1e-4, f"{name}: {error:.1e}"
