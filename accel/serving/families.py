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
    varied: bool = False
    """As in Gemma 4: layers differ in heads, some use the keys and values of others, values are
    normalized, scores are not scaled, and layers may have inputs of their own."""


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
    "gemma4_text": Family(
        "Gemma 4",
        windows="alternate",
        window_period=6,
        query_key_norm=True,
        varied=True,
        **{**_GEMMA, "norm_offset": 0.0},
    ),
    "phi3": Family("Phi-3 or Phi-4", fused=True, windows="all"),
    "smollm3": Family("SmolLM3", windows="none", skips_rope=True, tied=True),
}
"""Families by the `model_type` of config.json."""
_TEXT_OF = {"gemma4": "gemma4_text"}
"""Families that also read pictures, of which the model of texts is served."""

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
class KeyHeads:
    """Describe the keys and values of a layer."""

    heads: int
    size: int
    """Numbers of a head, of queries, too."""
    source: int
    """The layer whose keys and values are used: the layer itself, or one before it."""
    shared: bool = False
    """Values are what keys are before they are normalized and rotated."""


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
    keys: tuple[KeyHeads, ...] = ()
    """Of each layer; empty: all have `kv_heads` heads of `head_dim` of their own."""
    widths: tuple[int, ...] = ()
    """Of the feed-forward part of each layer; empty: all have `intermediate`."""
    side: int = 0
    """Numbers that each layer has as an input of its own for each token; 0: none."""

    def keys_of(self, layer: int) -> KeyHeads:
        """Return what describes the keys and values of a layer."""
        return self.keys[layer] if self.keys else KeyHeads(self.kv_heads, self.head_dim, layer)

    def width_of(self, layer: int) -> int:
        """Return the width of a layer's feed-forward part."""
        return self.widths[layer] if self.widths else self.intermediate

    @property
    def embeddings(self) -> int:
        """Return the number of weights that are looked up by token."""
        return self.vocabulary * (self.hidden + self.side * self.layers)

    @property
    def parameters(self) -> int:
        """Return the number of weights, the embedding counted once if it is tied."""
        total = self.embeddings + (0 if self.tied else self.vocabulary * self.hidden)
        for i, experts in enumerate(self.experts):
            keys = self.keys_of(i)
            own = 2 - keys.shared if keys.source == i else 0
            total += self.hidden * keys.size * (2 * self.heads + own * keys.heads)
            width = experts.count * experts.intermediate if experts else self.width_of(i)
            total += 3 * self.hidden * (width + self.side)
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
    if (text := _TEXT_OF.get(str(raw.get("model_type")))) and "text_config" in raw:
        raw = {**raw, **raw["text_config"], "model_type": text, "text_config": None}
    if isinstance(raw.get("text_config"), dict):
        raise ModelRefused(
            phrase(
                "{name} also reads pictures ({kind}), which is not supported. Use the "
                "family's text model",
                name=name,
                kind=str(raw.get("model_type")),
            )
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
        raise ModelRefused(
            phrase(
                "config.json of {name} is malformed: {problem}", name=name, problem=f"{e!s:.200}"
            )
        ) from e


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of at most 1 MiB. Raises ModelRefused."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ModelRefused(
                phrase(
                    "{file} has more than {most} bytes. Download it again",
                    file=str(path),
                    most=_MOST_BYTES,
                )
            )
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
        raise ModelRefused(phrase("{file} is not a JSON object. Download it again", file=str(path)))
    return found


