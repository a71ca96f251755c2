"""Save a model as Hugging Face's transformers read it, with flash-linear-attention's names and
layouts.

`accel.rwkv.weights` reads it as well, and so does `fla.models.RWKV7ForCausalLM`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from accel.rwkv.tokenizer import END
from accel.rwkv.weights import HEAD
from accel.rwkv.weights.names import HF_ATT, HF_LORA, HF_NORM, HF_TOP

_TOP, _NORM, _ATT, _LORA = (
    {ours: theirs for theirs, ours in table.items()} for table in (HF_TOP, HF_NORM, HF_ATT, HF_LORA)
)
_RANKS = {"w": "decay", "a": "a", "v": "v", "g": "gate"}


def layout(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with canonical names (see `accel.rwkv.weights`) in flash-linear-attention's
    layout.
    """
    return dict(_stored(name, tensor) for name, tensor in tensors.items())


def config(tensors: Mapping[str, Tensor]) -> dict[str, object]:
    """Return the config.json of weights with canonical names."""
    vocabulary, channels = tensors["emb.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
    ranks = {
        f"{theirs}_low_rank_dim": tensors.get(f"blocks.{layers - 1}.att.{ours}1")
        for ours, theirs in _RANKS.items()
    }
    return {
        "architectures": ["RWKV7ForCausalLM"],
        "model_type": "rwkv7",
        "hidden_size": channels,
        "num_hidden_layers": layers,
        "head_dim": HEAD,
        "intermediate_size": tensors["blocks.0.ffn.key.weight"].shape[0],
        "vocab_size": vocabulary,
        **{
            name: first.shape[1] for name, first in ranks.items() if first is not None
        },  # The first layer has no value residual.
        "bos_token_id": END,
        "eos_token_id": END,
        "torch_dtype": str(tensors["emb.weight"].dtype).removeprefix("torch."),
    }


def _stored(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    head, _, rest = name.partition(".")
    if head in _TOP:
        return f"{_TOP[head]}.{rest}", tensor
    layer, part, rest = rest.split(".", 2)
    where = f"model.layers.{layer}"
    if part in _NORM:
        return f"{where}.{_NORM[part]}.{rest}", tensor
    if part == "ffn":
        return f"{where}.ffn.{rest}", tensor
    if rest[0] in _RANKS and rest[1:] in _LORA:
        return (
            f"{where}.attn.{rest[0]}_lora.lora.{_LORA[rest[1:]]}",
            tensor.T.contiguous() if tensor.dim() == 2 else tensor,
        )
    if rest.startswith("x_"):
        return f"{where}.attn.{rest}", tensor.reshape(1, 1, -1)
    matrix, dot, last = rest.partition(".")
    return f"{where}.attn.{_ATT.get(matrix, matrix)}{dot}{last}", tensor
