"""The families of models that are served: a table of how each differs, and the reading of
config.json.

There is one transformer (`gpudeck.accel.serving.transformer`). A family is a row of `FAMILIES`;
what a model says for itself, such as its number of layers, is in its `Config`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.rotary import Rope, rope_of
from gpudeck.language.text import Message, phrase

_MOST_BYTES = 2**20
"""The largest config.json that is read."""


@dataclass(frozen=True)
class Family:
    """Say how the models of a family differ from Llama."""

    name: str
    query_key_norm: bool = False
    """Queries and keys are normalized, each head by itself."""
    norm_offset: float = 0.0
    """What is added to the weights of a norm."""
    sandwich: bool = False
    """The outputs of attention and feed-forward are normalized before they are added."""
    scaled_embeddings: bool = False
    """Embeddings are multiplied by the square root of their size."""
    fused: bool = False
    """Query, key and value are stored as one matrix, and so are gate and up."""
    activation: str = "silu"
    windows: str = "none"
    """Layers with a sliding window: none; all; tail (from max_window_layers on, if
    use_sliding_window); alternate (every layer but each `window_period`-th)."""
    window_period: int = 0
    experts: bool = False
    skips_rope: bool = False
    """Layers may have no positions (no_rope_layers)."""
    tied: bool = False
    """The output matrix is the embedding unless config.json says otherwise."""
    head_dim: int = 0
    """The size of a head unless config.json says otherwise; 0: hidden size / heads."""


_GEMMA: dict[str, Any] = {
    "norm_offset": 1.0, "sandwich": True, "scaled_embeddings": True, "activation": "gelu_tanh",
    "tied": True, "head_dim": 256,
}  # fmt: skip
FAMILIES: dict[str, Family] = {
    "llama": Family("Llama or SmolLM"),
    "mistral": Family("Mistral", windows="all"),
    "qwen2": Family("Qwen 2.5", windows="tail"),
    "qwen3": Family("Qwen 3", query_key_norm=True, windows="tail", head_dim=128),
    "qwen3_moe": Family("Qwen 3 MoE", query_key_norm=True, windows="all", experts=True),
    "gemma2": Family("Gemma 2", windows="alternate", window_period=2, **_GEMMA),
    "gemma3_text": Family(
        "Gemma 3", windows="alternate", window_period=6, query_key_norm=True, **_GEMMA
    ),
    "phi3": Family("Phi-3 or Phi-4", fused=True, windows="all"),
    "smollm3": Family("SmolLM3", windows="none", skips_rope=True, tied=True),
}
"""Families by the `model_type` of config.json."""

_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_tanh": "gelu_tanh",
}  # fmt: skip


@dataclass(frozen=True)
class Experts:
    """Describe the mixture of experts."""

    count: int
    chosen: int
    """Experts a token goes through."""
    intermediate: int
    normalized: bool
    """The chosen experts' shares are scaled to sum to 1."""


