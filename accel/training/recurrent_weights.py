"""Make the weights of an RWKV-7 that is trained: new ones, or those of a folder.

Folders may have flash-linear-attention's names or BlinkDL's; the results have the former.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.weights import load
from gpudeck.accel.rwkv.weights.find import files_of
from gpudeck.accel.rwkv.weights.header import read_header
from gpudeck.accel.rwkv.weights.names import canonical
from gpudeck.accel.rwkv.weights.shapes import TUNED, checked
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.projection import Projection
from gpudeck.accel.training.recurrent import Layer, RecurrentModel
from gpudeck.accel.training.shapes import RecurrentConfig
from gpudeck.language.text import phrase


def config_in(folder: Path) -> RecurrentConfig:
    """Return the matrices of the RWKV-7 in a folder, without loading it.

    Raises:
        Refused: if there is none, or it is not in .safetensors files.
    """
    try:
        files = files_of(folder)
        if any(file.suffix != ".safetensors" for file in files):
            raise Refused(
                phrase("the model in {folder} is a .pth file. Convert it to .safetensors",
                       folder=str(folder))
            )  # fmt: skip
        outlines = {name: one for file in files for name, one in read_header(file).items()}
        found = {name: one.shape for name, one in checked(canonical(outlines), folder).items()}
    except ModelError as e:
        raise _refuse(e) from e
    layers = 1 + max(int(name.split(".")[1]) for name in found if name.startswith("blocks."))
    last = f"blocks.{layers - 1}."
    decay, rate, residual, gate = (found.get(f"{last}att.{rank}1", (0, 1))[1] for rank in "wavg")
    vocabulary, width = found["emb.weight"]
    inner, tuned = found[f"{last}ffn.key.weight"][0], last + TUNED in found
    return RecurrentConfig(
        layers, width, inner, vocabulary, decay, rate, residual, gate, tuned=tuned
    )


@torch.no_grad()
def read(model: RecurrentModel, folder: Path) -> None:
    """Put the weights of a folder into a model.

    Raises:
        Refused: if they cannot be read, or layers differ in their ranks.
    """
    try:
        weights = load(folder)
    except ModelError as e:
        raise _refuse(e) from e
    for name, place in canonical(dict[str, torch.Tensor](model.named_parameters())).items():
        if name.endswith(TUNED) and name not in weights:
            place.zero_()  # a state that is trained for the first time
            continue
        weight = weights[name]
        if weight.numel() != place.numel() or weight.shape[-1] not in (*place.shape, place.numel()):
            raise Refused(
                phrase("the layers of the model in {folder} have different ranks; such a model"
                       " cannot be trained", folder=str(folder))
            )  # fmt: skip
        place.copy_(weight.view(place.shape))


def _refuse(error: ModelError) -> Refused:
    return Refused(phrase("the model cannot be trained: {why}", why=error.message))


@torch.no_grad()
def draw(model: RecurrentModel, seed: int) -> None:
    """Draw the weights of a new model on the CPU, so that they are equal on every device.

    Layers begin as almost nothing: what ends a branch is zero, decays reach from short to long
    memories, and the share of the token before falls from layer to layer.

    Source: arXiv 2503.14456, appendix on parameter initialisation.
    """
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    for part in model.modules():
        if isinstance(part, nn.LayerNorm | nn.GroupNorm):
            part.weight.fill_(1.0)
            part.bias.zero_()
    model.model.embeddings.weight.uniform_(-1e-4, 1e-4, generator=generator)
    _draw_uniform(model.lm_head, 0.5, generator)
    for number, layer in enumerate(model.model.layers):
        assert isinstance(layer, Layer)
        _draw_layer(layer, number, config, generator)


def _draw_layer(
    layer: Layer, number: int, config: RecurrentConfig, generator: torch.Generator
) -> None:
    width = config.hidden
    deep = number / max(config.layers - 1, 1)  # 0 in the first layer, 1 in the last
    left = 1 - number / config.layers
    place = torch.arange(width) / width
    mix, ffn = layer.attn, layer.ffn
    powers = {"x_r": 0.2, "x_w": 0.9, "x_k": 0.7, "x_v": 0.7, "x_a": 0.9, "x_g": 0.2}
    for name, power in powers.items():
        mix.get_parameter(name).copy_(1 - place ** (power * left))
    ffn.x_k.copy_(1 - place ** (left**4))
    mix.k_k.fill_(0.85)
    mix.k_a.fill_(1.0)
    mix.r_k.zero_()
    mix.g_norm.weight.fill_(((1 + number) / config.layers) ** 0.7)
    for part, factor in ((mix.r_proj, 0.5), (mix.k_proj, 0.05), (mix.v_proj, 0.5), (ffn.key, 0.5)):
        _draw_uniform(part, factor, generator)
    mix.o_proj.weight.zero_()
    ffn.value.weight.zero_()
    spread = torch.arange(width) / max(width - 1, 1)
    biases = {
        mix.w_lora: -6.5 + 5 * spread ** (0.85 + math.sqrt(deep)),
        mix.a_lora: torch.zeros(width),
        mix.g_lora: None,
        mix.v_lora: torch.ones(width),
    }
    for low, bias in biases.items():
        if low is None:
            continue
        down, up = low.lora[0], low.lora[2]
        assert isinstance(down, Projection)
        assert isinstance(up, Projection)
        down.weight.zero_()
        drawn = torch.empty_like(up.weight, device="cpu")
        up.weight.copy_(nn.init.orthogonal_(drawn, gain=0.1, generator=generator))
        if bias is not None and up.bias is not None:
            up.bias.copy_(bias)


def _draw_uniform(part: Projection, factor: float, generator: torch.Generator) -> None:
    limit = factor / math.sqrt(part.in_features)
    part.weight.uniform_(-limit, limit, generator=generator)