def _config(family: Family, raw: Mapping[str, Any], ends: tuple[int, ...]) -> Config:
    layers = _whole(raw, "num_hidden_layers", 1024)
    hidden = _whole(raw, "hidden_size", 2**17)
    heads = _whole(raw, "num_attention_heads", 2048)
    kv_heads = _whole(raw, "num_key_value_heads", 2048, heads)
    head_dim = _whole(raw, "head_dim", 1024, family.head_dim or hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise ModelRefused(
            phrase(
                "config.json has {heads} heads, {kv_heads} key heads and heads of "
                "{head_dim}, which do not fit together",
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
            )
        )
    activation = str(raw.get("hidden_activation") or raw.get("hidden_act") or family.activation)
    if family.activation == "gelu_tanh" and activation == "gelu":
        activation = "gelu_tanh"  # published configurations name it wrongly
    if activation not in _ACTIVATIONS:
        raise ModelRefused(
            phrase("the activation {activation} is not supported", activation=f"{activation!r:.40}")
        )
    windows = _windows(family, raw, layers)
    keys = _keys(raw, windows, KeyHeads(kv_heads, head_dim, 0)) if family.varied else ()
    if any(heads % k.heads or k.size % 2 for k in keys):
        raise ModelRefused(
            phrase(
                "config.json has layers whose key heads do not fit to {heads} heads", heads=heads
            )
        )
    wide = keys[-1].size if keys else head_dim  # the last layer has no window
    ropes = _ropes(family, raw, windows, head_dim, wide)
    limits = [rope.limit for rope in ropes if rope and rope.limit]
    softcap = float(raw.get("attn_logit_softcapping") or 0)
    scalar = float(raw.get("query_pre_attn_scalar") or head_dim)
    return Config(
        family, layers, hidden, heads, kv_heads, head_dim,
        _whole(raw, "intermediate_size", 2**20), _whole(raw, "vocab_size", 2**22),
        min([_whole(raw, "max_position_embeddings", 2**24, 2048), *limits]),
        _positive(raw, "rms_norm_eps", 1e-6), bool(raw.get("tie_word_embeddings", family.tied)),
        _ACTIVATIONS[activation], 1.0 if family.varied else scalar**-0.5,
        softcap if math.isfinite(softcap) else 0.0,
        float(raw.get("final_logit_softcapping") or 0), windows, ropes,
        _experts(family, raw, layers), ends, dict(raw.get("quantization_config") or {}),
        keys, _widths(raw, keys), _side(raw) if family.varied else 0,
    )  # fmt: skip


def _keys(
    raw: Mapping[str, Any], windows: tuple[int, ...], common: KeyHeads
) -> tuple[KeyHeads, ...]:
    """Return the keys and values of each layer of Gemma 4.

    Layers without a window have others than those with one. The last `num_kv_shared_layers` use
    those of the last layer of their kind before them.
    """
    if raw.get("enable_moe_block") or raw.get("use_bidirectional_attention") == "all":
        raise ModelRefused(
            phrase("Gemma 4 is served without experts and with causal attention only")
        )
    shares = raw.get("attention_k_eq_v") is True
    full = {
        "head_dim": raw.get("global_head_dim") or 512,
        "num_key_value_heads": raw.get("num_global_key_value_heads") if shares else None,
    }
    given = raw.get("per_layer_config")
    first = len(windows) - int(raw.get("num_kv_shared_layers") or 0)
    sources = {bool(window): i for i, window in enumerate(windows[: max(first, 0)])}
    found = []
    for i, window in enumerate(windows):
        said = ({} if window else full) if given is None else given.get(str(i), {})
        found.append(
            KeyHeads(
                _whole(said, "num_key_value_heads", 2048, common.heads),
                _whole(said, "head_dim", 1024, common.size),
                i if i < first else sources[bool(window)],
                shares and not window,
            )
        )
    return tuple(found)


def _widths(raw: Mapping[str, Any], keys: tuple[KeyHeads, ...]) -> tuple[int, ...]:
    """Return the widths of Gemma 4's feed-forward parts: twice as wide without keys of their
    own, if the model has this."""
    if not raw.get("use_double_wide_mlp"):
        return ()
    width = _whole(raw, "intermediate_size", 2**20)
    return tuple(width if k.source == i else 2 * width for i, k in enumerate(keys))


def _side(raw: Mapping[str, Any]) -> int:
    """Return the numbers of Gemma 4's inputs of each layer; 0: it has none."""
    if raw.get("hidden_size_per_layer_input") == 0:
        return 0
    return _whole(raw, "hidden_size_per_layer_input", 2**14, 256)


def _whole(raw: Mapping[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = raw.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ModelRefused(
            phrase(
                "config.json says {name} = {value}; expected 1 to {most}",
                name=name,
                value=f"{value!r:.40}",
                most=most,
            )
        )
    return value


def _positive(raw: Mapping[str, Any], name: str, default: float) -> float:
    value = raw.get(name, default)
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise ModelRefused(
            phrase(
                "config.json says {name} = {value}; expected 0 to 1",
                name=name,
                value=f"{value!r:.40}",
            )
        )
    return float(value)


def _windows(family: Family, raw: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    given = raw.get("sliding_window")
    if family.windows == "none" or given is None or raw.get("use_sliding_window") is False:
        return (0,) * layers
    window = _whole(raw, "sliding_window", 2**24)
    kinds = raw.get("layer_types")
    if kinds is not None:
        if len(kinds) != layers:
            raise ModelRefused(
                phrase(
                    "config.json lists {n} layer_types for {layers} layers",
                    n=len(kinds),
                    layers=layers,
                )
            )
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    if family.windows == "all" and (not family.experts or raw.get("use_sliding_window")):
        return (window,) * layers
    if family.windows == "alternate":
        period = _whole(raw, "sliding_window_pattern", 1024, family.window_period)
        found = tuple(window if (i + 1) % period else 0 for i in range(layers))
        return (*found[:-1], 0) if family.varied else found
    if not raw.get("use_sliding_window"):
        return (0,) * layers
    first = _whole(raw, "max_window_layers", 2**20, 28)
    return tuple(window if i >= first else 0 for i in range(layers))


def _ropes(
    family: Family, raw: Mapping[str, Any], windows: tuple[int, ...], head_dim: int, full_dim: int
) -> tuple[Rope | None, ...]:
    """Return the positions of each layer; from Gemma 3 on layers with a window have others, and
    from Gemma 4 on heads of another size."""
    given = raw.get("rope_parameters") or {}
    if "full_attention" in given or "rope_local_base_freq" in raw or family in _TWO_ROPES:
        full = {"rope_theta": 1e6, **(raw.get("rope_scaling") or {})}
        if family.varied:
            full |= {"rope_type": "proportional", "partial_rotary_factor": 0.25}
        if "rope_theta" in raw:
            full["rope_theta"] = raw["rope_theta"]
        full |= given.get("full_attention") or {}
        local = {"rope_theta": raw.get("rope_local_base_freq", 1e4)}
        local |= given.get("sliding_attention") or {}
        wide, narrow = rope_of(full, raw, full_dim), rope_of(local, raw, head_dim)
        return tuple(narrow if window else wide for window in windows)
    common = rope_of({**(raw.get("rope_scaling") or {}), **given}, raw, head_dim)
    if not family.skips_rope:
        return (common,) * len(windows)
    period = _whole(raw, "no_rope_layer_interval", 1024, 4)
    uses = raw.get("no_rope_layers") or [(i + 1) % period for i in range(len(windows))]
    if len(uses) < len(windows):
        raise ModelRefused(phrase("config.json lists fewer no_rope_layers than layers"))
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


_TWO_ROPES = (FAMILIES["gemma3_text"], FAMILIES["gemma4_text"])
