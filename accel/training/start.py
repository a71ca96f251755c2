"""Make the model that a run begins with: a new one, or that of a folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gpudeck.accel.serving.checkpoint import Checkpoint
from gpudeck.accel.serving.families import (
    Config,
    config_of,
    is_recurrent,
    read_config,
    read_json,
)
from gpudeck.accel.serving.files import weight_files
from gpudeck.accel.training import recurrent_weights
from gpudeck.accel.training.adapters import Model, adapt, tune_states
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.model import LanguageModel
from gpudeck.accel.training.projection import Projection
from gpudeck.accel.training.recurrent import RecurrentModel
from gpudeck.accel.training.settings import AUTO, Settings
from gpudeck.accel.training.shapes import (
    RECURRENT_SHAPES,
    RecurrentConfig,
    new_config,
    new_recurrent_config,
    recurrent_json,
)
from gpudeck.accel.training.shards import checksum
from gpudeck.accel.training.tokenizers import Tokenizer, load_tokenizer
from gpudeck.accel.training.vocabulary import VocabularyTokenizer, byte_vocabulary
from gpudeck.language.text import phrase


@dataclass(frozen=True)
class Start:
    """Say what a run begins with."""

    settings: Settings
    raw: dict[str, Any]
    """The config.json."""
    config: Config | RecurrentConfig
    fingerprint: str = ""
    """Of weights that stay as they are, and are in no checkpoint."""

    def make(self, device: torch.device, frozen: torch.dtype) -> Model:
        """Return the model on a device.

        Args:
            device: what computes.
            frozen: the dtype of weights that stay as they are; others are float32.

        Raises:
            ModelRefused, Refused: if the weights in the folder cannot be used.
        """
        s = self.settings
        if isinstance(self.config, RecurrentConfig):
            return self._make_recurrent(self.config, device, frozen)
        with torch.device("meta"):  # nothing is drawn that is replaced anyway
            model = LanguageModel(self.config, s.tokens, recompute=s.recompute)
        if s.base == AUTO:
            draw(model, s.seed, device)
            return model.to(device)
        source = Checkpoint(Path(s.base).expanduser(), self.config)
        place = torch.device("cpu") if s.quantize else device
        read(model, source, place, frozen if s.frozen else torch.float32)
        if s.method == "lora":
            adapt(model, s, device)
        return model.to(device)

    def _make_recurrent(
        self, config: RecurrentConfig, device: torch.device, frozen: torch.dtype
    ) -> RecurrentModel:
        s = self.settings
        model = RecurrentModel(config, recompute=s.recompute)
        if s.base == AUTO:
            recurrent_weights.draw(model, s.seed)
        else:
            recurrent_weights.read(model, Path(s.base).expanduser())
        if s.frozen:
            model.to(frozen)
            if s.method == "lora":
                adapt(model, s, device)
            else:
                tune_states(model)
        return model.to(device)


def trains_recurrent(settings: Settings) -> bool:
    """Return whether a run trains an RWKV-7. Raises ModelRefused."""
    if settings.base == AUTO:
        return settings.model in RECURRENT_SHAPES
    return is_recurrent(Path(settings.base).expanduser())


def tokenizer_of(settings: Settings) -> Tokenizer:
    """Return the tokenizer of a run: the one that it names, the model's own, or bytes.

    Raises:
        Refused: if it cannot be used.
        ModelRefused: if the model that is trained further cannot be read.
    """
    named = settings.base if settings.tokenizer == AUTO else settings.tokenizer
    if not trains_recurrent(settings):
        return load_tokenizer(named)
    return byte_vocabulary() if named == AUTO else VocabularyTokenizer.load(Path(named))


def start_of(settings: Settings, tokenizer: Tokenizer) -> Start:
    """Return what a run begins with.

    Raises:
        Refused: if the model in the folder cannot be trained with these settings.
        ModelRefused: if the folder holds no model of a family that is served.
    """
    if trains_recurrent(settings):
        return _recurrent_start(settings, tokenizer)
    if settings.method == "state":
        raise Refused(phrase("only an RWKV-7 has states to tune. Choose method=lora"))
    if settings.base == AUTO:
        raw = new_config(settings.model, tokenizer.vocabulary, settings.tokens, tokenizer.end)
        return Start(settings, raw, config_of(raw, settings.model, (tokenizer.end,)))
    folder = Path(settings.base).expanduser()
    config = read_config(folder)
    if config.quantization:
        raise Refused(
            phrase("the weights in {folder} are quantized. Choose the model without that",
                   folder=str(folder))
        )  # fmt: skip
    if config.family.varied:
        raise Refused(
            phrase(
                "models of the family {name} are served and not trained", name=config.family.name
            )
        )
    if settings.tokens > config.context:
        raise Refused(
            phrase("the model in {folder} reads at most {most} tokens. Choose fewer tokens",
                   folder=str(folder), most=config.context)
        )  # fmt: skip
    raw = read_json(folder / "config.json")
    return Start(settings, raw, config, _fingerprint_frozen(settings))


def _recurrent_start(settings: Settings, tokenizer: Tokenizer) -> Start:
    if settings.base == AUTO:
        config = new_recurrent_config(settings.model, tokenizer.vocabulary)
    else:
        config = recurrent_weights.config_in(Path(settings.base).expanduser())
        if settings.method == "state":
            config = config._replace(tuned=True)
    return Start(settings, recurrent_json(config), config, _fingerprint_frozen(settings))


def _fingerprint_frozen(settings: Settings) -> str:
    """Return the fingerprint of the weights that stay as they are; "" if all are trained."""
    if not settings.frozen:
        return ""
    sums = "".join(map(checksum, weight_files(Path(settings.base).expanduser())))
    return hashlib.sha256(sums.encode()).hexdigest()


@torch.no_grad()
def draw(model: LanguageModel, seed: int, device: torch.device) -> None:
    """Draw the weights of a model that has none on the CPU, so that they are equal on every device.

    Matrices are normal with deviation 0.02, and those that end a branch 0.02 / sqrt(2 layers), as
    in GPT-2.
    """
    generator = torch.Generator().manual_seed(seed)
    last = 0.02 / (2 * model.config.layers) ** 0.5
    for name, described in list(model.named_parameters()):
        weight = torch.ones(described.shape)
        if weight.dim() > 1:
            ends = name.endswith(("o_proj.weight", "down_proj.weight"))
            weight.normal_(0.0, last if ends else 0.02, generator=generator)
        _put(model, name, weight.to(device))


def read(
    model: LanguageModel, source: Checkpoint, device: torch.device, dtype: torch.dtype
) -> None:
    """Put the weights of a folder into a model that has none. Raises ModelRefused."""
    for name, part in model.named_modules():
        if isinstance(part, Projection) and f"{name}.bias" in source:
            part.bias = nn.Parameter(torch.empty(part.out_features, device="meta"))
    for name, described in list(model.named_parameters()):
        _put(model, name, source.tensor(name, *described.shape).to(device, dtype))


def _put(model: LanguageModel, name: str, weight: Tensor) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, nn.Parameter(weight))
