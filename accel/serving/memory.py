"""Find out whether a model fits, before any of it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from accel.serving.cache import BLOCK, CacheFormat, block_bytes
from accel.serving.checkpoint import weight_files
from accel.serving.errors import ModelRefused
from accel.serving.families import Config, read_config
from accel.serving.transformer import Weights

_WORK_BYTES = {"cpu": 256 * 2**20, "cuda": 1536 * 2**20}
"""Memory for what a step computes with, and for CUDA itself and its graphs."""
_LEAST_TOKENS = 256
_CPU_TOKENS = 16384
"""Tokens of a cache in the host's memory, if more would fit."""
_PER_WEIGHT = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "fp8": 1.0, "int4": 0.5625}


@dataclass(frozen=True)
class Room:
    """Say what a model needs."""

    weights: int
    """Bytes."""
    block_bytes: int
    blocks: int
    """Of the cache."""

    @property
    def needs(self) -> int:
        """Return the bytes of weights and cache."""
        return self.weights + self.blocks * self.block_bytes


def plan(
    folder: Path,
    device: str = "cpu",
    weights: Weights = "auto",
    cache: CacheFormat = "auto",
    cache_tokens: int = 0,
    free: int | None = None,
) -> Room:
    """Return what the model in a folder needs.

    Args:
        folder: Of the model.
        device: `cpu` or `cuda`.
        weights: How matrices are kept.
        cache: How keys and values are kept.
        cache_tokens: Tokens that the cache holds; 0: as many as fit.
        free: Bytes of the device that are free; None: look.

    Raises:
        ModelRefused: It does not fit, or is not a model.
    """
    config = read_config(folder)
    size = weight_bytes(config, folder, device, weights)
    block = block_bytes(config, 4 if device == "cpu" else 2, cache)
    free = free_bytes(device) if free is None else free
    room = free - size - _WORK_BYTES[device]
    tokens = cache_tokens or _LEAST_TOKENS
    if room < -(-tokens // BLOCK) * block:
        needed = size + _WORK_BYTES[device] + -(-tokens // BLOCK) * block
        raise ModelRefused(
            f"{folder.name} needs {needed / 2**30:.1f} GiB with a cache of {tokens} tokens; "
            f"{free / 2**30:.1f} GiB are free. Choose smaller weights, such as int4, or a smaller "
            "cache"
        )
    if cache_tokens:
        return Room(size, block, -(-cache_tokens // BLOCK))
    if device == "cpu":
        return Room(size, block, min(room // block, max(_CPU_TOKENS, config.context) // BLOCK))
    return Room(size, block, room // block)


def weight_bytes(config: Config, folder: Path, device: str, weights: Weights) -> int:
    """Return the bytes of a model's weights on a device."""
    if weights == "auto":
        stored = sum(file.stat().st_size for file in weight_files(folder))
        wide = device == "cpu" and bool(config.quantization.get("quant_method") == "fp8")
        return 4 * stored if wide else stored
    embedding = config.vocabulary * config.hidden
    return int((config.parameters - embedding) * _PER_WEIGHT[weights]) + 2 * embedding


def free_bytes(device: str) -> int:
    """Return the bytes of a device's memory that are free."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no line MemAvailable")
