"""A trained model is saved in Hugging Face's layout."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open

from accel.rwkv import weights
from assistant.training import huggingface
from assistant.training.network import Network
from scheduler.protocol import paths
from tests.unit.accel.rwkv.rwkv_models import to_hf


@pytest.mark.parametrize("layers", [1, 3])
def test_the_layout_has_the_names_and_shapes_of_flash_linear_attention(layers) -> None:
    tensors = {
        name: tensor.detach() for name, tensor in Network(layers, 128, 300).canonical().items()
    }
    stored = huggingface.layout(tensors)
    expected = to_hf(
        {
            name: tensor.reshape(1, 1, -1) if ".att.x_" in name else tensor
            for name, tensor in tensors.items()
        }
    )
    assert stored.keys() == expected.keys() and len(stored) == len(tensors)
    assert all(
        torch.equal(stored[name], tensor) and stored[name].is_contiguous()
        for name, tensor in expected.items()
    )
    about = huggingface.config(tensors)
    assert (
        about["hidden_size"],
        about["num_hidden_layers"],
        about["vocab_size"],
        about["gate_low_rank_dim"],
    ) == (128, layers, 300, 64)
    assert ("v_low_rank_dim" in about) == (layers > 1)


def test_the_shipped_model_has_that_layout() -> None:
    folder = paths.shipped_model()
    with safe_open(folder / "model.safetensors", "pt") as file:
        names, metadata = set(file.keys()), file.metadata()
    tensors = weights.load(folder)
    assert names == huggingface.layout(tensors).keys() and metadata == {"format": "pt"}
    assert (
        json.loads((folder / "config.json").read_text()).items()
        >= huggingface.config(tensors).items()
    )
