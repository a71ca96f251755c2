"""Name the sizes of new models, and count their parameters and operations.

The models are shaped like Llama: norms before attention and feed-forward, rotary positions, a gated
feed-forward, and the embedding as output matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

VOCABULARY_STEP = 64
"""The rows of the embedding are a multiple of it, for aligned matrix products."""
ROPE_THETA = 10000.0
NORM_EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """Describe the matrices of a model."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    """The features within a feed-forward."""
    vocabulary: int = 0
    """The rows of the embedding."""

    @property
    def head_dim(self) -> int:
        """Return the elements of a head."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """Return the number of weights; the embedding, which is also the output, counts once."""
        return self.layers * self._layer + self.width * (self.vocabulary + 1)

    @property
    def _layer(self) -> int:
        attention = self.width * self.head_dim * 2 * (self.heads + self.kv_heads)
        return attention + 3 * self.width * self.inner + 2 * self.width

    def flops(self, tokens: int) -> float:
        """Return the operations of a training step for each token in sequences of `tokens`.

        Six for each weight of a matrix, and 12 x layers x width x tokens for attention, as if a
        token saw the whole sequence.

        Source: arXiv 2204.02311, appendix B.
        """
        matrices = self.parameters - self.width * (2 * self.layers + 1)
        return 6.0 * matrices + 12.0 * self.layers * self.width * tokens

    def config(self, tokens: int, end: int, dtype: str) -> dict[str, Any]:
        """Return the config.json of the model, as transformers reads it."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.width,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": NORM_EPS,
            "rope_theta": ROPE_THETA,
            "max_position_embeddings": tokens,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": end,
            "eos_token_id": end,
            "torch_dtype": dtype,
        }


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


def shape_of(name: str, vocabulary: int) -> Shape:
    """Return the shape of a size by its name, for a number of tokens."""
    from dataclasses import replace

    rows = -(-vocabulary // VOCABULARY_STEP) * VOCABULARY_STEP
    return replace(SHAPES[name], vocabulary=rows)
