"""The network of the reader of requests: the encoder with its heads, in torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.assistant.reader.encoder import BLOCK, unpack
from gpudeck.assistant.reader.labels import PAGES, SPANS, heads, marks
from gpudeck.language.languages import LANGUAGES

HEADS, MARKS = heads(), marks()
LAYERS = 12
TAGS = ("", *(f"{start}-{name}" for name in SPANS for start in "BI"))
CLASSIFIERS = ("head", "second", "mark", "page", "language")
"""The heads that read a request as a whole."""


def rounded(weight: Tensor) -> Tensor:
    """Return weights as they ship, in four bits (`export.pack`).

    Gradients pass as if nothing were rounded, so that training finds weights that bear it.
    """
    parts = weight.detach().reshape(-1, BLOCK)
    peaks = parts.gather(1, parts.abs().argmax(1, keepdim=True))
    scales = (peaks / -8).half().float()
    safe = torch.where(scales == 0, 1.0, scales)
    near = (parts / safe).round().clamp(-8, 7) * scales
    return weight + (near - parts).view_as(weight)


class RoundedLinear(nn.Linear):
    """A linear map whose weights ship in four bits."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, rounded(self.weight), self.bias)


class Layer(nn.Module):
    """One layer of the encoder."""

    def __init__(self, channels: int = 384, heads_: int = 12, wide: int = 1536) -> None:
        super().__init__()
        self.heads = heads_
        self.q, self.k, self.v, self.ao = (RoundedLinear(channels, channels) for _ in range(4))
        self.fi, self.fo = RoundedLinear(channels, wide), RoundedLinear(wide, channels)
        self.aln = nn.LayerNorm(channels, 1e-12)
        self.oln = nn.LayerNorm(channels, 1e-12)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            part(x).view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, mask[:, None, None])
        x = self.aln(x + self.drop(self.ao(mixed.transpose(1, 2).reshape(b, t, c))))
        found: Tensor = self.oln(x + self.drop(self.fo(functional.gelu(self.fi(x)))))
        return found


class Reader(nn.Module):
    """The encoder with its heads. The embeddings stay as they are."""

    word: Tensor
    pos: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super().__init__()
        self.register_buffer("word", torch.from_numpy(unpack(weights["word"])))
        pos = weights["pos"].astype(np.float32) + weights["type"]
        self.register_buffer("pos", torch.from_numpy(pos))
        self.norm = nn.LayerNorm(384, 1e-12).requires_grad_(requires_grad=False)
        self.norm.weight.data = torch.from_numpy(weights["norm.w"].copy())
        self.norm.bias.data = torch.from_numpy(weights["norm.b"].copy())
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        for i, layer in enumerate(self.layers):
            for name, module in layer.named_children():
                if name == "drop":
                    continue
                w, b = weights[f"l{i}.{name}.w"], weights[f"l{i}.{name}.b"]
                w = unpack(w) if w.dtype == np.uint8 else w
                module.weight.data = torch.from_numpy(w.copy())
                module.bias.data = torch.from_numpy(b.copy())
        self.register_buffer("mean", torch.zeros(768))
        self.register_buffer("spread", torch.ones(768))
        self.head = nn.Linear(768, len(HEADS))
        self.second = nn.Linear(768, len(HEADS) + 1)
        self.mark = nn.Linear(768, len(MARKS))
        self.page = nn.Linear(768, len(PAGES))
        self.language = nn.Linear(768, len(LANGUAGES))
        self.tag = nn.Linear(384, len(TAGS))
        self.drop = nn.Dropout(0.1)

    def encode(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last states [B, T, 384], and what stands for the whole request [B, 768]."""
        x = self.norm(self.word[ids] + self.pos[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, mask)
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return x, torch.cat((x[:, 0], mean), -1).float()

    def classify(self, whole: Tensor) -> dict[str, Tensor]:
        """Return the logits of the heads that read a request as a whole: [B, 768] each."""
        whole = self.drop((whole - self.mean) / self.spread)
        return {name: getattr(self, name)(whole) for name in CLASSIFIERS}

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Return the logits of all heads."""
        x, whole = self.encode(ids, mask)
        return self.classify(whole) | {"tag": self.tag(self.drop(x))}
