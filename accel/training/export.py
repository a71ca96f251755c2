"""Write a trained model in Hugging Face's layout: transformers and `gpudeck serve` open it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from gpudeck.accel.training.adapters import Model, merged
from gpudeck.accel.training.ranks import whole
from gpudeck.accel.training.tokenizers import Tokenizer

WEIGHTS = "model.safetensors"


def write_model(
    model: Model,
    raw: dict[str, Any],
    tokenizer: Tokenizer,
    dtype: torch.dtype,
    out: Path,
    *,
    first: bool = True,
) -> None:
    """Write weights, configuration and tokenizer; the weights appear completely or not at all.

    Args:
        model: what was trained.
        raw: its config.json.
        tokenizer: what it was trained with.
        dtype: of the stored weights.
        out: the folder.
        first: whether this process writes; the others only give their shares of the weights.
    """
    weights = {key: whole(t.detach()).to("cpu", dtype) for key, t in merged(model).items()}
    if not first:
        return
    said = {name: value for name, value in raw.items() if name not in ("dtype", "torch_dtype")}
    said["torch_dtype"] = str(dtype).removeprefix("torch.")
    (out / "config.json").write_text(json.dumps(said, indent=1))
    tokenizer.write(out)
    new = out / f"{WEIGHTS}.new"
    save_file(weights, new, {"format": "pt"})
    new.replace(out / WEIGHTS)
