"""Find out what a model takes, and whether it fits, before any of it is loaded. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.families import Config, read_config
from gpudeck.accel.serving.files import weight_files
from gpudeck.language.text import Number, phrase

BLOCK = 16
"""Tokens of a block of the cache."""
Weights = Literal["auto", "float32", "bfloat16", "int8", "fp8", "int4"]
"""How weights are kept; auto: as they are stored."""
CacheFormat = Literal["auto", "fp8", "int8"]
"""How keys and values are kept; auto: as they are computed."""
WORK_BYTES = {"cpu": 256 * 2**20, "cuda": 1536 * 2**20}
"""Memory for what a step computes with, and for CUDA itself and its graphs."""
_COMPUTED = {"cpu": 4, "cuda": 2}
"""Bytes of a number that is computed: fp32 on a CPU, bf16 on a GPU."""
_LEAST_TOKENS = 256
_CPU_TOKENS = 16384
"""Tokens of a cache in the host's memory, if more would fit."""
_PER_WEIGHT = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "fp8": 1.0, "int4": 0.5625}


class CacheError(msgspec.Struct, frozen=True):
    """Say how a quantized cache changes what a model says of the next tokens."""

    tokens: int
    """Of the text that was read with both caches."""
    divergence: float
    """Of the probabilities from those with an exact cache, in nats (Kullback-Leibler), on average
    over the text's tokens."""
    same: int
    """Tokens after which the likeliest one is the same."""


@dataclass(frozen=True)
class Room:
    """Say what a model needs. All but `blocks` are bytes."""

    weights: int
    block_bytes: int
    blocks: int
    """Of the cache."""
    work: int
    """For what a step computes with."""

    @property
    def cache(self) -> int:
        """Return the bytes of the cache."""
        return self.blocks * self.block_bytes

    @property
    def tokens(self) -> int:
        """Return the tokens that the cache holds."""
        return self.blocks * BLOCK


class Footprint(msgspec.Struct, frozen=True):
    """Describe what a model takes, whatever formats are chosen."""

    name: str
    context: int
    """The most tokens of a text, prompt and answer together."""
    stored: int
    """Bytes of its files of weights."""
    matrices: int
    """Numbers in the matrices of its layers."""
    embedding: int
    """Numbers in its embedding, which stays in 16 bits."""
    numbers: int
    """Numbers of the keys and values of a token."""
    vectors: int
    """Vectors of a token, each of which has a scale if it is quantized."""
    fp8: bool = False
    """The weights are stored in FP8, which a CPU widens."""

    def weight_bytes(self, device: str, weights: Weights = "auto") -> int:
        """Return the bytes of the weights on a device, cpu or cuda."""
        if weights == "auto":
            return 4 * self.stored if device == "cpu" and self.fp8 else self.stored
        return int(self.matrices * _PER_WEIGHT[weights]) + 2 * self.embedding

    def block_bytes(self, device: str, cache: CacheFormat = "auto") -> int:
        """Return the bytes of a block of the cache."""
        if cache == "auto":
            return BLOCK * self.numbers * _COMPUTED[device]
        return BLOCK * (self.numbers + 4 * self.vectors)

    def plan(
        self,
        device: str,
        free: int,
        weights: Weights = "auto",
        cache: CacheFormat = "auto",
        cache_tokens: int = 0,
    ) -> Room:
        """Return what the model needs.

        Args:
            device: `cpu` or `cuda`.
            free: Bytes of the device that are free.
            weights: How matrices are kept.
            cache: How keys and values are kept.
            cache_tokens: Tokens that the cache holds; 0: as many as fit.

        Raises:
            ModelRefused: It does not fit.
        """
        size, block = self.weight_bytes(device, weights), self.block_bytes(device, cache)
        work = WORK_BYTES[device]
        tokens = cache_tokens or _LEAST_TOKENS
        least = size + work + -(-tokens // BLOCK) * block
        if free < least:
            raise ModelRefused(
                phrase(
                    "{name} needs {size} with a cache of {tokens} tokens; {amount} are free. "
                    "Choose smaller weights, such as int4, or a smaller cache",
                    name=self.name,
                    size=Number(least / 2**30, ".1f", "GiB"),
                    tokens=Number(tokens, ","),
                    amount=Number(free / 2**30, ".1f", "GiB"),
                )
            )
        blocks = (free - size - work) // block
        if cache_tokens:
            blocks = -(-cache_tokens // BLOCK)
        elif device == "cpu":
            blocks = min(blocks, max(_CPU_TOKENS, self.context) // BLOCK)
        return Room(size, block, blocks, work)


def footprint(folder: Path, config: Config | None = None) -> Footprint:
    """Return what the model in a folder takes. Raises ModelRefused if it is not one."""
    config = config or read_config(folder)
    embedding = config.embeddings
    every = [config.keys_of(i) for i in range(config.layers)]
    own = [keys for i, keys in enumerate(every) if keys.source == i]
    vectors = 2 * sum(keys.heads for keys in own)
    stored = sum(file.stat().st_size for file in weight_files(folder))
    return Footprint(
        folder.name, config.context, stored, config.parameters - embedding, embedding,
        2 * sum(keys.heads * keys.size for keys in own), vectors,
        config.quantization.get("quant_method") == "fp8",
    )  # fmt: skip


def free_host_bytes() -> int:
    """Return the bytes of the host's memory that are free."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no line MemAvailable")
