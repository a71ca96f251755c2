"""A transformer of any family that is served, whose weights have the names of transformers' own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpudeck.accel.attention.api import ProblemOptions, attention, explain
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.serving.families import Config, Experts
from gpudeck.accel.serving.transformer import rotation
from gpudeck.accel.training.projection import Projection, compile_forward, project
from gpudeck.accel.training.shapes import flops
from gpudeck.accel.training.share import Share
from gpudeck.language.text import Text

Turn = tuple[Tensor, Tensor]
"""The cosines and sines of rotary positions, float32 [tokens, rotated part of a head / 2]."""


class Norm(nn.Module):
    """Divide by the root mean square, and multiply by weights."""

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps, self.offset = config.eps, config.family.norm_offset

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of x in its dtype."""
        weight = (self.weight + self.offset).to(x.dtype)
        return functional.rms_norm(x, self.weight.shape, weight, self.eps)


class SelfAttention(nn.Module):
    """Let each token look at those before it, within its document if documents are given."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.head_dim, self.fused = config.head_dim, config.family.fused
        self.sizes = [n * config.head_dim for n in (config.heads, config.kv_heads, config.kv_heads)]
        if self.fused:
            self.qkv_proj = Projection(config.hidden, sum(self.sizes))
        else:
            self.q_proj, self.k_proj, self.v_proj = (
                Projection(config.hidden, size) for size in self.sizes
            )
        self.o_proj = Projection(self.sizes[0], config.hidden)
        self.normed = config.family.query_key_norm
        if self.normed:
            self.q_norm, self.k_norm = (Norm(config, config.head_dim) for _ in range(2))
        self.options = attention_options(config, layer)

    def forward(self, x: Tensor, turn: Turn | None, documents: Ragged | Share | None) -> Tensor:
        """Return what the tokens see, for x [batch, tokens, width]."""
        if self.fused:
            parts = self.qkv_proj(x).split(self.sizes, -1)
        else:
            parts = project(x, self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (part.view(*x.shape[:2], -1, self.head_dim) for part in parts)
        if self.normed:
            q, k = self.q_norm(q), self.k_norm(k)
        if turn is not None:
            q, k = rotate(q, turn), rotate(k, turn)
        if isinstance(documents, Share):
            seen = documents.attention(q, k, v, self.options)
        else:
            options: ProblemOptions = {**self.options, "layout": "bshd", "seqlens": documents}
            seen = attention(q, k, v, **options)
        out: Tensor = self.o_proj(seen.reshape(*x.shape[:2], -1))
        return out


class FeedForward(nn.Module):
    """Map each token by itself: down(act(gate(x)) up(x))."""

    def __init__(self, config: Config, inner: int) -> None:
        super().__init__()
        self.fused, self.activation = config.family.fused, config.activation
        if self.fused:
            self.gate_up_proj = Projection(config.hidden, 2 * inner)
        else:
            self.gate_proj = Projection(config.hidden, inner)
            self.up_proj = Projection(config.hidden, inner)
        self.down_proj = Projection(inner, config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mapped tokens."""
        if self.fused:
            gate, up = self.gate_up_proj(x).chunk(2, -1)
        else:
            gate, up = project(x, self.gate_proj, self.up_proj)
        if self.activation == "silu":
            gate = functional.silu(gate)
        else:
            gate = functional.gelu(gate, approximate="tanh")
        out: Tensor = self.down_proj(gate * up)
        return out


class Mixture(nn.Module):
    """Map each token by the few experts that a router chooses."""

    def __init__(self, config: Config, kind: Experts) -> None:
        super().__init__()
        self.kind = kind
        self.gate = Projection(config.hidden, kind.count)
        self.experts = nn.ModuleList(
            FeedForward(config, kind.intermediate) for _ in range(kind.count)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the chosen experts' outputs, weighted by the router."""
        rows = x.flatten(0, 1)
        likely = torch.softmax(self.gate(rows).float(), -1)
        shares, chosen = likely.topk(self.kind.chosen, -1)
        if self.kind.normalized:
            shares = shares / shares.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)
            part = expert(rows[token]) * shares[token, place, None].to(x.dtype)
            out = out.index_add(0, token, part)
        return out.view_as(x)


class Layer(nn.Module):
    """Add to each token what it sees, then what the feed-forward makes of it."""

    def __init__(self, config: Config, number: int) -> None:
        super().__init__()
        self.sandwich = config.family.sandwich
        self.input_layernorm = Norm(config, config.hidden)
        self.self_attn = SelfAttention(config, number)
        self.post_attention_layernorm = Norm(config, config.hidden)
        if self.sandwich:
            self.pre_feedforward_layernorm = Norm(config, config.hidden)
            self.post_feedforward_layernorm = Norm(config, config.hidden)
        experts = config.experts[number]
        self.mlp = Mixture(config, experts) if experts else FeedForward(config, config.intermediate)

    def forward(self, x: Tensor, turn: Turn | None, documents: Ragged | Share | None) -> Tensor:
        """Return the tokens after this layer."""
        seen = self.self_attn(self.input_layernorm(x), turn, documents)
        if not self.sandwich:
            x = x + seen
            out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
            return out
        x = x + self.post_attention_layernorm(seen)
        out = x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        return out


