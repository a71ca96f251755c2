"""List the second grid: attention of published models that no measured table may contain.

`auto` is tuned on other shapes, so its choices here are what a user gets. Heads and head sizes are
those of the models. Lengths are what a prompt, a packed batch or an image leaves, mostly no
multiple of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from accel.attention.problem import Problem, default_scale
from accel.attention.table import Place, place

Mask = Literal["none", "padding", "alibi", "learned"]
"""`padding` is a bool mask of the keys; `alibi` is added and fixed; `learned` needs a gradient."""

GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")


@dataclass(frozen=True)
class ModelShape:
    """Describe one attention problem of a published model."""

    group: str
    """What the shape stands for."""
    name: str
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    causal: bool = False
    left: int | None = None
    softcap: float = 0.0
    mask: Mask = "none"
    lengths: tuple[int, ...] = ()
    """Of the sequences of a ragged batch."""
    trained: bool = True
    """False if only the forward pass is of use, as in decoding."""

    @property
    def place(self) -> Place:
        """Return where dispatch looks it up in a table."""
        return place(self.batch * self.heads, self.seq_q, self.seq_k)

    def problem(self, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Problem:
        """Return the problem as dispatch sees it."""
        return Problem(
            self.batch,
            self.heads,
            self.kv_heads,
            self.seq_q,
            self.seq_k,
            self.head_dim,
            dtype,
            device,
            (9, 0),
            default_scale(self.head_dim),
            left=self.left,
            right=0 if self.causal else None,
            softcap=self.softcap,
            bias={"none": "none", "padding": "bool"}.get(self.mask, "float"),
            bias_grad=self.mask == "learned",
            ragged=bool(self.lengths),
        )

    @property
    def flops(self) -> float:
        """Return the operations of the forward pass, of unmasked elements only."""
        whole = self.problem(torch.device("cuda"))
        if not self.lengths:
            return whole.flops
        pairs = sum(n * (n + 1) // 2 if self.causal else n * n for n in self.lengths)
        return 4.0 * self.heads * pairs * self.head_dim


def _packed(name: str, heads: int, kv_heads: int, dim: int, causal: bool, *n: int) -> ModelShape:
    return ModelShape(
        "ragged", name, len(n), heads, kv_heads, max(n), max(n), dim, causal, lengths=n
    )


_CAUSAL, _GROUPED, _VISION = "causal, odd head sizes", "grouped heads", "images and encoders"
_LOCAL, _BIAS, _DECODE = "windows and softcap", "masks and biases", "decoding"

SHAPES = (
    ModelShape(_GROUPED, "Llama-3-8B, 3000", 1, 32, 8, 3000, 3000, 128, True),
    ModelShape(_GROUPED, "Llama-3-8B, 6000", 2, 32, 8, 6000, 6000, 128, True),
    ModelShape(_GROUPED, "Llama-3-70B, 2900", 1, 64, 8, 2900, 2900, 128, True),
    ModelShape(_GROUPED, "Qwen2.5-7B, 3500", 1, 28, 4, 3500, 3500, 128, True),
    ModelShape(_GROUPED, "Qwen3-0.6B, 1500", 4, 16, 8, 1500, 1500, 128, True),
    ModelShape(_GROUPED, "Falcon-7B, 1900", 1, 71, 1, 1900, 1900, 64, True),
    ModelShape(_GROUPED, "Llama-3.2-1B, 9000", 1, 32, 8, 9000, 9000, 64, True),
    ModelShape(_CAUSAL, "GPT-2, 1000", 16, 12, 12, 1000, 1000, 64, True),
    ModelShape(_CAUSAL, "Pythia-1.4B, 1900", 4, 16, 16, 1900, 1900, 128, True),
    ModelShape(_CAUSAL, "Phi-2, 1900", 4, 32, 32, 1900, 1900, 80, True),
    ModelShape(_CAUSAL, "Phi-3-mini, 3000", 2, 32, 32, 3000, 3000, 96, True),
    ModelShape(_CAUSAL, "DeepSeek-V2-Lite, 3000", 1, 16, 16, 3000, 3000, 192, True),
    ModelShape(_CAUSAL, "GPT-J-6B, 1900", 2, 16, 16, 1900, 1900, 256, True),
    ModelShape(_VISION, "ViT-B/16, 197", 128, 12, 12, 197, 197, 64),
    ModelShape(_VISION, "ViT-H/14, 257", 32, 16, 16, 257, 257, 80),
    ModelShape(_VISION, "SigLIP-so400m, 729", 32, 16, 16, 729, 729, 72),
    ModelShape(_VISION, "CLIP text, 77", 256, 8, 8, 77, 77, 64, True),
    ModelShape(_VISION, "BERT-base, 300", 64, 12, 12, 300, 300, 64),
    ModelShape(_VISION, "Whisper-large, 1500", 8, 20, 20, 1500, 1500, 64),
    ModelShape(_VISION, "Whisper-large, 300 over 1500", 8, 20, 20, 300, 1500, 64),
    ModelShape(_VISION, "SD 1.5, 9216", 2, 8, 8, 9216, 9216, 40),
    ModelShape(_VISION, "SDXL, 4032 over 77", 2, 10, 10, 4032, 77, 64),
    ModelShape(_VISION, "FLUX.1, 4608", 1, 24, 24, 4608, 4608, 128),
    ModelShape(_VISION, "CogVideoX-2B, 17776", 1, 30, 30, 17776, 17776, 64),
    ModelShape(_LOCAL, "Mistral-7B, 6000", 1, 32, 8, 6000, 6000, 128, True, left=4095),
    ModelShape(_LOCAL, "Gemma-3-12B, 5000", 1, 16, 8, 5000, 5000, 256, True, left=1023),
    ModelShape(_LOCAL, "Gemma-2-9B local", 1, 16, 8, 5000, 5000, 256, True, 4095, 50.0),
    ModelShape(_LOCAL, "Gemma-2-9B, 3000", 1, 16, 8, 3000, 3000, 256, True, softcap=50.0),
    ModelShape(_BIAS, "MPT-7B with ALiBi, 1500", 2, 32, 32, 1500, 1500, 128, True, mask="alibi"),
    ModelShape(_BIAS, "T5-large, 500", 8, 16, 16, 500, 500, 64, mask="learned"),
    ModelShape(_BIAS, "Swin-B, 49", 1024, 4, 4, 49, 49, 32, mask="learned"),
    ModelShape(_BIAS, "AlphaFold, 200", 200, 4, 4, 200, 200, 32, mask="learned"),
    ModelShape(_BIAS, "BERT-large, padded", 32, 16, 16, 300, 300, 64, mask="padding"),
    _packed("Llama-3-8B, packed", 32, 8, 128, True, 1900, 300, 4100, 77, 900, 2500, 1200, 5400),
    _packed("BERT-base, unpadded", 12, 12, 64, False, *(20 + 37 * i % 480 for i in range(64))),
    ModelShape(_DECODE, "500 over 7000", 1, 32, 8, 500, 7000, 128, True, trained=False),
    ModelShape(_DECODE, "1 over 5000", 1, 32, 8, 1, 5000, 128, True, trained=False),
    ModelShape(_DECODE, "1 over 3000, batch 32", 32, 32, 8, 1, 3000, 128, True, trained=False),
    ModelShape(_DECODE, "1 over 30000", 1, 64, 8, 1, 30000, 128, True, trained=False),
    ModelShape(_DECODE, "5 over 16000", 1, 32, 8, 5, 16000, 128, True, trained=False),
)