@dataclass(frozen=True)
class Config:
    """Describe one model."""

    family: Family
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context: int
    """The most tokens of a text, prompt and answer together."""
    eps: float
    tied: bool
    activation: str
    attention_scale: float
    attention_softcap: float
    """0: none."""
    final_softcap: float
    windows: tuple[int, ...]
    """Of each layer, the number of keys that a query sees, itself included; 0: all."""
    ropes: tuple[Rope | None, ...]
    """Of each layer; None: the layer has no positions."""
    experts: tuple[Experts | None, ...]
    """Of each layer; None: the layer is dense."""
    ends: tuple[int, ...]
    """Tokens that end a text."""
    quantization: Mapping[str, Any]
    """`quantization_config` of config.json; empty without one."""

    @property
    def parameters(self) -> int:
        """Return the number of weights, the embedding counted once if it is tied."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        total = self.vocabulary * self.hidden * (1 if self.tied else 2)
        for experts in self.experts:
            width = experts.count * experts.intermediate if experts else self.intermediate
            total += attention + 3 * self.hidden * width
        return total


RECURRENT = "rwkv7"
"""What the config.json of RWKV-7 names; it is no transformer (see
`gpudeck.accel.serving.recurrent`)."""


def is_recurrent(folder: Path) -> bool:
    """Return True if a folder holds RWKV-7. Raises ModelRefused if config.json cannot be read."""
    return read_json(folder / "config.json").get("model_type") == RECURRENT


def read_config(folder: Path) -> Config:
    """Read the config.json in a model's folder.

    Raises:
        ModelRefused: It is missing or malformed, or the model cannot be served.
    """
    raw = read_json(folder / "config.json")
    return config_of(raw, folder.name, _ends(folder, raw))


def config_of(raw: Mapping[str, Any], name: str, ends: tuple[int, ...]) -> Config:
    """Return what a config.json says.

    Args:
        raw: Its contents.
        name: The model's name, for messages.
        ends: Tokens that end a text.

    Raises:
        ModelRefused: It is malformed, or the model cannot be served.
    """
    if isinstance(raw.get("text_config"), dict):
        raise ModelRefused(
            f"{name} also reads pictures ({raw.get('model_type')}), which is not supported. "
            "Use the family's text model"
        )
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise ModelRefused(
            phrase(
                "{name} is of the family {value}, which is not supported. Supported: {names}",
                name=name,
                value=repr(kind)[:60],
                names=known,
            )
        )
    try:
        return _config(FAMILIES[kind], raw, ends)
    except (TypeError, ValueError, KeyError, OverflowError) as e:
        if isinstance(e, ModelRefused):
            raise
        raise ModelRefused(f"config.json of {name} is malformed: {e!s:.200}") from e


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of at most 1 MiB. Raises ModelRefused."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ModelRefused(f"{path} has more than {_MOST_BYTES} bytes. Download it again")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        if isinstance(e, ModelRefused):
            raise
        reason: Message = (
            str(e.strerror) if isinstance(e, OSError) else phrase("it is not valid JSON")
        )
        raise ModelRefused(
            phrase("cannot read {file}: {quote}. Download it again", file=str(path), quote=reason)
        ) from e
    if not isinstance(found, dict):
        raise ModelRefused(f"{path} is not a JSON object. Download it again")
    return found


def _config(family: Family, raw: Mapping[str, Any], ends: tuple[int, ...]) -> Config:
    layers = _whole(raw, "num_hidden_layers", 1024)
    hidden = _whole(raw, "hidden_size", 2**17)
    heads = _whole(raw, "num_attention_heads", 2048)
    kv_heads = _whole(raw, "num_key_value_heads", 2048, heads)
    head_dim = _whole(raw, "head_dim", 1024, family.head_dim or hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise ModelRefused(
            f"config.json has {heads} heads, {kv_heads} key heads and heads of {head_dim}, "
            "which do not fit together"
        )
    activation = str(raw.get("hidden_activation") or raw.get("hidden_act") or family.activation)
    if family.activation == "gelu_tanh" and activation == "gelu":
        activation = "gelu_tanh"  # published configurations name it wrongly
    if activation not in _ACTIVATIONS:
        raise ModelRefused(f"the activation {activation!r:.40} is not supported")
    windows = _windows(family, raw, layers)
    ropes = _ropes(family, raw, windows, head_dim)
    limits = [rope.limit for rope in ropes if rope and rope.limit]
    softcap = float(raw.get("attn_logit_softcapping") or 0)
    scalar = float(raw.get("query_pre_attn_scalar") or head_dim)
    return Config(
        family, layers, hidden, heads, kv_heads, head_dim,
        _whole(raw, "intermediate_size", 2**20), _whole(raw, "vocab_size", 2**22),
        min([_whole(raw, "max_position_embeddings", 2**24, 2048), *limits]),
        _positive(raw, "rms_norm_eps", 1e-6), bool(raw.get("tie_word_embeddings", family.tied)),
        _ACTIVATIONS[activation], scalar**-0.5, softcap if math.isfinite(softcap) else 0.0,
        float(raw.get("final_logit_softcapping") or 0), windows, ropes,
        _experts(family, raw, layers), ends, dict(raw.get("quantization_config") or {}),
    )  # fmt: skip


def _whole(raw: Mapping[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = raw.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ModelRefused(f"config.json says {name} = {value!r:.40}; expected 1 to {most}")
    return value


def _positive(raw: Mapping[str, Any], name: str, default: float) -> float:
    value = raw.get(name, default)
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise ModelRefused(f"config.json says {name} = {value!r:.40}; expected 0 to 1")
    return float(value)


def _windows(family: Family, raw: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    given = raw.get("sliding_window")
    if family.windows == "none" or given is None or raw.get("use_sliding_window") is False:
        return (0,) * layers
    window = _whole(raw, "sliding_window", 2**24)
    kinds = raw.get("layer_types")
    if kinds is not None:
        if len(kinds) != layers:
            raise ModelRefused(f"config.json lists {len(kinds)} layer_types for {layers} layers")
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    if family.windows == "all" and (not family.experts or raw.get("use_sliding_window")):
        return (window,) * layers
    if family.windows == "alternate":
        period = _whole(raw, "sliding_window_pattern", 1024, family.window_period)
        return tuple(window if (i + 1) % period else 0 for i in range(layers))
    if not raw.get("use_sliding_window"):
        return (0,) * layers
    first = _whole(raw, "max_window_layers", 2**20, 28)
    return tuple(window if i >= first else 0 for i in range(layers))


def _ropes(
    family: Family, raw: Mapping[str, Any], windows: tuple[int, ...], head_dim: int
) -> tuple[Rope | None, ...]:
    """Return the positions of each layer; Gemma 3 has others in layers with a window."""
    given = raw.get("rope_parameters") or {}
    if "full_attention" in given or "rope_local_base_freq" in raw or family is _GEMMA_3:
        full = {"rope_theta": 1e6, **(raw.get("rope_scaling") or {})}
        if "rope_theta" in raw:
            full["rope_theta"] = raw["rope_theta"]
        full |= given.get("full_attention") or {}
        local = {"rope_theta": raw.get("rope_local_base_freq", 1e4)}
        local |= given.get("sliding_attention") or {}
        wide, narrow = rope_of(full, raw, head_dim), rope_of(local, raw, head_dim)
        return tuple(narrow if window else wide for window in windows)
    common = rope_of({**(raw.get("rope_scaling") or {}), **given}, raw, head_dim)
    if not family.skips_rope:
        return (common,) * len(windows)
    period = _whole(raw, "no_rope_layer_interval", 1024, 4)
    uses = raw.get("no_rope_layers") or [(i + 1) % period for i in range(len(windows))]
    if len(uses) < len(windows):
        raise ModelRefused("config.json lists fewer no_rope_layers than layers")
    return tuple(common if use else None for use in uses[: len(windows)])


def _experts(family: Family, raw: Mapping[str, Any], layers: int) -> tuple[Experts | None, ...]:
    if not family.experts:
        return (None,) * layers
    named = "num_experts" if "num_experts" in raw else "num_local_experts"
    count = _whole(raw, named, 4096)
    chosen = _whole(raw, "num_experts_per_tok", count)
    width = _whole(raw, "moe_intermediate_size", 2**20)
    every = Experts(count, chosen, width, bool(raw.get("norm_topk_prob", False)))
    step = _whole(raw, "decoder_sparse_step", 1024, 1)
    dense = set(raw.get("mlp_only_layers") or ())
    return tuple(every if i not in dense and (i + 1) % step == 0 else None for i in range(layers))


def _ends(folder: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the tokens that end a text, by both files that name them."""
    found = [raw.get("eos_token_id")]
    if (folder / "generation_config.json").is_file():
        found.append(read_json(folder / "generation_config.json").get("eos_token_id"))
    ends: dict[int, None] = {}
    for value in found:
        for token in value if isinstance(value, list) else [value]:
            if isinstance(token, int):
                ends[token] = None
    return tuple(ends)


_GEMMA_3 = FAMILIES["gemma3_text"]
