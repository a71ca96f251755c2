"""A trained model in Hugging Face's layout."""

from __future__ import annotations

import pytest
import torch
from rwkv_models import to_hf

from assistant.training import huggingface
from assistant.training.network import Network


@pytest.mark.parametrize("layers", [1, 3])
def test_it_has_the_names_and_shapes_of_flash_linear_attention(layers) -> None:
    tensors = {name: tensor.detach() for name, tensor in Network(layers, 128, 300).canonical().items()}
    stored = huggingface.layout(tensors)
    expected = to_hf({name: tensor.reshape(1, 1, -1) if ".att.x_" in name else tensor for name, tensor in tensors.items()})
    assert stored.keys() == expected.keys() and len(stored) == len(tensors)
    assert all(torch.equal(stored[name], tensor) and stored[name].is_contiguous() for name, tensor in expected.items())
    about = huggingface.config(tensors)
    assert (about["hidden_size"], about["num_hidden_layers"], about["vocab_size"], about["gate_low_rank_dim"]) == (128, layers, 300, 64)
    assert ("v_low_rank_dim" in about) == (layers > 1)
