"""Rotary positions: the frequencies of a model's heads, with the scalings that are published.

Free of torch, as config.json is also read where torch must not be imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.language.text import phrase

Frequencies = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rope:
    """Hold the angles of rotary positions.

    Source: Su et al., RoFormer, arXiv 2104.09864.
    """

    frequencies: tuple[float, ...]
    """Radians a position, of each pair of numbers of a head."""
    factor: float = 1.0
    """What cosine and sine are multiplied by."""
    limit: int = 0
    """The most positions that these angles are for; 0: as many as the model's context."""


def rope_of(given: Mapping[str, Any], raw: Mapping[str, Any], head_dim: int) -> Rope:
    """Return the positions that config.json describes.

    Args:
        given: The entry that describes them: rope_parameters or rope_scaling.
        raw: The whole of config.json.
        head_dim: The size of a head.

    Raises:
        ModelRefused: The scaling is not supported.
    """
    share = float(given.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0)
    theta = float(given.get("rope_theta") or raw.get("rope_theta") or _theta(raw))
    kind = given.get("rope_type") or given.get("type") or "default"
    # of the pairs that are not turned, proportional positions have angles of 0
    dims = head_dim if kind == "proportional" else int(head_dim * share)
    if not 1 < theta < math.inf or not 2 <= dims <= head_dim or dims % 2:
        raise ModelRefused(
            phrase(
                "config.json has rotary positions of base {theta} in {dims} numbers",
                theta=theta,
                dims=dims,
            )
        )
    # In fp32, as the models were trained.
    steps = np.arange(0, dims, 2, dtype=np.float32) / np.float32(dims)
    plain = np.float32(1.0) / np.float32(theta) ** steps
    match kind:
        case "default" | "mrope":
            scaled, factor = plain, 1.0
        case "linear":
            scaled, factor = plain / np.float32(given["factor"]), 1.0
        case "llama3":
            scaled, factor = _llama3(plain, given), 1.0
        case "proportional":
            turned = np.arange(dims // 2) < int(share * dims // 2)
            scaled, factor = plain * turned / np.float32(given.get("factor") or 1.0), 1.0
        case "longrope" | "su":
            return _longrope(plain, given, raw)
        case _:
            raise ModelRefused(
                phrase(
                    "the rope scaling {kind} is not supported. Remove rope_scaling from "
                    "config.json to serve the model within its original context",
                    kind=f"{kind!r:.40}",
                )
            )
    return Rope(tuple(scaled.tolist()), factor)


def _theta(raw: Mapping[str, Any]) -> float:
    return 2e6 if raw.get("model_type") == "smollm3" else 1e4


def _llama3(plain: Frequencies, given: Mapping[str, Any]) -> Frequencies:
    """Stretch long waves by `factor`, keep short ones, and blend between.

    Source: the reference code of Llama 3.1.
    """
    factor = np.float32(given["factor"])
    low, high = np.float32(given["low_freq_factor"]), np.float32(given["high_freq_factor"])
    turns = np.float32(given["original_max_position_embeddings"]) * plain / np.float32(2 * math.pi)
    blend = ((turns - low) / (high - low)).clip(0, 1)
    return ((1 - blend) * plain / factor + blend * plain).astype(np.float32)


def _longrope(plain: Frequencies, given: Mapping[str, Any], raw: Mapping[str, Any]) -> Rope:
    """Divide each frequency by its own factor, the one for texts of the original length.

    The factors for longer texts would change the keys that are already stored when a text grows
    past that length, so texts are limited to it.

    Source: Ding et al., LongRoPE, arXiv 2402.13753.
    """
    original = raw.get("original_max_position_embeddings")
    original = int(original or given["original_max_position_embeddings"])
    stretch = float(given.get("factor") or raw["max_position_embeddings"] / original)
    factor = given.get("attention_factor")
    if factor is None:
        factor = 1.0
        if stretch > 1:
            factor = math.sqrt(1 + math.log(stretch) / math.log(original))
    short = np.asarray(given["short_factor"], dtype=np.float32)
    if short.shape != plain.shape:
        raise ModelRefused(
            phrase(
                "config.json has {n} short_factors for {frequencies} frequencies",
                n=len(short),
                frequencies=len(plain),
            )
        )
    return Rope(tuple((plain / short).tolist()), float(factor), original)
