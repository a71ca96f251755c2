"""RWKV-7 as a model that is trained, with the names and shapes of flash-linear-attention.

The recurrence is `gpudeck.accel.primitives.linear_attention`. The RWKV engine opens the weights
(`gpudeck.accel.rwkv`), and its layers are what the tests compare these with.

Source: Peng et al., RWKV-7 "Goose", arXiv 2503.14456, section 4 and appendix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.primitives.linear_attention.api import explain_linear, linear_attention
from gpudeck.accel.rwkv.layers import DECAY, GROUP_EPS
from gpudeck.accel.rwkv.weights import HEAD, MIXES
from gpudeck.accel.training.projection import Projection, compile_forward
from gpudeck.accel.training.shapes import RecurrentConfig
from gpudeck.language.text import Text


class Norm(nn.LayerNorm):
    """Normalise the channels of each token by its own mean and deviation."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of x in its dtype."""
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class GroupNorm(nn.GroupNorm):
    """Normalise the channels of each head."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of x [batch, tokens, width] in its dtype."""
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        rows = functional.group_norm(x.flatten(0, 1), self.num_groups, weight, bias, self.eps)
        return rows.view_as(x)


class LowRank(nn.Module):
    """Map by two small matrices with a function between them."""

    def __init__(self, width: int, rank: int, between: nn.Module, *, biased: bool = True) -> None:
        super().__init__()
        up = Projection(rank, width)
        if biased:
            up.bias = nn.Parameter(torch.zeros(width))
        self.lora = nn.Sequential(Projection(width, rank), between, up)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the small matrices make of x."""
        out: Tensor = self.lora(x)
        return out


class TimeMix(nn.Module):
    """Let each token read the state that the tokens before it wrote."""

    def __init__(self, config: RecurrentConfig, layer: int) -> None:
        super().__init__()
        width = config.hidden
        for name in MIXES:
            self.register_parameter(name, nn.Parameter(torch.zeros(1, 1, width)))
        self.k_k, self.k_a = (nn.Parameter(torch.zeros(width)) for _ in range(2))
        self.r_k = nn.Parameter(torch.zeros(width // HEAD, HEAD))
        self.r_proj, self.k_proj, self.v_proj, self.o_proj = (
            Projection(width, width) for _ in range(4)
        )
        self.w_lora = LowRank(width, config.decay, nn.Tanh())
        self.a_lora = LowRank(width, config.rate, nn.Identity())
        self.g_lora = LowRank(width, config.gate, nn.Sigmoid(), biased=False)
        self.v_lora = LowRank(width, config.residual, nn.Identity()) if layer else None
        self.g_norm = GroupNorm(width // HEAD, width, GROUP_EPS)
        self.time_state: nn.Parameter | None = None
        if config.tuned:
            self.time_state = nn.Parameter(torch.zeros(width // HEAD, HEAD, HEAD))

    def forward(
        self, x: Tensor, first: Tensor, starts: Tensor | None, v_first: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return what the tokens read, and the values of the first layer.

        Args:
            x: [batch, tokens, width].
            first: bool [batch, tokens], True for the first token of a document.
            starts: where the documents of the flattened batch begin; None: each row is one.
            v_first: the values of the first layer; None in the first layer.
        """
        shift = _before(x, first) - x
        x_r, x_w, x_k, x_v, x_a, x_g = (
            x + shift * self.get_parameter(name).to(x.dtype) for name in MIXES
        )
        r, k, v = self.r_proj(x_r), self.k_proj(x_k), self.v_proj(x_v)
        decay = -DECAY * torch.sigmoid(self.w_lora(x_w).float())
        rate = torch.sigmoid(self.a_lora(x_a))
        if self.v_lora is None or v_first is None:
            v_first = v
        else:
            v = v + (v_first - v) * torch.sigmoid(self.v_lora(x_v))
        heads = (*x.shape[:2], -1, HEAD)
        removal = functional.normalize((k * self.k_k.to(x.dtype)).view(heads).float(), dim=-1)
        k = k * (1 + (rate - 1) * self.k_a.to(x.dtype))
        r, k, v, decay, rate = (t.view(heads) for t in (r, k, v, decay, rate))
        vectors = [r, k, v, decay, -removal, removal * rate.float()]
        if starts is not None:
            vectors = [t.reshape(1, -1, *t.shape[2:]) for t in vectors]
        q, key, value, log_decay, a, b = vectors
        state = self._begin(len(x) if starts is None else len(starts) - 1)
        read = _recur(q, key, value, log_decay, a, b, state, starts)
        bonus = (r * k * self.r_k.to(x.dtype)).sum(-1, keepdim=True) * v
        mixed = self.g_norm(read.reshape(x.shape)) + bonus.flatten(2)
        out: Tensor = self.o_proj(mixed * self.g_lora(x_g))
        return out, v_first

    def _begin(self, count: int) -> Tensor | None:
        """Return the states of documents before their first tokens; None: zeros."""
        if self.time_state is None:
            return None
        return self.time_state.float().expand(count, -1, -1, -1).contiguous()


