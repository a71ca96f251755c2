"""Wrap the peers of our RWKV-7 on a GPU: the `rwkv` package with its kernels, and
flash-linear-attention.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tests.unit.accel.rwkv.rwkv_models import Tensors, to_hf


class Peer(NamedTuple):
    name: str
    logits: Callable[[Sequence[int]], Tensor]
    """Returns the logits after the last token of a prompt: [V]."""
    decode: Callable[[int], None] | None = None
    """Generates greedy tokens of one sequence, each fed back through the host."""


def package(tensors: Tensors) -> Peer:
    """Return the `rwkv` package's model in fp16.

    Its CUDA kernels are built if nvcc and ninja are installed, which takes a minute once on a
    machine.
    """
    kernels = bool(
        shutil.which("nvcc") and (shutil.which("ninja") or importlib.util.find_spec("ninja"))
    )
    os.environ |= {"RWKV_V7_ON": "1", "RWKV_CUDA_ON": str(int(kernels))}
    with tempfile.TemporaryDirectory() as folder:
        torch.save({n: t.cpu() for n, t in tensors.items()}, Path(folder) / "model.pth")
        from rwkv.model import RWKV

        model = RWKV(f"{folder}/model", "cuda fp16")

    def logits(prompt: Sequence[int]) -> Tensor:
        return model.forward(list(prompt), None)[0]

    last, state = model.forward([1, 2, 3], None)

    def decode(tokens: int) -> None:
        nonlocal last, state
        for _ in range(tokens):
            last, state = model.forward([int(last.argmax())], state)

    return Peer(f"rwkv fp16 {'with' if kernels else 'without'} its CUDA kernels", logits, decode)


def flash_linear_attention(tensors: Tensors) -> Peer | None:
    """Return its model for Hugging Face's transformers in bf16, or None if it is not installed."""
    if not importlib.util.find_spec("fla"):
        return None
    from fla.models import RWKV7Config, RWKV7ForCausalLM

    names = {"decay": "w1", "a": "a1", "v": "v1", "gate": "g1"}
    ranks = {
        f"{name}_low_rank_dim": tensors[f"blocks.1.att.{key}"].shape[1]
        for name, key in names.items()
    }
    vocabulary, channels = tensors["emb.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RWKV7ForCausalLM(
            RWKV7Config(
                hidden_size=channels, num_hidden_layers=layers, vocab_size=vocabulary, **ranks
            )
        )
    model.load_state_dict(
        {name: t.to(torch.bfloat16) for name, t in to_hf(tensors).items()}, assign=True
    )
    model.eval()

    def logits(prompt: Sequence[int]) -> Tensor:
        ids = torch.tensor([prompt], device="cuda")
        return model(ids, use_cache=True, logits_to_keep=1).logits[0, -1]

    return Peer("flash-linear-attention bf16", logits)
