"""Name the sizes of new models, and count the operations of a step.

New transformers are of the family Llama, and the embedding is also their output matrix. The others
are RWKV-7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpudeck.accel.rwkv.weights.shapes import HEAD
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


class RecurrentConfig(NamedTuple):
    """Describe the matrices of an RWKV-7."""

    layers: int
    hidden: int
    intermediate: int
    """The features within a feed-forward."""
    vocabulary: int
    decay: int
    """The rank of the map that makes decays; the following are those of the other maps."""
    rate: int
    residual: int
    gate: int
    tuned: bool = False
    """Whether each layer has a state before the first token; otherwise it is zero."""

    @property
    def final_softcap(self) -> float:
        """Return 0: scores are not limited."""
        return 0.0

    @property
    def matrices(self) -> int:
        """Return the number of weights that each token is multiplied with."""
        ranks = 2 * (self.decay + self.rate + self.gate)
        layer = self.hidden * (4 * self.hidden + 2 * self.intermediate + ranks)
        residuals = (self.layers - 1) * 2 * self.hidden * self.residual
        return self.layers * layer + residuals + self.vocabulary * self.hidden

    def flops(self, *, frozen: bool) -> float:
        """Return the operations of a training step for each token.

        They are six for each weight of a matrix, four where the weights are frozen, and those of
        the recurrence as it is defined: four products of a head's state with a vector, once
        forward and twice backward.
        """
        recurrence = 3.0 * 2 * 4 * HEAD * self.hidden * self.layers
        return (4.0 if frozen else 6.0) * self.matrices + recurrence


RECURRENT_SHAPES = {
    "rwkv7-tiny": (4, 128, 16, 16, 16, 32),
    "rwkv7-0.1B": (12, 768, 64, 64, 32, 128),
    "rwkv7-0.4B": (24, 1024, 64, 64, 32, 128),
    "rwkv7-1.5B": (24, 2048, 96, 96, 64, 256),
}
"""Layers, width and the four ranks of new RWKV-7 models. Those from 0.1B on are the released World
models' (https://huggingface.co/BlinkDL/rwkv-7-world)."""


def new_recurrent_config(name: str, vocabulary: int) -> RecurrentConfig:
    """Return the matrices of a new RWKV-7 of a size, for a number of tokens."""
    layers, width, decay, rate, residual, gate = RECURRENT_SHAPES[name]
    rows = -(-vocabulary // VOCABULARY_STEP) * VOCABULARY_STEP
    return RecurrentConfig(layers, width, 4 * width, rows, decay, rate, residual, gate)


def recurrent_json(config: RecurrentConfig) -> dict[str, Any]:
    """Return the config.json of an RWKV-7, as flash-linear-attention writes it."""
    return {
        "architectures": ["RWKV7ForCausalLM"],
        "model_type": "rwkv7",
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "head_dim": HEAD,
        "decay_low_rank_dim": config.decay,
        "a_low_rank_dim": config.rate,
        "v_low_rank_dim": config.residual,
        "gate_low_rank_dim": config.gate,
        "hidden_act": "sqrelu",
        "norm_first": True,
        "norm_bias": True,
        "norm_eps": 1e-5,
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
