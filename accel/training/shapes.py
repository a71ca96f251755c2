"""Name the sizes of new models, and count the operations of a step.

New models are of the family Llama. The embedding is also their output matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpudeck.accel.serving.families import Config

VOCABULARY_STEP = 64
"""The rows of the embedding are a multiple of it, for aligned matrix products."""


class Shape(NamedTuple):
    """Describe the matrices of a new model."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    """The features within a feed-forward."""


SHAPES = {
    "tiny": Shape(4, 128, 4, 2, 352),
    "15M": Shape(6, 288, 6, 6, 768),
    "124M": Shape(12, 768, 12, 12, 2048),
    "350M": Shape(24, 1024, 16, 16, 2816),
    "774M": Shape(36, 1280, 20, 20, 3456),
    "1.5B": Shape(28, 2048, 16, 16, 5504),
}
"""Shapes by name. Those from 124M on have about as many weights as GPT-2's sizes of that name, with
its 50,257 tokens."""


def new_config(name: str, vocabulary: int, tokens: int, end: int) -> dict[str, Any]:
    """Return the config.json of a new model, as transformers reads it.

    Args:
        name: of the size.
        vocabulary: the number of tokens that there are.
        tokens: the longest sequence.
        end: the token that begins and ends a text.
    """
    shape = SHAPES[name]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.width // shape.heads,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": tokens,
        "vocab_size": -(-vocabulary // VOCABULARY_STEP) * VOCABULARY_STEP,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": end,
        "eos_token_id": end,
    }


def flops(config: Config, tokens: int, *, frozen: bool) -> float:
    """Return the operations of a training step for each token in sequences of `tokens`.

    They are six for each weight of a matrix that a token is multiplied with, four where the weights
    are frozen and have no gradients, and 12 x layers x heads x head size x tokens for attention, as
    if a token saw the whole sequence.

    Source: arXiv 2204.02311, appendix B.
    """
    matrices = config.parameters - (0 if config.tied else config.vocabulary * config.hidden)
    for experts in filter(None, config.experts):
        idle = experts.count - experts.chosen
        matrices -= 3 * config.hidden * experts.intermediate * idle
    attention = 12.0 * config.layers * config.heads * config.head_dim * tokens
    return (4.0 if frozen else 6.0) * matrices + attention
