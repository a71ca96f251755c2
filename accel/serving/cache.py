"""Store the keys and values of all tokens in blocks, in floating point or quantized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.serving.families import Config
from gpudeck.accel.serving.memory import BLOCK, CacheFormat

_MOST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}


@dataclass(frozen=True)
class Quantized:
    """Hold quantized keys or values: each vector of a head has a scale of its own."""

    values: Tensor
    """[..., D] in float8_e4m3fn or int8."""
    scales: Tensor
    """[...] fp32"""

    def dense(self) -> Tensor:
        """Return the vectors in fp32."""
        return self.values.float() * self.scales.unsqueeze(-1)


def quantize_kv_cache(vectors: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> Quantized:
    """Quantize keys or values.

    Args:
        vectors: [..., D], of any floating-point type.
        dtype: float8_e4m3fn, or int8, which is rounded to the nearest of 255 steps.

    Raises:
        ValueError: The type is another one.
    """
    if dtype not in _MOST:
        raise ValueError(f"keys and values are quantized to float8_e4m3fn or int8, not {dtype}")
    wide = vectors.float()
    scales = wide.abs().amax(dim=-1).clamp_min(1e-30) / _MOST[dtype]
    scaled = wide / scales.unsqueeze(-1)
    if dtype == torch.int8:
        scaled = scaled.round()
    return Quantized(scaled.to(dtype), scales)


class PagedCache:
    """Hold keys and values [2, slots, Hkv, D] of each layer; slot `i` is token `i % BLOCK` of its
    block.

    Layers of the same sizes lie in one tensor. A layer that uses the keys of another has these.

    A last block more than asked for takes what belongs to no request: rows that only fill up a
    batch.
    """

    def __init__(
        self,
        config: Config,
        blocks: int,
        device: torch.device,
        dtype: torch.dtype,
        format: CacheFormat = "auto",  # noqa: A002
    ) -> None:
        """Allocate memory for `blocks` blocks, of vectors in `dtype` unless they are quantized."""
        stored = {"auto": dtype, "fp8": torch.float8_e4m3fn, "int8": torch.int8}[format]
        slots = (blocks + 1) * BLOCK
        every = [config.keys_of(i) for i in range(config.layers)]
        owners: dict[tuple[int, int], list[int]] = {}
        for i, keys in enumerate(every):
            if keys.source == i:
                owners.setdefault((keys.heads, keys.size), []).append(i)
        self._stored: list[Tensor] = []
        found: dict[int, tuple[Tensor, Tensor | None]] = {}
        for size, layers in owners.items():
            shape = (len(layers), 2, slots, *size)
            # Zeros: a row that fills up a batch reads blocks that nothing was written to.
            values, scales = torch.zeros(shape, device=device, dtype=stored), None
            self._stored.append(values)
            if format != "auto":
                scales = torch.zeros(shape[:-1], device=device, dtype=torch.float32)
                self._stored.append(scales)
            for place, layer in enumerate(layers):
                found[layer] = values[place], None if scales is None else scales[place]
        self.values = [found[keys.source][0] for keys in every]
        self.scales = [s for k in every if (s := found[k.source][1]) is not None] or None
        self.blocks = blocks
        """Blocks that requests can have."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of all blocks."""
        return sum(tensor.nbytes for tensor in self._stored)

    @property
    def filler(self) -> int:
        """Return the slot that takes what belongs to no request."""
        return self.blocks * BLOCK

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [T, Hkv, D] of one layer in slots [T]."""
        for part, vectors in enumerate((keys, values)):
            into = self.values[layer][part]
            if self.scales is None:
                into.index_copy_(0, slots, vectors.to(into.dtype))
                continue
            made = quantize_kv_cache(vectors, into.dtype)
            # As bytes: not every device copies FP8 by an index.
            into.view(torch.uint8).index_copy_(0, slots, made.values.view(torch.uint8))
            self.scales[layer][part].index_copy_(0, slots, made.scales)

    def dense(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of some blocks in fp32, [len(blocks) BLOCK, Hkv, D] each."""
        slots = (blocks.unsqueeze(1) * BLOCK + torch.arange(BLOCK, device=blocks.device)).flatten()
        found = []
        for part in range(2):
            values = self.values[layer][part]
            wide = values.view(torch.uint8)[slots].view(values.dtype).float()
            if self.scales is not None:
                wide = wide * self.scales[layer][part][slots].unsqueeze(-1)
            found.append(wide)
        return found[0], found[1]

    def copy(self, source: int, target: int) -> None:
        """Copy one block to another."""
        for tensor in self._stored:
            tensor[:, :, _slots(target)] = tensor[:, :, _slots(source)]

    def read(self, block: int) -> list[Tensor]:
        """Return a copy of a block's tensors in the host's memory, pinned if a GPU computes."""
        found = []
        for tensor in self._stored:
            part = tensor[:, :, _slots(block)]
            host = torch.empty(part.shape, dtype=part.dtype, pin_memory=part.is_cuda)
            found.append(host.copy_(part))
        return found

    def restore(self, block: int, parts: list[Tensor]) -> None:
        """Write what `read` returned into a block."""
        for tensor, part in zip(self._stored, parts, strict=True):
            tensor[:, :, _slots(block)] = part.to(tensor.device, non_blocking=True)


def _slots(block: int) -> slice:
    return slice(block * BLOCK, (block + 1) * BLOCK)


class Place(NamedTuple):
    """Say where the keys and values of tokens are stored, and how keys and queries are rotated."""

    turn: tuple[Tensor, Tensor] | None
    """The cosine and sine, [T, dims / 2] each; None: they are not rotated."""
    slots: Tensor
    """[T]"""
    cache: PagedCache
    layer: int
