"""Measure which linear layers of a model gain from FP8, and leave the others as they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpudeck.accel.precision.conversion import convert
from gpudeck.accel.precision.linear import Recipe
from gpudeck.accel.runtime.timing import measure_in_turn, percentiles

LEAST_GAIN = 0.05
"""A layer that gains less stays as it is: FP8 costs accuracy."""


@dataclass(frozen=True)
class Measured:
    """Hold the times of one layer, forward and backward."""

    name: str
    rows: int
    inputs: int
    outputs: int
    plain_ms: float
    fp8_ms: float
    chosen: bool

    @property
    def gain(self) -> float:
        """Return how much faster FP8 is, 0 if it is as fast."""
        return self.plain_ms / self.fp8_ms - 1


@dataclass(frozen=True)
class Selection:
    """Say which layers gain. It is what `convert` takes as `wanted`."""

    recipe: Recipe
    layers: tuple[Measured, ...]

    def __call__(self, name: str, layer: nn.Linear) -> bool:
        """Return True for a layer that gains enough."""
        del layer
        return any(m.chosen for m in self.layers if m.name == name)

    def __str__(self) -> str:
        head = f"{'layer':<40} {'rows':>7} {'in':>6} {'out':>6} {'plain ms':>9} {'FP8 ms':>9}  gain"
        lines = [
            f"{m.name:<40} {m.rows:>7} {m.inputs:>6} {m.outputs:>6} {m.plain_ms:>9.3f}"
            f" {m.fp8_ms:>9.3f} {m.gain:>+5.0%}  {'FP8' if m.chosen else 'unchanged'}"
            for m in self.layers
        ]
        return "\n".join([head, *lines]) if lines else "no plain linear layer was called"


def dynamic_precision_select(
    model: nn.Module,
    run: Callable[[nn.Module], object],
    *,
    recipe: Recipe = "row",
    least_gain: float = LEAST_GAIN,
    seconds: float = 0.1,
) -> Selection:
    """Measure each linear layer, forward and backward, plain and in FP8, at the rows it gets.

    Args:
        model: the model; it is run once without gradients.
        run: runs the model on a typical batch.
        recipe: that of the FP8 layers.
        least_gain: the gain below which a layer stays as it is.
        seconds: the time for each of the two at each shape; equal shapes are measured once.

    Returns:
        The selection, which prints as a table. On a CPU FP8 is emulated, and no layer gains.

    Raises:
        TypeError: if `run` cannot be called.
    """
    if not callable(run):
        raise TypeError(
            "run must be a function that runs the model, such as lambda m: m(batch); got"
            f" {type(run).__name__}"
        )
    found: dict[str, tuple[nn.Linear, Tensor]] = {}
    hooks = []
    for name, layer in model.named_modules():
        if type(layer) is nn.Linear:
            hooks.append(layer.register_forward_pre_hook(_noting(found, name)))
    try:
        with torch.no_grad():
            run(model)
    finally:
        for hook in hooks:
            hook.remove()
    times: dict[tuple[object, ...], tuple[float, float]] = {}
    measured = []
    for name, (layer, x) in found.items():
        rows = x.numel() // layer.in_features
        key = (rows, layer.in_features, layer.out_features, x.dtype, layer.bias is None)
        if key not in times:
            times[key] = _times(layer, x, recipe, seconds)
        plain, fp8 = times[key]
        chosen = plain / fp8 - 1 >= least_gain and x.device.type == "cuda"
        measured.append(
            Measured(name, rows, layer.in_features, layer.out_features, plain, fp8, chosen)
        )
    return Selection(recipe, tuple(measured))


def _noting(
    found: dict[str, tuple[nn.Linear, Tensor]], name: str
) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Linear)
        found[name] = (layer, inputs[0].detach())

    return note


def _times(layer: nn.Linear, x: Tensor, recipe: Recipe, seconds: float) -> tuple[float, float]:
    """Return the milliseconds of forward and backward, plain and in FP8, measured in turns."""
    plain = copy.deepcopy(layer)
    calls = [_pass(one, x) for one in (plain, convert(copy.deepcopy(layer), recipe))]
    for call in calls:
        call()
        call()
    loops = measure_in_turn(calls, seconds, x.device, lambda *_: None, lambda _: None)
    first, second = (percentiles(loop.samples_ms, 50)[0] for loop in loops)
    return first, second


def _pass(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    rows = x.reshape(-1, x.shape[-1]).clone().requires_grad_()
    parameters = [p for p in layer.parameters() if p.requires_grad]
    with torch.enable_grad():
        gradient = torch.randn_like(layer(rows))

    def run() -> object:
        with torch.enable_grad():
            return torch.autograd.grad(layer(rows), [rows, *parameters], gradient)

    return run
