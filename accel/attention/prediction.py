"""Predict how long a backend takes at a shape that was not measured.

The time is a sum of physical terms with coefficients that are not negative, fitted for each backend
and direction to all measurements (`python -m tests.benchmarks.attention_fit`): multiplications of
the visible tiles, their exponentials, the longest tile, the last wave, bytes, the launch, and what
softcaps, biases, windows, ragged batches and lengths that are no multiple of a tile cost. What the
sum misses at measured shapes corrects it at shapes near by. A backend is never predicted to compute
faster than it did at any measured shape with heads of about that size: beyond the longest measured
lengths the sum alone promised more than the GPU can do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

FILE = Path(__file__).parent / "measured" / "coefficients.json"
MULTIPROCESSORS = 132
"""Of the GPUs that were measured."""
TILE = 128
"""Queries and keys of a tile, about those of all kernels."""
HEAD_DIMS = (64, 128, 256)
"""Kernels have other tiles for each of these; the cost of sizes between is interpolated."""
POWERS_OF_TWO = ("triton",)
"""Backends whose tiles are as wide as the next power of two, so that a head of 80 costs as one of
128."""
SOFT = 0.05
"""The squared distance, in octaves, within which measured shapes count alike."""
TRUST = 0.02
"""The weight of the sum of terms against that of the shapes near by."""
ALIKE = 0.5
"""The octaves by which head sizes differ at most whose highest rates are compared."""
REACH = 9.0
"""The squared distance from the nearest measured shape beyond which nothing is predicted."""


class Geometry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describe a shape as far as its cost depends on it."""

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    left: int | None = None
    right: int | None = None
    softcap: bool = False
    bias: bool = False
    ragged: bool = False


class Fitted(msgspec.Struct, frozen=True):
    """The fit of one backend in one direction."""

    backend: str
    coefficients: tuple[float, ...]
    """Microseconds for each of `terms`."""
    missed: tuple[float | None, ...]
    """For each measured shape, the logarithm of the time over the sum of terms; None where the
    backend was not measured."""


class Direction(msgspec.Struct, frozen=True):
    """The fits of one direction."""

    regret: float
    """What a choice costs at a shape that was left out: the geometric mean of its time over the
    fastest backend's, less one."""
    shapes: tuple[Geometry, ...]
    """Where backends were measured."""
    fitted: tuple[Fitted, ...]


class Coefficients(msgspec.Struct, frozen=True):
    """The contents of the file."""

    gpus: tuple[str, ...]
    """The GPUs whose measurements were fitted together."""
    directions: dict[str, Direction]


