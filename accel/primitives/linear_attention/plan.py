"""Decide how a problem is cut into programs, and what the kernels are specialised to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from gpudeck.accel.primitives.linear_attention.problem import Rule

Tensors = dict[str, Tensor | None]
"""Tensors by the names of the kernels' arguments, without `_ptr`; None if a rule lacks one."""
Bounds = tuple[tuple[int, int], ...]
"""Where each sequence begins and ends."""

CHUNK = 64
ROWS = 16
"""The block of tokens within which factors of a decay for each channel fit in float32."""
_SHARED_KIB = {(8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227}
"""The shared memory of a program by compute capability; 99 elsewhere."""
_SCRATCH = 20 * 1024
"""Its bytes that are not for what is loaded."""
_PASSING = {64: (64, 4, 3), 128: (64, 4, 3), 256: (32, 8, 2)}
"""By the width of the keys: columns of a state, warps and chunks in flight of a program that passes
states on, as measured on an H200."""
_ALL, MANY = (128, 8, 3), 90
"""The same for keys of 128 with so many heads of all sequences that they fill a GPU."""
_TWO = (64, 4, 2)
"""The same for keys of 128, a decay for each head, and parts of sequences: a multiprocessor of
Hopper or datacentre Blackwell runs two such programs."""

_FEWEST, _GAIN, _JOINING = 32, 0.75, 1.4
"""The chunks that a part of a sequence has at least, the share of time from which it pays, and what
passes take if parts are joined. With decays of a few percent a token that is little more than one
pass, and without any up to 2.4."""


@dataclass(frozen=True)
class Shape:
    """Hold what the kernels are specialised to and how they are cut into programs."""

    keys: int
    values: int
    heads: int
    group: int
    channel: bool
    rule: Rule
    dtype: torch.dtype

    @property
    def kept(self) -> torch.dtype:
        """Return the dtype of intermediate results: products of float16 vectors may exceed it."""
        return torch.bfloat16 if self.dtype == torch.bfloat16 else torch.float32

    @property
    def key_block(self) -> int:
        """Return the channels of the keys that a program holds at once."""
        return min(64, wide(self.keys))

    @property
    def gradient_block(self) -> int:
        """Return the channels of the keys whose gradients a program computes.

        Four gradients of 64 channels and their factors do not fit the registers: with 32 the
        backward pass of RWKV-7 took 5.3 instead of 6.0 ms on an H200. GLA has two gradients. With
        blocks of 32 of its 64 channels, the assembler of Triton 3.6 takes an address for the
        descriptor of a factor, and the product reads beyond the shared memory.
        """
        return min(32, self.key_block) if self.channel and self.rule.erases else self.key_block

    @property
    def blocks_of_gradients(self) -> int:
        """Return into how many such blocks the channels of the keys are cut."""
        return -(-self.keys // self.gradient_block)

    @property
    def value_block(self) -> int:
        """Return the channels of the values that a program holds at once."""
        return min(64, wide(self.values))

    @property
    def blocks_of_keys(self) -> int:
        """Return into how many blocks the channels of the keys are cut."""
        return -(-self.keys // self.key_block)

    @property
    def blocks_of_rows(self) -> int:
        """Return into how many blocks the tokens of a chunk with strong decays are cut."""
        return CHUNK // ROWS if self.channel and not self.rule.gentle else 1

    @cached_property
    def constants(self) -> dict[str, object]:
        """Return the constants that kernels take by these names."""
        # the kernels know exclusive keys only where a chunk with decays a channel is one block
        assert not self.rule.exclusive or (self.channel and self.rule.gentle)
        half = self.dtype == torch.bfloat16
        precise = self.dtype == torch.float32
        return {
            "KEYS": self.keys,
            "WIDTH": wide(self.keys),
            "VALUES": self.values,
            "GROUP": self.group,
            "SHARED": 1 if self.channel else self.group,
            "CHUNK": CHUNK,
            "ROWS": CHUNK // self.blocks_of_rows,
            "CHANNEL": self.channel,
            "STRONGEST": self.rule.strongest,
            "PLAIN": self.rule.plain,
            "ERASES": self.rule.erases,
            "EXCLUSIVE": self.rule.exclusive,
            "SIGN": self.rule.sign,
            "COMPUTE": tl.bfloat16 if half else tl.float32,
            "PRECISION": "tf32x3" if precise else "tf32",
        }


@lru_cache(maxsize=256)
def shape_of(*given: Any) -> Shape:
    """Return the shape whose constants are known already, as calls repeat."""
    return Shape(*given)


@dataclass(frozen=True)
class Tables:
    """Hold where chunks and sequences lie; see `memory_kernels`."""

    chunks: Tensor
    sequences: Tensor
    places: int
    """The number of states that are kept: one before each chunk and one after each sequence."""
    longest: int
    """The chunks of the longest sequence."""


@lru_cache(maxsize=256)
def tables(bounds: Bounds, device: torch.device) -> Tables:
    """Return the tables of sequences that lie at `bounds`."""
    chunks: list[tuple[int, int, int]] = []
    sequences = []
    for n, (begin, end) in enumerate(bounds):
        first = len(chunks)
        chunks += [
            (at, min(CHUNK, end - at), first + i + n)
            for i, at in enumerate(range(begin, end, CHUNK))
        ]
        sequences.append((first, len(chunks) - first))
    longest = max((count for _, count in sequences), default=0)
    places = len(chunks) + len(bounds)
    return Tables(_table(chunks, 3, device), _table(sequences, 2, device), places, longest)


def _table(rows: Sequence[Sequence[int]], width: int, device: torch.device) -> Tensor:
    """Return a table [n, width] that gradients may be computed with, also in inference mode."""
    with torch.inference_mode(False):
        return torch.tensor(rows, dtype=torch.int32).reshape(-1, width).to(device)


@lru_cache(maxsize=256)
def cut(bounds: Bounds, parts: int, device: torch.device) -> Tensor:
    """Return the table of sequences that are cut into parts: all first parts, all second, ..."""
    lines: list[list[tuple[int, int]]] = [[] for _ in range(parts)]
    chunk = 0
    for begin, end in bounds:
        count = -(-(end - begin) // CHUNK)
        size = -(-count // parts)
        for part in range(parts):
            first = min(part * size, count)
            lines[part].append((chunk + first, min(size, count - first)))
        chunk += count
    return _table([line for part in lines for line in part], 2, device)


@lru_cache(maxsize=256)
def passing(
    s: Shape, capability: tuple[int, int] | None, sequences: int, *, parted: bool = False
) -> tuple[int, Mapping[str, int]]:
    """Return the columns of a state that a program passes on, and its compiler options.

    As many chunks are in flight as the shared memory of a GPU has room for.

    Args:
        parted: the sequences are parts of longer ones.
    """
    width = wide(s.keys, 64)
    columns, warps, stages = _PASSING[width]
    if width == 256 and not s.rule.erases:
        warps = 4
    if width == 128 and s.values == 128 and s.heads * sequences >= MANY:
        columns, warps, stages = _ALL
    if parted and _share(s, capability):
        columns, warps, stages = _TWO
    columns = min(columns, wide(s.values))
    plain, erases = s.rule.plain, s.rule.erases
    vectors = 1 + plain + erases * (2 if s.channel else 1)
    squares = plain + 2 * erases
    of_a_chunk = CHUNK * (vectors * wide(s.keys) + squares * CHUNK + columns) * s.kept.itemsize
    stages = _in_flight(stages, of_a_chunk, columns, capability)
    return columns, {"num_warps": warps, "num_stages": stages}


@lru_cache(maxsize=256)
def single(
    s: Shape, capability: tuple[int, int] | None, states: int, processors: int
) -> tuple[int, Mapping[str, int]]:
    """Return the columns of a state that a program of `single_kernels` holds, and its options.

    Few programs have a multiprocessor each, and with it more chunks in flight, as measured on an
    H200.

    Args:
        states: how many states are passed on side by side, of all heads and sequences.
    """
    programs = states * -(-s.values // 64)
    columns = min(32 if 2 * programs <= processors else 64, wide(s.values))
    of_a_chunk = CHUNK * (2 * wide(s.keys) + columns) * s.kept.itemsize
    wanted = 2 if programs > processors and s.keys > 64 else 3
    stages = _in_flight(wanted, of_a_chunk, columns, capability)
    return columns, {"num_warps": 4, "num_stages": stages}


def _in_flight(
    wanted: int, of_a_chunk: int, columns: int, capability: tuple[int, int] | None
) -> int:
    """Return for how many chunks of so many bytes, of those that are wanted, there is room."""
    where = capability or (9, 0)
    room = _SHARED_KIB.get(where, 99) * 1024 - _SCRATCH
    # a warpgroup reads factors from shared memory until its product is done; others load them first
    copied = 0 if where[0] in (9, 10) and columns >= 64 else 1
    return max(1, min(wanted, room // of_a_chunk + copied))


@lru_cache(maxsize=256)
def parts_of(
    s: Shape, capability: tuple[int, int] | None, sequences: int, chunks: int, processors: int
) -> int:
    """Return into how many parts, at work at the same time, to cut sequences of so many chunks.

    Parts cost passes of their own: what each adds to a state and what it makes of the state before
    it, for as many chunks as decays leave something of.
    """

    def cost(parts: int) -> float:
        columns, _ = passing(s, capability, sequences * parts, parted=parts > 1)
        programs = -(-s.values // columns) * s.heads * sequences * parts
        slots = processors * (2 if parts > 1 and _share(s, capability) else 1)
        return (1.0 if parts == 1 else _JOINING) * -(-programs // slots) / parts

    able = [parts for parts in (1, 2, 4, 8, 16) if parts == 1 or chunks >= _FEWEST * parts]
    best = min(able, key=cost)
    return best if cost(best) < _GAIN * cost(1) else 1


def _share(s: Shape, capability: tuple[int, int] | None) -> bool:
    """Return whether two programs that pass on parts of sequences share a multiprocessor."""
    sized = wide(s.keys, 64) == 128 and wide(s.values) >= 64 and s.kept.itemsize == 2
    return sized and not s.channel and (capability or (9, 0))[0] in (9, 10)


@cache
def processors_of(device: torch.device) -> int:
    """Return the multiprocessors of a GPU, and 1 where kernels are interpreted."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def capability_of(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of a GPU, and None where kernels are interpreted."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def wide(size: int, least: int = 16) -> int:
    """Return the power of two that holds `size`; products need 16."""
    return max(least, 1 << (size - 1).bit_length())
