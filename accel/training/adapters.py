"""Train little beside a frozen model: small matrices (LoRA), which are written as peft reads them,
or the states in which an RWKV-7 begins.

Source: Hu et al., LoRA, arXiv 2106.09685.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.accel.rwkv.weights.names import canonical
from gpudeck.accel.training.model import FeedForward, LanguageModel, SelfAttention
from gpudeck.accel.training.projection import Projection, Quantized
from gpudeck.accel.training.recurrent import ChannelMix, RecurrentModel, TimeMix
from gpudeck.accel.training.settings import Settings

FOLDER, STATES = "adapter", "states"
Model = LanguageModel | RecurrentModel
_ADAPTED = SelfAttention | FeedForward | TimeMix | ChannelMix
"""Parts of a model whose projections get small matrices."""


class Adapted(nn.Module):
    """Add to a frozen projection the product of two small matrices."""

    def __init__(
        self, base: Projection | Quantized, rank: int, scale: float, draw: torch.Generator
    ) -> None:
        """Draw A uniformly within 1 / sqrt(inputs), and begin with B = 0, as peft does."""
        super().__init__()
        self.base_layer, self.scale = base, scale
        limit = base.in_features**-0.5
        drawn = torch.empty(rank, base.in_features).uniform_(-limit, limit, generator=draw)
        self.lora_A = nn.Parameter(drawn)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return x (W + scale B A)ᵀ, plus the bias."""
        small = functional.linear(x, self.lora_A.to(x.dtype))
        out: Tensor = self.base_layer(x)
        return out + self.scale * functional.linear(small, self.lora_B.to(x.dtype))

    def merged(self) -> Tensor:
        """Return W + scale B A in float32."""
        return self.base_layer.weight.float() + self.scale * self.lora_B @ self.lora_A


def adapt(model: Model, settings: Settings, device: torch.device) -> None:
    """Freeze a model, move it to a device, and add small matrices to attention and feed-forward.

    With `quantize`, the matrices beside them are held in four bits there, and are at no time all on
    the device as they were. Experts are frozen and have no small matrices.
    """
    model.requires_grad_(requires_grad=False)
    draw = torch.Generator().manual_seed(settings.seed)
    scale = settings.alpha / settings.rank
    for path, part in list(model.named_modules()):
        if isinstance(part, _ADAPTED) and ".experts." not in path:
            for name, found in list(part.named_children()):
                if isinstance(found, Projection):
                    base = Quantized(found, device) if settings.quantize else found
                    setattr(part, name, Adapted(base, settings.rank, scale, draw))
    model.to(device)


def tune_states(model: RecurrentModel) -> None:
    """Freeze a model but for the states before the first token, which become float32."""
    model.requires_grad_(requires_grad=False)
    for state in _states(model).values():
        state.data = state.data.float()
        state.requires_grad_()


def write_states(model: Model, out: Path) -> None:
    """Write the states before the first token by BlinkDL's names; they appear completely or not at
    all."""
    out.mkdir(exist_ok=True)
    states = {name: state.detach().cpu() for name, state in canonical(_states(model)).items()}
    file = out / "states.safetensors"
    new = file.with_name(f"{file.name}.new")
    save_file(states, new, {"format": "pt"})
    new.replace(file)


def _states(model: nn.Module) -> dict[str, Tensor]:
    return {name: w for name, w in model.named_parameters() if name.endswith(".time_state")}


@torch.no_grad()
def merged(model: Model) -> dict[str, Tensor]:
    """Return the weights of a model by the names they have without LoRA."""
    weights = {
        name.replace(".base_layer.", "."): value
        for name, value in model.state_dict().items()
        if not name.endswith((".lora_A", ".lora_B"))
    }
    return weights | {f"{name}.weight": layer.merged() for name, layer in _adapted(model).items()}


def write_adapter(model: Model, settings: Settings, out: Path) -> None:
    """Write the small matrices in peft's format; they appear completely or not at all.

    Source: peft's documentation, "PEFT checkpoint format".
    """
    out.mkdir(exist_ok=True)
    layers = _adapted(model)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(Path(settings.base).expanduser().absolute()),
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.rpartition(".")[2] for name in layers}),
        "inference_mode": True,
    }
    (out / "adapter_config.json").write_text(json.dumps(config, indent=1))
    weights = {
        f"base_model.model.{name}.{part}.weight": getattr(layer, part).detach().cpu()
        for name, layer in layers.items()
        for part in ("lora_A", "lora_B")
    }
    file = out / "adapter_model.safetensors"
    new = file.with_name(f"{file.name}.new")
    save_file(weights, new, {"format": "pt"})
    new.replace(file)


def _adapted(model: Model) -> dict[str, Adapted]:
    return {name: part for name, part in model.named_modules() if isinstance(part, Adapted)}