def terms(g: Geometry) -> tuple[float, ...]:
    """Return the terms of a shape, each about 1 where it dominates a call of some microseconds."""
    heads, tiles = g.batch * g.heads, -(-g.seq_q // TILE)
    blocks = [_blocks(g, i) for i in range(tiles)]
    area = TILE * TILE / 1e6
    work = area * heads * sum(blocks) / MULTIPROCESSORS
    waves = math.ceil(heads * tiles / MULTIPROCESSORS)
    last_wave = area * waves * sum(blocks) / max(1, tiles)
    longest = area * max(blocks, default=0)
    rows = 2 * heads * g.seq_q + 2 * g.batch * g.kv_heads * g.seq_k
    d = g.head_dim
    return (
        1.0,
        *(share * work * d for share in _shares(d)),
        *(share * last_wave * d for share in _shares(d)),
        work * 64,
        longest * d,
        2e-6 * rows * d,
        float(waves),
        work * 64 * g.softcap,
        work * 64 * g.bias,
        work * 64 * g.ragged,
        work * 64 * (g.left is not None),
        work * 64 * _uneven(g),
    )


def predict(fits: Direction, g: Geometry) -> dict[str, float]:
    """Return the expected microseconds of each backend that was measured near the shape."""
    apart = [distance(g, shape) for shape in fits.shapes]
    if min(apart, default=math.inf) > REACH:
        return {}
    those, wide = {g: (terms(g), apart)}, raise_head(g)
    if wide != g:
        those[wide] = terms(wide), [distance(wide, shape) for shape in fits.shapes]
    found = {}
    for fitted in fits.fitted:
        values, apart = those[wide if fitted.backend in POWERS_OF_TWO else g]
        base = sum(c * t for c, t in zip(fitted.coefficients, values, strict=True))
        own = [(d, m) for d, m in zip(apart, fitted.missed, strict=True) if m is not None]
        if min(d for d, _ in own) > REACH:
            continue
        near = [((SOFT + d) ** -2, m) for d, m in own]
        missed = sum(w * m for w, m in near) / (TRUST + sum(w for w, _ in near))
        rate = _highest_rate(_highest_rates(fits.shapes, fitted), g.head_dim)
        found[fitted.backend] = max(base * math.exp(missed), _products(g) / rate)
    return found


def raise_head(g: Geometry) -> Geometry:
    """Return the shape with its head size raised to a power of two."""
    return msgspec.structs.replace(g, head_dim=1 << (g.head_dim - 1).bit_length())


def distance(a: Geometry, b: Geometry) -> float:
    """Return the squared distance of two shapes, in octaves; another kind counts as several."""
    apart = (
        math.log2(max(1, a.seq_q) / max(1, b.seq_q)),
        math.log2(max(1, a.seq_k) / max(1, b.seq_k)),
        _octaves_of_tiles(a) - _octaves_of_tiles(b),
        1.5 * math.log2(a.head_dim / b.head_dim),
        0.5 * math.log2(a.heads / a.kv_heads * b.kv_heads / b.heads),
    )
    other = (a.right is None) != (b.right is None) and a.seq_q > 1
    kinds = [(g.softcap, g.bias, g.ragged, g.left is not None) for g in (a, b)]
    differing = sum(int(x != y) for x, y in zip(*kinds, strict=True))
    return math.fsum(x * x for x in apart) + 0.5 * other + 4.0 * differing


def expect(gpus: Sequence[str], direction: str, g: Geometry) -> dict[str, float]:
    """Return the expected microseconds of each backend that was fitted for one of the GPUs."""
    held = coefficients()
    return predict(held.directions[direction], g) if set(gpus) & set(held.gpus) else {}


def write(held: Coefficients) -> None:
    """Replace the file, with one backend a line."""
    data = msgspec.json.encode(held)
    FILE.write_bytes(data.replace(b'{"backend"', b'\n{"backend"') + b"\n")
    coefficients.cache_clear()


def _highest_rate(rates: Mapping[int, float], head_dim: int) -> float:
    """Return the highest of the rates of heads of about a size, or of the nearest size."""
    apart = {size: abs(math.log2(size / head_dim)) for size in rates}
    within = max(ALIKE, min(apart.values()))
    return max(rate for size, rate in rates.items() if apart[size] <= within)


@lru_cache(maxsize=64)
def _highest_rates(shapes: tuple[Geometry, ...], fitted: Fitted) -> Mapping[int, float]:
    """Return for each head size the most `_products` a microsecond that were measured."""
    rates: dict[int, float] = {}
    for shape, missed in zip(shapes, fitted.missed, strict=True):
        if missed is not None and not shape.ragged:  # whose lengths are not known here
            of = raise_head(shape) if fitted.backend in POWERS_OF_TWO else shape
            us = sum(c * t for c, t in zip(fitted.coefficients, terms(of), strict=True))
            rate = _products(shape) / (us * math.exp(missed))
            rates[shape.head_dim] = max(rate, rates.get(shape.head_dim, 0.0))
    return rates


def _products(g: Geometry) -> float:
    """Return the multiplications of queries and keys that are seen; of each tile of queries the
    middle one is counted."""
    seen = 0
    for first in range(0, g.seq_q, TILE):
        rows = min(TILE, g.seq_q - first)
        at = first + rows // 2 + g.seq_k - g.seq_q
        end = g.seq_k if g.right is None else min(g.seq_k, at + g.right + 1)
        begin = 0 if g.left is None else max(0, at - g.left)
        seen += rows * max(0, end - begin)
    return float(g.batch * g.heads * g.head_dim * seen)


@lru_cache(maxsize=1)
def coefficients() -> Coefficients:
    """Return the contents of the file."""
    return msgspec.json.decode(FILE.read_bytes(), type=Coefficients)


def _blocks(g: Geometry, tile: int) -> int:
    """Return the number of tiles of keys that a tile of queries sees."""
    shift = g.seq_k - g.seq_q
    first, last = 0, g.seq_k
    if g.right is not None:
        last = min(last, (tile + 1) * TILE + shift + g.right)
    if g.left is not None:
        first = max(0, tile * TILE + shift - g.left)
    return max(0, -(-last // TILE) - max(0, first) // TILE)


def _shares(head_dim: int) -> list[float]:
    """Return how much each of HEAD_DIMS counts for a head size, 1 in all."""
    at = math.log2(min(max(head_dim, HEAD_DIMS[0]), HEAD_DIMS[-1]))
    return [max(0.0, 1.0 - abs(at - math.log2(d))) for d in HEAD_DIMS]


def _uneven(g: Geometry) -> bool:
    """Return whether the last tile of queries or keys is not whole, which slows some kernels down
    throughout."""
    return g.seq_q > 1 and (g.seq_q % TILE > 0 or g.seq_k % TILE > 0)


def _octaves_of_tiles(g: Geometry) -> float:
    return math.log2(min(max(1, g.batch * g.heads * -(-g.seq_q // TILE)), 1024))
