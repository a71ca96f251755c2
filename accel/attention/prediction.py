"""Predict how long a backend takes at a shape that was not measured.

The time is a sum of physical terms with coefficients that are not negative, fitted for each backend
and direction to all measurements (`python -m tests.benchmarks.attention_fit`): multiplications of
the visible tiles, their exponentials, the longest tile, the last wave, bytes, the launch, and what
softcaps, biases, windows, ragged batches and lengths that are no multiple of a tile cost. What the
sum misses at measured shapes corrects it at shapes near by, as a Gaussian process whose correlation
falls exponentially with the distance (kriging; Rasmussen and Williams, 2006, chapter 2). A backend
is never predicted to compute faster than it did at any measured shape with heads of about that
size: beyond the longest measured lengths the sum alone promised more than the GPU can do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import msgspec

FILE = Path(__file__).parent / "measured" / "coefficients.json"
MULTIPROCESSORS = 132
"""Of the GPUs that were measured."""
TILE = 128
"""Queries and keys of a tile, about those of all kernels."""
FEW_QUERIES = 16
"""Up to so many queries a sequence is a decoding step."""
HEAD_DIMS = (64, 128, 256)
"""Kernels have other tiles for each of these; the cost of sizes between is interpolated."""
WIDE_TILES = ("hopper", "cudnn")
"""Backends with tiles for heads of these sizes only; a smaller head costs as one of the next."""
TILES_OF_HEADS = (64, 96, 128, 192, 256, 512)
POWERS_OF_TWO = ("triton",)
"""Backends whose tiles are as wide as the next power of two. Those of all others are multiples of
STEP."""
STEP = 32
ALIKE = 0.5
"""The octaves by which head sizes differ at most whose highest rates are compared."""
REACH = 1.0
"""The distance from the nearest measured shape beyond which nothing is predicted."""


Place = tuple[float, ...]


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
    level: float
    """The mean logarithm of the measured time over the sum of terms."""
    weights: tuple[float | None, ...]
    """How much each measured shape adds to that where it is near; None where the backend was not
    measured."""
    highest: dict[int, float]
    """For each head size the most `products` a microsecond that were measured."""


class Direction(msgspec.Struct, frozen=True, dict=True):
    """The fits of one direction."""

    regret: float
    """What a choice costs at a shape that was left out: the geometric mean of its time over the
    fastest backend's, less one."""
    backward: bool
    shapes: tuple[Geometry, ...]
    """Where backends were measured."""
    fitted: tuple[Fitted, ...]

    @cached_property
    def weighted(self) -> dict[str, list[tuple[Place, float]]]:
        """Return, for each backend, where it was measured and the weight of that."""
        return {
            of.backend: [
                (place(raise_head(shape, of.backend)), weight)
                for shape, weight in zip(self.shapes, of.weights, strict=True)
                if weight is not None
            ]
            for of in self.fitted
        }


class Coefficients(msgspec.Struct, frozen=True):
    """The contents of the file."""

    gpus: tuple[str, ...]
    """The GPUs whose measurements were fitted together."""
    directions: dict[str, Direction]


@lru_cache(maxsize=64)
def terms(g: Geometry, backward: bool = False) -> tuple[float, ...]:
    """Return the terms of a shape, each about 1 where it dominates a call of some microseconds.

    In a backward pass CTAs may own keys, and meet the queries of all heads that share these.
    """
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
        *(_terms_of_keys(g, area * sum(blocks), area * max(blocks, default=0)) if backward else ()),
    )


def _terms_of_keys(g: Geometry, scores: float, longest: float) -> tuple[float, ...]:
    """Return the longest tile and the last wave of CTAs that own keys, from a head's scores."""
    tiles, group = max(1, -(-g.seq_k // TILE)), g.heads // g.kv_heads * g.head_dim
    waves = math.ceil(g.batch * g.kv_heads * tiles / MULTIPROCESSORS)
    return longest * group, waves * scores / tiles * group


def predict(fits: Direction, g: Geometry) -> dict[str, float]:
    """Return the expected microseconds of each backend that was measured near the shape."""
    found = {}
    for fitted in fits.fitted:
        of = raise_head(g, fitted.backend)
        at = place(of)
        own = [(math.dist(at, there), weight) for there, weight in fits.weighted[fitted.backend]]
        if min(apart for apart, _ in own) > REACH:
            continue
        base = sum(
            c * t for c, t in zip(fitted.coefficients, terms(of, fits.backward), strict=True)
        )
        missed = fitted.level + math.fsum(weight * likeness(apart) for apart, weight in own)
        rate = _highest_rate(fitted.highest, g.head_dim)
        found[fitted.backend] = max(base * math.exp(missed), products(g) / rate)
    return found


def raise_head(g: Geometry, backend: str) -> Geometry:
    """Return the shape with the head size that a backend's tiles have for it."""
    if backend in POWERS_OF_TWO:
        wide = 1 << (g.head_dim - 1).bit_length()
    elif backend in WIDE_TILES and g.head_dim <= TILES_OF_HEADS[-1]:
        wide = next(size for size in TILES_OF_HEADS if size >= g.head_dim)
    else:
        wide = -(-g.head_dim // STEP) * STEP
    return msgspec.structs.replace(g, head_dim=wide)


def place(g: Geometry) -> Place:
    """Return the coordinates of a shape: octaves and kinds over the scales at which they matter.

    At a distance of 1 two shapes have about a third of what a sum misses in common. The scales are
    about those at which the fits of all backends are most likely.
    """
    tiles = min(max(1, g.batch * g.heads * -(-g.seq_q // TILE)), 4096)
    return (
        math.log2(max(1, g.seq_q)) / 4,
        math.log2(max(1, g.seq_k)) / 4,
        math.log2(max(1, g.batch * g.heads)) / 8,
        math.log2(tiles) / 10,
        math.log2(g.head_dim),
        math.log2(g.heads / g.kv_heads) / 3,
        (g.right is not None and g.seq_q > 1) / 8,
        _uneven(g) / 2,
        0.5 * (g.seq_q <= FEW_QUERIES),
        0.5 * g.softcap,
        0.5 * g.bias,
        0.6 * g.ragged,
        0.6 * (g.left is not None),
    )


def likeness(apart: float) -> float:
    """Return how much of what the sum of terms misses two shapes at a distance have in common."""
    return math.exp(-apart)


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


def products(g: Geometry) -> float:
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
