"""Make small random RWKV-7 models in every loadable layout, with the `rwkv` package as their
oracle.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]

RANKS = {"w": 16, "a": 24, "v": 8, "g": 32}
MIXES = ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g")


def vocabulary_file() -> Path:
    """Return the World vocabulary of the `rwkv` package."""
    spec = importlib.util.find_spec("rwkv")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).with_name("rwkv_vocab_v20230424.txt")


def random_model(
    layers: int = 3, channels: int = 128, vocabulary: int = 320, seed: int = 0
) -> Tensors:
    """Return weights with BlinkDL's names and shapes, large enough that every part shows in the
    logits.
    """
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0, mean: float = 0.0) -> torch.Tensor:
        return torch.randn(*shape, generator=g) * scale + mean

    w = {
        "emb.weight": normal(vocabulary, channels, scale=0.5),
        "head.weight": normal(vocabulary, channels, scale=0.3),
    }
    norms = ["ln_out", "blocks.0.ln0"]
    for i in range(layers):
        att, ffn = f"blocks.{i}.att.", f"blocks.{i}.ffn."
        norms += [f"blocks.{i}.ln1", f"blocks.{i}.ln2", f"{att}ln_x"]
        for mix in MIXES:
            w[att + mix] = torch.rand(1, 1, channels, generator=g)
        for lora, rank in RANKS.items():
            w[f"{att}{lora}1"] = normal(channels, rank, scale=channels**-0.5)
            w[f"{att}{lora}2"] = normal(rank, channels, scale=rank**-0.5)
            if lora != "g":
                w[f"{att}{lora}0"] = normal(1, 1, channels)
        w[att + "k_k"], w[att + "k_a"] = (
            normal(1, 1, channels, scale=0.3, mean=0.7),
            normal(1, 1, channels, scale=0.3, mean=1),
        )
        w[att + "r_k"] = normal(channels // 64, 64, scale=0.2)
        for matrix in ("receptance", "key", "value", "output"):
            w[f"{att}{matrix}.weight"] = normal(channels, channels, scale=channels**-0.5)
        w[ffn + "x_k"] = torch.rand(1, 1, channels, generator=g)
        w[ffn + "key.weight"] = normal(4 * channels, channels, scale=channels**-0.5)
        w[ffn + "value.weight"] = normal(channels, 4 * channels, scale=0.5 * channels**-0.5)
    for norm in norms:
        w[norm + ".weight"], w[norm + ".bias"] = (
            normal(channels, scale=0.1, mean=1),
            normal(channels, scale=0.1),
        )
    return w


def to_hf(tensors: Tensors, fused: bool = False) -> Tensors:
    """Return the weights with flash-linear-attention's names and shapes; `fused` with the older
    x_x.
    """
    top = {"emb": "model.embeddings", "ln_out": "model.norm", "head": "lm_head"}
    part = {"ln0": "pre_norm", "ln1": "attn_norm", "ln2": "ffn_norm", "att": "attn", "ffn": "ffn"}
    att = {
        "receptance": "r_proj",
        "key": "k_proj",
        "value": "v_proj",
        "output": "o_proj",
        "ln_x": "g_norm",
    }
    lora = {"0": "2.bias", "1": "0.weight", "2": "2.weight"}
    hf: Tensors = {}
    for name, tensor in tensors.items():
        words = name.split(".")
        if words[0] in top:
            hf[f"{top[words[0]]}.{words[1]}"] = tensor
            continue
        layer, rest = f"model.layers.{words[1]}.{part[words[2]]}", words[3:]
        if words[2] == "att" and rest[0][1:] in lora and len(rest[0]) == 2:
            if (words[1], rest[0][0]) != ("0", "v"):
                stored = tensor.squeeze() if rest[0][1] == "0" else tensor.T.contiguous()
                hf[f"{layer}.{rest[0][0]}_lora.lora.{lora[rest[0][1]]}"] = stored
        elif words[2] == "att":
            hf[".".join([layer, att.get(rest[0], rest[0]), *rest[1:]])] = (
                tensor.squeeze() if rest[0] in ("k_k", "k_a") else tensor
            )
        else:
            hf[".".join([layer, *rest])] = tensor.squeeze()
    if fused:
        for layer in sorted({name.rsplit(".", 1)[0] for name in hf if name.endswith(".x_r")}):
            hf[f"{layer}.x_x"] = torch.stack([hf.pop(f"{layer}.{mix}").squeeze() for mix in MIXES])
    return hf


def write_hf(folder: Path, tensors: Tensors, shards: int = 1) -> Path:
    """Write `tensors` to a Hugging Face folder, in one file or several with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "rwkv7"}))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    names, weight_map = sorted(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        save_file({name: tensors[name] for name in names[i::shards]}, folder / file)
        weight_map |= dict.fromkeys(names[i::shards], file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )
    return folder


_ORACLE = """
import json, os, sys
os.environ["RWKV_V7_ON"] = "1"
import torch
torch.set_num_threads(1)
from rwkv.model import RWKV
model = RWKV(sys.argv[1], "cpu fp32")
prompt, steps = json.loads(sys.argv[3]), int(sys.argv[4])
logits, state = model.forward(prompt, None)
first, tokens = logits.clone(), []
for _ in range(steps):
    tokens.append(int(logits.argmax()))
    logits, state = model.forward(tokens[-1:], state)
torch.save({"first": first, "last": logits, "tokens": tokens}, sys.argv[2])
"""


def oracle(
    pth: Path, prompt: list[int], steps: int
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return what the `rwkv` package computes from a .pth file.

    It returns the logits after the prompt and after `steps` greedy tokens, and these tokens. It
    runs in a process of its own, because its import changes torch's settings, prints and warns.
    """
    out = pth.with_suffix(".oracle")
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        _ORACLE,
        str(pth.with_suffix("")),
        str(out),
        json.dumps(prompt),
        str(steps),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    found = torch.load(out, weights_only=True)
    return found["first"], found["last"], found["tokens"]
