"""One transformer for all families: tokens and a paged cache in, logits out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gpudeck.accel.serving.backend import Backend, backend_for
from gpudeck.accel.serving.batch import Batch
from gpudeck.accel.serving.cache import PagedCache, Place
from gpudeck.accel.serving.checkpoint import Checkpoint
from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.families import Config, Experts, read_config
from gpudeck.accel.serving.linear import Format, Heads, Linear, Norm
from gpudeck.accel.serving.memory import Weights
from gpudeck.accel.serving.rotary import Rope
from gpudeck.language.text import phrase


@dataclass(frozen=True)
class Layer:
    """Hold the weights of a layer. A norm that the family lacks is None."""

    norm: Norm
    qkv: Linear
    heads: Heads
    output: Linear
    norm_after: Norm | None
    feed_norm: Norm
    feed: FeedForward | Mixture
    feed_norm_after: Norm | None
    side: Side | None = None
    factor: Tensor | None = None
    """[1]; what the layer's output is multiplied by."""


@dataclass(frozen=True)
class FeedForward:
    """Hold the matrices of a gated feed-forward layer."""

    gate_up: Linear
    down: Linear

    def __call__(
        self, ops: Backend, x: Tensor, norm: Norm | None, activation: str, add: Tensor | None = None
    ) -> Tensor:
        """Return the layer's output for x [T, C], normalized if asked, plus `add`."""
        return ops.multiply(self.down, ops.gated(self.gate_up, x, norm, activation), add=add)


@dataclass(frozen=True)
class Mixture:
    """Hold a mixture of experts: a router chooses a few of them for each token."""

    router: Linear
    experts: tuple[FeedForward, ...]
    kind: Experts

    def __call__(
        self, ops: Backend, x: Tensor, norm: Norm, activation: str, add: Tensor | None = None
    ) -> Tensor:
        """Return the weighted sum of the chosen experts' outputs for x [T, C], plus `add`."""
        x = ops.normalized(x, norm)
        likely = torch.softmax(ops.multiply(self.router, x).float(), dim=-1)
        shares, chosen = likely.topk(self.kind.chosen, dim=-1)
        if self.kind.normalized:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        # In the order of the experts, so that a token's sum does not depend on the other tokens.
        for number in chosen.flatten().bincount().nonzero().flatten().tolist():
            token, place = (chosen == number).nonzero(as_tuple=True)
            part = self.experts[number](ops, x[token], None, activation)
            out.index_add_(0, token, part * shares[token, place].unsqueeze(1).to(part.dtype))
        return out if add is None else out + add


@dataclass(frozen=True)
class Side:
    """Add what a layer makes of an input of its own."""

    gate: Linear
    project: Linear
    norm: Norm

    def __call__(self, ops: Backend, x: Tensor, given: Tensor) -> Tensor:
        """Return x [T, C] plus what is made of the input [T, P] of the layer."""
        gate = torch.nn.functional.gelu(ops.multiply(self.gate, x), approximate="tanh")
        return x + ops.normalized(ops.multiply(self.project, gate * given), self.norm)


@dataclass(frozen=True)
class Sides:
    """Make the inputs that layers have of their own, of tokens and of their embeddings."""

    table: Tensor
    """[V, layers P]"""
    project: Linear
    norm: Norm

    def __call__(self, ops: Backend, tokens: Tensor, x: Tensor) -> Tensor:
        """Return the inputs [T, layers, P] for embeddings [T, C]."""
        size = len(self.norm.weight)
        # a number: a tensor would be copied to the device, which no CUDA graph can record
        scale = float(torch.tensor(math.sqrt(size), dtype=self.table.dtype).to(x.dtype))
        known = torch.nn.functional.embedding(tokens, self.table).to(x.dtype) * scale
        made = ops.multiply(self.project, x) * x.shape[1] ** -0.5
        made = ops.normalized(made.view(len(x), -1, size), self.norm)
        return (made + known.view_as(made)) * 2**-0.5


