"""Write a trained model in Hugging Face's layout: transformers and `gpudeck serve` open it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from gpudeck.accel.training.model import LanguageModel
from gpudeck.accel.training.tokenizers import Tokenizer

WEIGHTS = "model.safetensors"


def write_model(
    model: LanguageModel, tokenizer: Tokenizer, tokens: int, dtype: torch.dtype, out: Path
) -> None:
    """Write weights, configuration and tokenizer; the weights appear completely or not at all.

    Args:
        model: what was trained.
        tokenizer: what it was trained with.
        tokens: the longest sequence it was trained on.
        dtype: of the stored weights.
        out: the folder.
    """
    name = str(dtype).removeprefix("torch.")
    config = model.shape.config(tokens, tokenizer.end, name)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer.write(out)
    weights = {key: t.detach().to("cpu", dtype) for key, t in model.state_dict().items()}
    new = out / f"{WEIGHTS}.new"
    save_file(weights, new, {"format": "pt"})
    new.replace(out / WEIGHTS)
