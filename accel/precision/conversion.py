"""Replace linear layers of a model by FP8 ones, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn

from gpudeck.accel.precision.layers import Fp8Linear
from gpudeck.accel.precision.linear import Recipe
from gpudeck.accel.primitives.gemm.dispatch import EMULATED
from gpudeck.accel.primitives.quantize.fp8 import native

Wanted = Callable[[str, nn.Linear], bool]


def convert(model: nn.Module, recipe: Recipe = "row", *, wanted: Wanted | None = None) -> nn.Module:
    """Replace linear layers by FP8 ones that share their parameters, in place.

    Layers in FP8 by another recipe are replaced, too; scales of earlier steps begin anew.

    Args:
        model: a model, or a single nn.Linear, which is then returned as an FP8 one.
        recipe: what shares a scale: `delayed` and `tensor` (all elements; scales of earlier steps
            or of the tensor itself), `row`, `block`.
        wanted: says by name and layer which ones to replace; all by default. A `Selection` of
            `dynamic_precision_select` is such a function.

    Returns:
        The model. Its state dict can be loaded into the unconverted model and the other way round.

    Raises:
        ValueError: if no recipe has this name.
        TypeError: if `model` is no nn.Module, or `wanted` cannot be called.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    if wanted is not None and not callable(wanted):
        raise TypeError(
            "wanted must be a function of a layer's name and the layer, or what"
            f" dynamic_precision_select returned; got {type(wanted).__name__}"
        )
    if isinstance(model, nn.Linear):
        return Fp8Linear.of(model, recipe) if _changes(model, recipe) else model
    for parent, name, layer, path in list(_linear(model)):
        if _changes(layer, recipe) and (wanted is None or wanted(path, layer)):
            setattr(parent, name, Fp8Linear.of(layer, recipe))
    return model


def revert(model: nn.Module) -> nn.Module:
    """Replace FP8 layers by plain ones that share their parameters, in place."""
    for parent, name, layer, _ in list(_linear(model)):
        if isinstance(layer, Fp8Linear):
            plain = nn.Linear(
                layer.in_features, layer.out_features, layer.bias is not None, device="meta"
            )
            plain.weight, plain.bias = layer.weight, layer.bias
            plain.train(layer.training)
            setattr(parent, name, plain)
    return model


def describe(model: nn.Module) -> str:
    """Return a table of the linear layers of a model and how each is computed."""
    lines = []
    for _, _, layer, path in _linear(model):
        how = str(layer.weight.dtype).removeprefix("torch.")
        if isinstance(layer, Fp8Linear):
            how = f"FP8, recipe {layer.recipe}"
            how += "" if native(layer.weight.device) else f" ({EMULATED})"
        lines.append(f"{path:<40} {layer.in_features:>6} -> {layer.out_features:<6} {how}")
    return "\n".join(lines)


def _changes(layer: nn.Linear, recipe: Recipe) -> bool:
    """Return whether a layer is a plain one, or in FP8 by another recipe."""
    return type(layer) is nn.Linear or (isinstance(layer, Fp8Linear) and layer.recipe != recipe)


def _linear(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear, str]]:
    """Yield each linear layer with its parent, its name there, and its path."""
    for path, parent in model.named_modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Linear):
                yield parent, name, layer, f"{path}.{name}" if path else name