class ChannelMix(nn.Module):
    """Map each token and the one before it: value(relu(key(x))²)."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.x_k = nn.Parameter(torch.zeros(config.hidden))
        self.key = Projection(config.hidden, config.intermediate)
        self.value = Projection(config.intermediate, config.hidden)

    def forward(self, x: Tensor, first: Tensor) -> Tensor:
        """Return the mapped tokens."""
        mixed = x + (_before(x, first) - x) * self.x_k.to(x.dtype)
        out: Tensor = self.value(torch.relu(self.key(mixed)).square())
        return out


class Layer(nn.Module):
    """Add to each token what it reads, then what the feed-forward makes of it."""

    def __init__(self, config: RecurrentConfig, number: int) -> None:
        super().__init__()
        self.pre_norm = None if number else Norm(config.hidden)
        self.attn_norm, self.ffn_norm = Norm(config.hidden), Norm(config.hidden)
        self.attn, self.ffn = TimeMix(config, number), ChannelMix(config)

    def forward(
        self, x: Tensor, first: Tensor, starts: Tensor | None, v_first: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the tokens after this layer, and the values of the first layer."""
        if self.pre_norm is not None:
            x = self.pre_norm(x)
        read, v_first = self.attn(self.attn_norm(x), first, starts, v_first)
        x = x + read
        return x + self.ffn(self.ffn_norm(x), first), v_first


class Stack(nn.Module):
    """The embedding, the layers and the last norm."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
        self.norm = Norm(config.hidden)


class RecurrentModel(nn.Module):
    """Predict the next token."""

    def __init__(self, config: RecurrentConfig, *, recompute: bool = False) -> None:
        """Make a model whose weights are not yet those of any model (see `start`).

        Args:
            config: what it is.
            recompute: keep only the inputs of the layers for the backward pass.
        """
        super().__init__()
        self.config, self.recompute = config, recompute
        self.model = Stack(config)
        self.lm_head = Projection(config.hidden, config.vocabulary)

    @property
    def head(self) -> Tensor:
        """Return the output matrix [vocabulary, width]."""
        return self.lm_head.weight

    def compile_layers(self) -> None:
        """Have torch.compile make a program for a layer, which all layers like it share."""
        compile_forward(self.model.layers)

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the weights that training changes, by their names."""
        return {name: w for name, w in self.named_parameters() if w.requires_grad}

    def matrices(self) -> dict[str, nn.Parameter]:
        """Return the trained matrices, without those of low-rank maps, which are like biases."""
        own = {name: w for name, w in self.trained().items() if w.dim() == 2}
        return {n: w for n, w in own.items() if ".lora." not in n and not n.endswith(".r_k")}

    def flops(self, tokens: int, *, frozen: bool) -> float:
        """Return the operations of a step for each token, in sequences of any length."""
        del tokens
        return self.config.flops(frozen=frozen)

    def forward(self, tokens: Tensor, dtype: torch.dtype, documents: Ragged | None) -> Tensor:
        """Return the last hidden states, of which `head` makes scores.

        Args:
            tokens: int64 [batch, length].
            dtype: of everything between embedding and result, but for decays and the state.
            documents: the documents that lie end to end in the rows; None: each row is one.

        Shapes: the result is [batch, length, width].
        """
        first = torch.zeros(tokens.shape, dtype=torch.bool, device=tokens.device)
        first[:, 0] = True
        starts = None if documents is None else documents.starts_q
        if starts is not None:
            begins = starts[starts < tokens.numel()].long()
            first = first.flatten().index_fill(0, begins, value=True).view(tokens.shape)
        x: Tensor = self.model.embeddings(tokens).to(dtype)
        v_first: Tensor | None = None
        for layer in self.model.layers:
            if self.recompute and torch.is_grad_enabled():
                x, v_first = checkpoint(layer, x, first, starts, v_first, use_reentrant=False)
            else:
                x, v_first = layer(x, first, starts, v_first)
        out: Tensor = self.model.norm(x)
        return out

    def explain(
        self, rows: int, tokens: int, dtype: torch.dtype, *, documents: bool
    ) -> tuple[str, Text]:
        """Return the backend of the recurrence and why it was chosen."""
        shape = (1, rows * tokens) if documents else (rows, tokens)
        like = self.lm_head.weight
        x = torch.empty(*shape, self.config.hidden // HEAD, HEAD, dtype=dtype, device=like.device)
        choice = explain_linear(x, x, x, kind="rwkv7", decay=torch.zeros_like(x), a=x, b=x)
        return choice.backend, choice.reason


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _recur(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, a: Tensor, b: Tensor,
    state: Tensor | None, starts: Tensor | None,
) -> Tensor:  # fmt: skip
    """Compute the recurrence, whose launches torch.compile would break into many small programs."""
    return linear_attention(
        q, k, v, kind="rwkv7", decay=decay, a=a, b=b, state=state, starts=starts
    ).out


def _before(x: Tensor, first: Tensor) -> Tensor:
    """Return the token before each token, and zeros before the first one of a document."""
    shifted = functional.pad(x[:, :-1], (0, 0, 1, 0))
    return shifted.masked_fill(first.unsqueeze(-1), 0.0)