class Decoder(nn.Module):
    """The embedding, the layers and the last norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
        self.norm = Norm(config, config.hidden)


class LanguageModel(nn.Module):
    """Predict the next token."""

    def __init__(self, config: Config, tokens: int, *, recompute: bool = False) -> None:
        """Make a model whose weights are not yet those of any model (see `start`).

        Args:
            config: what it is.
            tokens: the longest sequence; the length of those that are shared.
            recompute: keep only the inputs of the layers for the backward pass.
        """
        super().__init__()
        self.config, self.tokens, self.recompute = config, tokens, recompute
        self.model = Decoder(config)
        if not config.tied:
            self.lm_head = Projection(config.hidden, config.vocabulary)
        self._ropes = [rope for rope in dict.fromkeys(config.ropes) if rope is not None]
        # on the CPU even where the weights are only described
        places = torch.arange(tokens, device="cpu")
        for i, rope in enumerate(self._ropes):
            radians = torch.tensor(rope.frequencies, device="cpu")
            for name, part in zip(("cos", "sin"), rotation(rope, places, radians), strict=True):
                self.register_buffer(f"{name}{i}", part, persistent=False)

    @property
    def head(self) -> Tensor:
        """Return the output matrix [vocabulary, width]."""
        return self.model.embed_tokens.weight if self.config.tied else self.lm_head.weight

    def compile_layers(self) -> None:
        """Have torch.compile make a program for a layer, which all layers like it share."""
        compile_forward(self.model.layers)

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the weights that training changes, by their names."""
        return {name: w for name, w in self.named_parameters() if w.requires_grad}

    def matrices(self) -> dict[str, nn.Parameter]:
        """Return the trained weights that are no vectors."""
        return {name: w for name, w in self.trained().items() if w.dim() > 1}

    def flops(self, tokens: int, *, frozen: bool) -> float:
        """Return the operations of a step for each token, in sequences of `tokens`."""
        return flops(self.config, tokens, frozen=frozen)

    def explain(
        self, rows: int, tokens: int, dtype: torch.dtype, *, documents: bool
    ) -> tuple[str, Text]:
        """Return what computes attention in the first layer of a batch, and why."""
        config = self.config
        q, k = (
            torch.empty(
                (rows, tokens, heads, config.head_dim),
                dtype=dtype, device=self.head.device, requires_grad=True,
            )
            for heads in (config.heads, config.kv_heads)
        )  # fmt: skip
        options = attention_options(config, 0)
        if documents:
            options["seqlens"] = Ragged.of([tokens] * rows, device=self.head.device)
            q, k = q.flatten(0, 1), k.flatten(0, 1)
        else:
            options["layout"] = "bshd"
        choice = explain(q, k, k, **options)[0]
        return choice.backend, choice.reason

    def forward(
        self, tokens: Tensor, dtype: torch.dtype, documents: Ragged | Share | None
    ) -> Tensor:
        """Return the last hidden states, of which `head` makes scores.

        Args:
            tokens: int64 [batch, length].
            dtype: of everything between embedding and result.
            documents: the documents that lie end to end in the rows; None: each row is one; or
                the share of all rows that `tokens` is.

        Shapes: the result is [batch, length, width].
        """
        places: slice | Tensor = slice(tokens.shape[1])
        if isinstance(documents, Share):
            places = documents.places(self.tokens, tokens.device)
        turns = {
            rope: (self.get_buffer(f"cos{i}")[places], self.get_buffer(f"sin{i}")[places])
            for i, rope in enumerate(self._ropes)
        }
        x: Tensor = self.model.embed_tokens(tokens).to(dtype)
        if self.config.family.scaled_embeddings:
            x = x * torch.tensor(self.config.hidden**0.5, dtype=dtype)
        for layer, rope in zip(self.model.layers, self.config.ropes, strict=True):
            turn = None if rope is None else turns[rope]
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, turn, documents, use_reentrant=False)
            else:
                x = layer(x, turn, documents)
        out: Tensor = self.model.norm(x)
        return out


def attention_options(config: Config, layer: int) -> ProblemOptions:
    """Return what describes the attention of a layer, but for its documents."""
    window = config.windows[layer]
    return {
        "causal": True,
        "scale": config.attention_scale,
        "softcap": config.attention_softcap,
        "window": (window - 1 if window else None, None),
    }


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """Rotate the pairs (i, i + D/2) of the first D of each head of x [batch, tokens, heads, all].

    D is twice the number of angles that `turn` has for a position.
    """
    cos, sin = (part[:, None] for part in turn)
    size = cos.shape[-1]
    first, second, rest = torch.split(x.float(), [size, size, x.shape[-1] - 2 * size], -1)
    turned = [first * cos - second * sin, second * cos + first * sin, rest]
    return torch.cat(turned, -1).to(x.dtype)
