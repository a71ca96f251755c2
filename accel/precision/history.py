"""Move the scales of the recipe `delayed` on, save and restore them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from gpudeck.accel.precision.layers import Fp8Linear


def update_scales(model: nn.Module) -> None:
    """Add the largest magnitudes since the last call to the histories of the recipe `delayed`.

    Call it after each step of the optimizer. Forward passes that are repeated for checkpoints do
    not matter. In a process group, scales are the same in all processes if `pending` is first
    reduced to its maximum by the caller.
    """
    for _, layer in _delayed(model):
        layer.history.copy_(torch.cat((layer.pending.unsqueeze(1), layer.history[:, :-1]), 1))
        layer.pending.zero_()
        layer.renew_scales()


def histories(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of all histories by layer, to be saved beside the state dict."""
    return {
        name: torch.cat((layer.pending.unsqueeze(1), layer.history), 1).cpu()
        for name, layer in _delayed(model)
        if layer.started
    }


def load_histories(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Restore histories, so that the next step is bit for bit the one that would have followed.

    Raises:
        ValueError: if a layer of the model is missing, or has another length of history.
    """
    for name, layer in _delayed(model):
        found = saved.get(name)
        expected = (2, layer.history.shape[1] + 1)
        if found is None or tuple(found.shape) != expected:
            what = "none" if found is None else list(found.shape)
            raise ValueError(f"the history of {name} must be {list(expected)}; got {what}")
        layer.pending.copy_(found[:, 0])
        layer.history.copy_(found[:, 1:])
        layer.renew_scales()


def _delayed(model: nn.Module) -> Iterator[tuple[str, Fp8Linear]]:
    for name, layer in model.named_modules():
        if isinstance(layer, Fp8Linear) and layer.recipe == "delayed":
            yield name, layer
