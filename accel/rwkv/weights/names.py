"""Translate tensor names and layouts of flash-linear-attention, or older fused ones, to
BlinkDL's.
"""

from __future__ import annotations

import re

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.weights.shapes import MIXES, UNUSED, S
from gpudeck.language.text import phrase

HF_TOP = {"model.embeddings": "emb", "model.norm": "ln_out", "lm_head": "head"}
HF_NORM = {"pre_norm": "ln0", "attn_norm": "ln1", "ffn_norm": "ln2"}
HF_ATT = {
    "r_proj": "receptance",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "output",
    "g_norm": "ln_x",
}
HF_LORA = {"2.bias": "0", "0.weight": "1", "2.weight": "2"}


def canonical(raw: dict[str, S]) -> dict[str, S]:
    """Return tensors by canonical names, in canonical layouts.

    A tensor without a canonical name keeps its own, and is refused later.
    """
    renamed: dict[str, S] = {}
    for key, tensor in raw.items():
        name, transposed = _rename(key)
        if name.endswith("att.x_x"):
            renamed |= _unfused(name, tensor)
        elif name not in UNUSED:
            renamed[name] = tensor.T if transposed and tensor.dim() == 2 else tensor
    return renamed


def _unfused(name: str, tensor: S) -> dict[str, S]:
    if tensor.shape[:1] != (len(MIXES),):
        raise ModelError(
            phrase(
                "{name} has shape {shape}, expected [{n}, channels].",
                name=name,
                shape=str(list(tensor.shape)),
                n=len(MIXES),
            )
        )
    return {name.removesuffix("x_x") + mix: tensor[i] for i, mix in enumerate(MIXES)}


def _rename(key: str) -> tuple[str, bool]:
    """Return BlinkDL's name for flash-linear-attention's `key`, and True if the tensor is
    transposed.
    """
    stem, _, last = key.rpartition(".")
    if stem in HF_TOP:
        return f"{HF_TOP[stem]}.{last}", False
    if not (layer := re.fullmatch(r"model\.layers\.(\d+)\.(\w+)\.(.+)", key)):
        return key, False
    block, part, rest = f"blocks.{layer[1]}", layer[2], layer[3]
    if part in HF_NORM:
        return f"{block}.{HF_NORM[part]}.{rest}", False
    if part != "attn":
        return f"{block}.{part}.{rest}", False
    if (lora := re.fullmatch(r"([wavg])_lora\.lora\.(.+)", rest)) and lora[2] in HF_LORA:
        return f"{block}.att.{lora[1]}{HF_LORA[lora[2]]}", lora[2] != "2.bias"
    head, dot, tail = rest.partition(".")
    return f"{block}.att.{HF_ATT.get(head, head)}{dot}{tail}", False