class Transformer:
    """Compute logits."""

    def __init__(
        self,
        config: Config,
        embeddings: Tensor,
        layers: list[Layer],
        norm: Norm,
        head: Linear,
        device: torch.device,
        dtype: torch.dtype,
        sides: Sides | None = None,
    ) -> None:
        """Take weights that are on the device already; see `load`."""
        self.config, self.device, self.dtype = config, device, dtype
        self._ops = backend_for(device)
        self._embeddings, self._layers, self._norm, self._head = embeddings, layers, norm, head
        self._sides = sides
        self._scale = torch.tensor(math.sqrt(config.hidden), dtype=embeddings.dtype).to(
            device, dtype
        )
        self._ropes = {
            rope: torch.tensor(rope.frequencies, device=device, dtype=torch.float32)
            for rope in set(config.ropes)
            if rope is not None
        }

    @property
    def weights(self) -> str:
        """Return how the weights of the layers are kept, such as `int8`."""
        first = self._layers[0].qkv
        return first.format if first.format != "dense" else str(first.values.dtype)[6:]

    def forward(self, batch: Batch, cache: PagedCache) -> Tensor:
        """Store the keys and values of the batch, and return logits [n, V] in fp32.

        Args:
            batch: The tokens, whose predecessors are in the cache.
            cache: Is written to.
        """
        config, ops = self.config, self._ops
        x = torch.nn.functional.embedding(batch.tokens, self._embeddings).to(self.dtype)
        if config.family.scaled_embeddings:
            x = x * self._scale
        sides = None if self._sides is None else self._sides(ops, batch.tokens, x)
        turns = {
            rope: rotation(rope, batch.positions, radians) for rope, radians in self._ropes.items()
        }
        for i, (layer, rope) in enumerate(zip(self._layers, config.ropes, strict=True)):
            turn = turns[rope] if rope else None
            q = ops.queries(
                layer.qkv, x, layer.norm, layer.heads, Place(turn, batch.slots, cache, i)
            )
            found = ops.attend(q, i, batch, cache, config).flatten(1)
            if layer.norm_after is None:
                x = ops.multiply(layer.output, found, add=x)
            else:
                x = x + ops.normalized(ops.multiply(layer.output, found), layer.norm_after)
            if layer.feed_norm_after is None:
                x = layer.feed(ops, x, layer.feed_norm, config.activation, x)
            else:
                part = layer.feed(ops, x, layer.feed_norm, config.activation)
                x = x + ops.normalized(part, layer.feed_norm_after)
            if layer.side is not None and sides is not None:
                x = layer.side(ops, x, sides[:, i])
            if layer.factor is not None:
                x = x * layer.factor
        if not len(batch.wanted):
            return x.new_empty(0, config.vocabulary, dtype=torch.float32)
        rows = x if len(batch.wanted) == len(x) else x[batch.wanted]
        logits = ops.multiply(self._head, rows, self._norm, precise=True)
        if config.final_softcap:
            logits = config.final_softcap * torch.tanh(logits / config.final_softcap)
        return logits


