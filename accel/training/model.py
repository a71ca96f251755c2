"""A language model of Llama's shape, whose weights have the names of transformers' Llama."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.training.shapes import NORM_EPS, ROPE_THETA, Shape

Turn = tuple[Tensor, Tensor]
"""The cosines and sines of the rotary positions, float32 [tokens, head size / 2]."""


class Norm(nn.Module):
    """Divide by the root mean square, and multiply by weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of x in its dtype."""
        return functional.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), NORM_EPS)


class Projection(nn.Linear):
    """Multiply by a float32 matrix that is rounded to the dtype of the input."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ."""
        return functional.linear(x, self.weight.to(x.dtype))


class SelfAttention(nn.Module):
    """Let each token look at those before it, within its document if documents are given."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.q_proj = Projection(shape.width, shape.heads * shape.head_dim)
        self.k_proj = Projection(shape.width, shape.kv_heads * shape.head_dim)
        self.v_proj = Projection(shape.width, shape.kv_heads * shape.head_dim)
        self.o_proj = Projection(shape.heads * shape.head_dim, shape.width)

    def forward(self, x: Tensor, turn: Turn, documents: Ragged | None) -> Tensor:
        """Return what the tokens see, for x [batch, tokens, width]."""
        rows = (*x.shape[:2], -1, self.head_dim)
        q, k, v = (layer(x).view(rows) for layer in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, turn), rotate(k, turn)
        seen = attention(q, k, v, causal=True, layout="bshd", seqlens=documents)
        out: Tensor = self.o_proj(seen.reshape(*x.shape[:2], -1))
        return out


class FeedForward(nn.Module):
    """Map each token by itself: down(silu(gate(x)) up(x))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = Projection(shape.width, shape.inner)
        self.up_proj = Projection(shape.width, shape.inner)
        self.down_proj = Projection(shape.inner, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mapped tokens."""
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """Add to each token what it sees, then what the feed-forward makes of it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.width)
        self.self_attn = SelfAttention(shape)
        self.post_attention_layernorm = Norm(shape.width)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, turn: Turn, documents: Ragged | None) -> Tensor:
        """Return the tokens after this layer."""
        x = x + self.self_attn(self.input_layernorm(x), turn, documents)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Decoder(nn.Module):
    """The embedding, the layers and the last norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width)


class LanguageModel(nn.Module):
    """Predict the next token; the embedding is also the output matrix."""

    def __init__(self, shape: Shape, tokens: int, *, recompute: bool = False) -> None:
        """Make a model whose weights are not yet drawn (see `draw`).

        Args:
            shape: its matrices.
            tokens: the longest sequence.
            recompute: keep only the inputs of the layers for the backward pass.
        """
        super().__init__()
        self.shape, self.recompute = shape, recompute
        self.model = Decoder(shape)
        cos, sin = rotary(tokens, shape.head_dim)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    @property
    def head(self) -> Tensor:
        """Return the output matrix, float32 [vocabulary, width]."""
        return self.model.embed_tokens.weight

    def forward(self, tokens: Tensor, dtype: torch.dtype, documents: Ragged | None) -> Tensor:
        """Return the last hidden states, of which `head` makes scores.

        Args:
            tokens: int64 [batch, length].
            dtype: of everything between embedding and result.
            documents: the documents that lie end to end in the rows; None: each row is one.

        Shapes: the result is [batch, length, width].
        """
        turn = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        x: Tensor = self.model.embed_tokens(tokens).to(dtype)
        for layer in self.model.layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, turn, documents, use_reentrant=False)
            else:
                x = layer(x, turn, documents)
        out: Tensor = self.model.norm(x)
        return out

    @torch.no_grad()
    def draw(self, seed: int) -> None:
        """Draw all weights on the CPU, so that they are equal on every device.

        Matrices are normal with deviation 0.02, and those that end a branch 0.02 / sqrt(2 layers),
        as in GPT-2.
        """
        generator = torch.Generator().manual_seed(seed)
        last = 0.02 / (2 * self.shape.layers) ** 0.5
        for name, weight in self.named_parameters():
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            ends = name.endswith(("o_proj.weight", "down_proj.weight"))
            drawn = torch.empty(weight.shape).normal_(
                0.0, last if ends else 0.02, generator=generator
            )
            weight.copy_(drawn)


def rotary(tokens: int, head_dim: int) -> Turn:
    """Return the cosines and sines of all positions."""
    rates = ROPE_THETA ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * rates
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """Rotate the pairs (i, i + D/2) of x [batch, tokens, heads, D] by their angles."""
    cos, sin = (part[:, None] for part in turn)
    first, second = x.float().chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
