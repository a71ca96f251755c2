"""The network of the reader of requests: the encoder with its heads, in torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.assistant.reader.labels import PAGES, SPANS, heads, marks
from gpudeck.assistant.reader.quantized import unpack

HEADS, MARKS = heads(), marks()
LAYERS = 12
FIXED = 6
"""Layers that stay as they are."""
TAGS = ("", *(f"{start}-{name}" for name in SPANS for start in "BI"))
_NAMES = {"head": HEADS, "second": (*HEADS, ""), "mark": MARKS}
_UNKNOWN = -4.0
"""The bias of a class that a reader has not learnt yet."""


class Layer(nn.Module):
    """One layer of the encoder."""

    def __init__(self, channels: int = 384, heads_: int = 12, wide: int = 1536) -> None:
        super().__init__()
        self.heads = heads_
        self.q, self.k, self.v, self.ao = (nn.Linear(channels, channels) for _ in range(4))
        self.fi, self.fo = nn.Linear(channels, wide), nn.Linear(wide, channels)
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

    def __init__(self, weights: dict[str, np.ndarray[Any, Any]], fixed: int) -> None:
        super().__init__()
        self.fixed = fixed
        self.register_buffer("word", torch.from_numpy(unpack(weights["word"])), persistent=False)
        pos = weights["pos"].astype(np.float32) + weights["type"]
        self.register_buffer("pos", torch.from_numpy(pos), persistent=False)
        self.norm = nn.LayerNorm(384, 1e-12)
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
        self.tag = nn.Linear(384, len(TAGS))
        self.drop = nn.Dropout(0.1)

    @torch.no_grad()
    def lower(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the states behind the layers that stay as they are."""
        x = self.norm(self.word[ids] + self.pos[: ids.shape[1]])
        for layer in self.layers[: self.fixed]:
            x = layer(x, mask)
        found: Tensor = x
        return found

    def upper(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last states, and what stands for the whole request: [B, 768]."""
        for layer in self.layers[self.fixed :]:
            x = layer(x, mask)
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return x, torch.cat((x[:, 0], mean), -1).float()

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Return the logits of all heads from the states of the fixed layers."""
        x, whole = self.upper(x, mask)
        whole = self.drop((whole - self.mean) / self.spread)
        found = {name: getattr(self, name)(whole) for name in ("head", "second", "mark", "page")}
        return found | {"tag": self.tag(self.drop(x))}


def named(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return weights with the names of their classes, for a table of labels may grow."""
    return {"state": dict(state), "names": {name: list(of) for name, of in _NAMES.items()}}


def load(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of readers' weights, for the classes of today's table."""
    saved = [torch.load(file, weights_only=True) for file in files]
    state = {key: torch.stack([one["state"][key] for one in saved]).mean(0)
             for key in saved[0]["state"]}  # fmt: skip
    for name, wanted in _NAMES.items():
        place = {one: i for i, one in enumerate(saved[0]["names"][name])}
        known = [i for i, one in enumerate(wanted) if one in place]
        for kind, empty in (("weight", 0.0), ("bias", _UNKNOWN)):
            old = state[f"{name}.{kind}"]
            new = torch.full((len(wanted), *old.shape[1:]), empty)
            new[known] = old[[place[wanted[i]] for i in known]]
            state[f"{name}.{kind}"] = new
    return state