def rotation(rope: Rope, positions: Tensor, radians: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [T, dims / 2] in fp32, of positions [T] and frequencies."""
    angles = positions.unsqueeze(1) * radians
    if rope.factor == 1:
        return angles.cos(), angles.sin()
    return angles.cos() * rope.factor, angles.sin() * rope.factor


def load(
    folder: Path,
    device: str = "cpu",
    weights: Weights = "auto",
    progress: Callable[[int], None] = lambda done: None,
) -> Transformer:
    """Load the model in a folder.

    Args:
        folder: With config.json and .safetensors files.
        device: `cpu`, which computes in fp32, or `cuda`, which computes in bf16.
        weights: How the matrices of the layers are kept. FP8 is for a GPU; on a CPU it becomes
            fp32.
        progress: Is called with the bytes that were read so far.

    Raises:
        ModelRefused: The model cannot be served.
    """
    config = read_config(folder)
    return _Loader(config, Checkpoint(folder, config), torch.device(device), weights).load(progress)


class _Loader:
    """Arrange the tensors of a checkpoint on a device."""

    def __init__(
        self, config: Config, source: Checkpoint, device: torch.device, weights: Weights
    ) -> None:
        self._config, self._source, self._device = config, source, device
        self._dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        self._format: Format | None = None
        self._dense = self._dtype
        if weights in ("int8", "fp8", "int4"):
            self._format = weights
        elif weights == "float32":
            self._format, self._dense = "dense", torch.float32
        elif weights == "bfloat16":
            self._format, self._dense = "dense", torch.bfloat16
        self._as_stored = weights == "auto" and device.type == "cpu"
        if device.type == "cpu" and weights == "fp8":
            raise ModelRefused(phrase("FP8 weights need a GPU. On a CPU, choose int8"))

    def load(self, progress: Callable[[int], None]) -> Transformer:
        config, source = self._config, self._source
        table = source.tensor("model.embed_tokens.weight", config.vocabulary, config.hidden)
        embeddings = table.to(self._device, self._type_of(table))
        if config.tied or "lm_head.weight" not in source:
            head = self._kept(Linear("dense", table))
            if head.format == "dense" and head.values.dtype == embeddings.dtype:
                head = Linear("dense", embeddings)
        else:
            head = self._kept(source.linear("lm_head", config.vocabulary, config.hidden))
        layers = []
        for number in range(config.layers):
            layers.append(self._layer(number))
            progress(source.read_bytes)
        norm = self._norm("model.norm", config.hidden)
        sides = self._sides() if config.side else None
        return Transformer(config, embeddings, layers, norm, head, self._device, self._dtype, sides)

    def _layer(self, number: int) -> Layer:
        config, family, at = self._config, self._config.family, f"model.layers.{number}"
        keys = config.keys_of(number)
        query, key, own = config.heads * keys.size, keys.heads * keys.size, keys.source == number
        if family.fused:
            qkv = self._matrix(f"{at}.self_attn.qkv_proj", query + 2 * key, config.hidden)
        else:
            parts = [(f"{at}.self_attn.q_proj", query)]
            if own:
                value = "k_proj" if keys.shared else "v_proj"
                parts += [(f"{at}.self_attn.{name}", key) for name in ("k_proj", value)]
            qkv = self._joined(parts, config.hidden)
        feed_norm = "pre_feedforward_layernorm" if family.sandwich else "post_attention_layernorm"
        norms = None
        if family.query_key_norm:
            norms = (
                self._norm(f"{at}.self_attn.q_norm", keys.size),
                # a layer without keys of its own has none to normalize
                self._norm(f"{at}.self_attn.{'k' if own else 'q'}_norm", keys.size),
            )
        plain = torch.ones(keys.size, device=self._device)
        wrapped = family.sandwich
        return Layer(
            self._norm(f"{at}.input_layernorm", config.hidden),
            qkv,
            Heads(
                config.heads,
                keys.heads if own else 0,
                norms,
                Norm(plain, config.eps) if family.varied else None,
            ),
            self._matrix(f"{at}.self_attn.o_proj", config.hidden, query),
            self._norm(f"{at}.post_attention_layernorm", config.hidden) if wrapped else None,
            self._norm(f"{at}.{feed_norm}", config.hidden),
            self._feed(f"{at}.mlp", config.experts[number], config.width_of(number)),
            self._norm(f"{at}.post_feedforward_layernorm", config.hidden) if wrapped else None,
            self._side(at) if config.side else None,
            self._factor(at) if family.varied else None,
        )

    def _side(self, at: str) -> Side:
        config = self._config
        return Side(
            self._matrix(f"{at}.per_layer_input_gate", config.side, config.hidden),
            self._matrix(f"{at}.per_layer_projection", config.hidden, config.side),
            self._norm(f"{at}.post_per_layer_input_norm", config.hidden),
        )

    def _sides(self) -> Sides:
        config, every = self._config, self._config.layers * self._config.side
        table = self._source.tensor("model.embed_tokens_per_layer.weight", config.vocabulary, every)
        return Sides(
            table.to(self._device, self._type_of(table)),
            self._matrix("model.per_layer_model_projection", every, config.hidden),
            self._norm("model.per_layer_projection_norm", config.side),
        )

    def _factor(self, at: str) -> Tensor:
        return self._source.tensor(f"{at}.layer_scalar", 1).to(self._device, self._dtype)

    def _feed(self, at: str, experts: Experts | None, width: int) -> FeedForward | Mixture:
        if experts is None:
            return self._dense_feed(at, width)
        router = self._source.linear(f"{at}.gate", experts.count, self._config.hidden)
        every = [
            self._dense_feed(f"{at}.experts.{i}", experts.intermediate)
            for i in range(experts.count)
        ]
        return Mixture(router.to(self._device, self._dtype), tuple(every), experts)

    def _dense_feed(self, at: str, width: int) -> FeedForward:
        hidden = self._config.hidden
        if self._config.family.fused:
            gate_up = self._matrix(f"{at}.gate_up_proj", 2 * width, hidden)
        else:
            gate_up = self._joined([(f"{at}.gate_proj", width), (f"{at}.up_proj", width)], hidden)
        return FeedForward(gate_up, self._matrix(f"{at}.down_proj", hidden, width))

    def _norm(self, name: str, size: int) -> Norm:
        weight = self._source.tensor(f"{name}.weight", size).float()
        return Norm((weight + self._config.family.norm_offset).to(self._device), self._config.eps)

    def _matrix(self, name: str, rows: int, columns: int) -> Linear:
        return self._kept(self._source.linear(name, rows, columns))

    def _joined(self, parts: list[tuple[str, int]], columns: int) -> Linear:
        found = [self._source.linear(name, rows, columns) for name, rows in parts]
        return self._kept(Linear.join(found))

    def _kept(self, matrix: Linear) -> Linear:
        """Return a matrix as it is kept on the device."""
        if matrix.format == "fp8" and self._device.type == "cpu":
            matrix = matrix.as_dense(torch.float32)
        if self._format is not None:
            matrix = matrix.quantized(self._format)
        return matrix.to(self._device, self._type_of(matrix.values))

    def _type_of(self, tensor: Tensor) -> torch.dtype:
        """Return the type that a dense matrix is kept in."""
        if not self._as_stored:
            return self._dense
        return torch.bfloat16 if tensor.dtype == torch.bfloat16 else torch.float32
