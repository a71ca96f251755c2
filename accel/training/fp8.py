"""Compute those products of a model in FP8 that gain from it, which is measured."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from gpudeck.accel.precision.linear import Recipe
from gpudeck.accel.precision.selection import dynamic_precision_select
from gpudeck.accel.training.model import FeedForward, LanguageModel, SelfAttention
from gpudeck.accel.training.projection import Projection
from gpudeck.accel.training.recurrent import ChannelMix, RecurrentModel, TimeMix

RECIPE: Recipe = "row"


def choose_fp8(model: LanguageModel | RecurrentModel, rows: int) -> tuple[str, ...]:
    """Return the sizes of products that are faster in FP8, such as `2048x6144`.

    Args:
        model: on the GPU that trains it.
        rows: the tokens that a product gets.
    """
    device, dtype = model.head.device, torch.bfloat16
    sizes = dict.fromkeys(_size(group) for group in _products(model))
    layers = {f"{n}x{m}": nn.Linear(n, m, bias=False, device=device, dtype=dtype) for n, m in sizes}
    inputs = {n: torch.randn(rows, n, device=device, dtype=dtype) for n, _ in sizes}

    def run(_: nn.Module) -> None:
        for layer in layers.values():
            layer(inputs[layer.in_features])

    selection = dynamic_precision_select(nn.ModuleDict(layers), run, recipe=RECIPE)
    return tuple(measured.name for measured in selection.layers if measured.chosen)


def use_fp8(model: LanguageModel | RecurrentModel, chosen: tuple[str, ...]) -> int:
    """Have products of the chosen sizes computed in FP8; return how many these are."""
    count = 0
    for group in _products(model):
        inputs, outputs = _size(group)
        if f"{inputs}x{outputs}" in chosen:
            group[0].recipe = RECIPE
            count += 1
    return count


def _size(group: tuple[Projection, ...]) -> tuple[int, int]:
    return group[0].in_features, sum(layer.out_features for layer in group)


def _products(model: nn.Module) -> Iterator[tuple[Projection, ...]]:
    """Yield the projections of each product, but for those of experts, routers and small ranks."""
    for path, part in model.named_modules():
        if isinstance(part, SelfAttention):
            yield (part.qkv_proj,) if part.fused else (part.q_proj, part.k_proj, part.v_proj)
            yield (part.o_proj,)
        elif isinstance(part, FeedForward) and ".experts." not in path:
            yield (part.gate_up_proj,) if part.fused else (part.gate_proj, part.up_proj)
            yield (part.down_proj,)
        elif isinstance(part, TimeMix):
            yield from ((part.r_proj,), (part.k_proj,), (part.v_proj,), (part.o_proj,))
        elif isinstance(part, ChannelMix):
            yield from ((part.key,), (part.value,))
