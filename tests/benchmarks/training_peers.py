"""Train the models of the benchmark as others write them: plain torch, nanochat, fla and peft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.accel.rwkv.layers import DECAY
from gpudeck.accel.training import recurrent_weights
from gpudeck.accel.training.recurrent import RecurrentModel
from gpudeck.accel.training.shapes import SHAPES, RecurrentConfig, Shape, recurrent_json


class Block(nn.Module):
    """A layer of Llama's shape with one product for q, k and v, and one for gate and up."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, self.heads = shape.width, shape.heads
        self.first, self.second = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.qkv, self.out = _linear(width, 3 * width), _linear(width, width)
        self.gate_up, self.down = _linear(width, 2 * shape.inner), _linear(shape.inner, width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the tokens after this layer, for x [batch, tokens, width]."""
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        q, k = (_turned(t, cos, sin) for t in (q, k))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.second(x)).chunk(2, -1)
        out: Tensor = x + self.down(functional.silu(gate) * up)
        return out


class Plain(nn.Module):
    """The model of a size in plain torch: SDPA, whole scores and F.cross_entropy."""

    def __init__(self, name: str, vocabulary: int, tokens: int) -> None:
        super().__init__()
        shape = SHAPES[name]
        self.embedding = nn.Embedding(vocabulary, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, 1e-5)
        size = shape.width // shape.heads
        angles = torch.outer(
            torch.arange(tokens).float(), 10000.0 ** (-torch.arange(0, size, 2) / size)
        )
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of targets [batch, tokens]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        scores = functional.linear(self.norm(x), self.embedding.weight)
        return functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


def plain_steps(
    name: str, vocabulary: int, batch: int, tokens: int, device: torch.device
) -> Iterator[None]:
    """Train in plain torch, one step at each next: autocast to bf16, the whole model compiled,
    fused AdamW, and nothing that waits for the GPU."""
    torch.set_float32_matmul_precision("high")
    with torch.device(device):
        model = Plain(name, vocabulary, tokens)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, 0.0, 0.02)
    run: Callable[..., Tensor] = torch.compile(model) if device.type == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), 6e-4, (0.9, 0.95), fused=True)
    drawn = torch.randint(0, 50257, (4, batch, tokens + 1), device=device) % vocabulary
    while True:
        for rows in drawn:
            with torch.autocast(device.type, torch.bfloat16):
                loss = run(rows[:, :-1], rows[:, 1:])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            yield


def by_fla(
    q: Tensor, k: Tensor, v: Tensor, *, decay: Tensor, a: Tensor, b: Tensor,
    starts: Tensor | None, **_: Any,
) -> Any:  # fmt: skip
    """Compute the recurrence of RWKV-7 by fla-core, in place of ours in the same model.

    It is told what the decays cannot be below, as by fla's own model: that makes it faster.
    """
    from types import SimpleNamespace

    from fla.ops.rwkv7 import chunk_rwkv7

    a, b = a.to(q.dtype), b.to(q.dtype)
    lengths = None if starts is None else starts.long()
    out = chunk_rwkv7(q, decay, k, v, a, b, cu_seqlens=lengths, lower_bound=-DECAY)
    return SimpleNamespace(out=out[0])


def fla_steps(
    config: RecurrentConfig, batch: int, tokens: int, device: torch.device, *, short: bool
) -> Iterator[None]:
    """Train flash-linear-attention's own model of RWKV-7, with its fused layers and loss, from the
    weights that ours begins with.

    Args:
        config: what the model is.
        batch: the sequences of a step.
        tokens: of a sequence.
        device: what computes.
        short: keep weights and what AdamW remembers in bfloat16, not in float32.
    """
    from fla.models.rwkv7 import RWKV7Config, RWKV7ForCausalLM
    from transformers import modeling_utils

    names = ("architectures", "model_type")
    known = {n: v for n, v in recurrent_json(config).items() if n not in names}
    drawn = RecurrentModel(config)
    recurrent_weights.draw(drawn, 0)
    # its own weights, which it draws number by number, are not needed
    drawing = mock.patch.object(modeling_utils, "_init_weights", new=False, create=True)
    with drawing, torch.device(device):
        model = RWKV7ForCausalLM(RWKV7Config(**known))
    model.load_state_dict(drawn.state_dict())
    model.train()
    if short:
        model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), 6e-4, (0.9, 0.95), fused=True)
    texts = torch.randint(0, 50257, (4, batch, tokens), device=device) % config.vocabulary
    while True:
        for rows in texts:
            with torch.autocast(device.type, torch.bfloat16, enabled=not short):
                loss = model(input_ids=rows, labels=rows, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            yield


class Nanochat:
    """nanochat's model and optimizer in the steps of its `scripts/base_train.py`.

    Its repository must be among the modules that can be imported. Its own FlashAttention-3 is
    downloaded; without it the model computes attention by SDPA, for which the script advises full
    windows, as here.
    """

    def __init__(self, layers: int, vocabulary: int, tokens: int, device: torch.device) -> None:
        from nanochat.gpt import GPT, GPTConfig

        width = 64 * layers
        config = GPTConfig(
            sequence_len=tokens, vocab_size=vocabulary, n_layer=layers, n_head=width // 128,
            n_kv_head=width // 128, n_embd=width, window_pattern="L",
        )  # fmt: skip
        with torch.device("meta"):
            self._model = GPT(config)
        self._model.to_empty(device=device)
        self._model.init_weights()
        self._device, self._vocabulary, self._tokens = device, vocabulary, tokens

    def operations(self) -> float:
        """Return the operations of a step for each token, as nanochat counts them."""
        return float(self._model.estimate_flops())

    def steps(self, batch: int) -> Iterator[None]:
        """Do steps; each waits for its loss, as the script does."""
        run = torch.compile(self._model, dynamic=False)
        optimizer = self._model.setup_optimizer()
        shape = (4, batch, self._tokens + 1)
        drawn = torch.randint(0, self._vocabulary, shape, device=self._device)
        while True:
            for rows in drawn:
                loss = run(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
                loss.backward()
                optimizer.step()
                self._model.zero_grad(set_to_none=True)
                loss.item()
                yield


def peft_steps(config: dict[str, Any], tokens: int, device: torch.device) -> Iterator[None]:
    """Train small matrices of rank 16 by transformers and peft, as TRL's trainer runs them."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    known = {n: v for n, v in config.items() if n not in ("architectures", "model_type")}
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        base = LlamaForCausalLM._from_config(LlamaConfig(**known), attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    settings = LoraConfig(r=16, lora_alpha=32, target_modules=names, task_type="CAUSAL_LM")
    model = get_peft_model(base, settings)
    weights = [w for w in model.parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(weights, 2e-4, fused=True)
    rows = torch.randint(0, known["vocab_size"], (1, tokens), device=device)
    while True:
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(input_ids=rows, labels=rows, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield
