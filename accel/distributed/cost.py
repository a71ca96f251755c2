"""Predict the seconds of a pass by each strategy, from the speed of links and of the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

from gpudeck.language.text import Number, Text, phrase


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem over all ranks that its cost depends on."""

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    itemsize: int
    visible: float = 1.0
    """The share of all pairs of queries and keys that is visible: about 0.5 if causal."""


@dataclass(frozen=True)
class Links:
    """The speed of the ways between ranks and of the work on them."""

    direct: bool = False
    """True if copies run beside the kernel without a multiprocessor."""
    bytes_a_second: float = 1e9
    """What a rank sends, and receives at the same time."""
    latency_s: float = 20e-6
    """What the host needs to start one round, while the GPU works."""
    flops: float = 1e11
    """Floating-point operations a second of the local kernel."""
    start_s: float = 0.0
    """What a pass takes besides: its first signals, and copies of own rows."""
    short_flops: float = 0.0
    """The same for pieces that are merged in float32; 0 for 0.8 of `flops`."""

    @property
    def reason(self) -> Text:
        """Return why a strategy is chosen that is predicted with these links."""
        speed = Number(self.bytes_a_second / 1e9, ".3g", "GB/s")
        if self.direct:
            return phrase("predicted fastest by direct copies at {speed}", speed=speed)
        return phrase("predicted fastest by messages at {speed}", speed=speed)


MESSAGES_GPU = Links(False, 180e9, 40e-6, 600e12)
"""NCCL between two H100s over NVLink (LOG.md: 175 GiB/s at 64 MiB)."""
DIRECT = Links(True, 332e9, 40e-6, 635e12, 0.1e-3)
"""The copy engine between two H100s over NVLink: 309 GiB/s each way at 64 MiB. Short passes are
replayed as graphs, in which a round takes the host nothing."""
BETWEEN_HOSTS = Links(False, 45e9, 0.7e-3, 635e12, 0.1e-3)
"""H100s with one network adapter of 400 Gbit/s each, an assumption: nobody measured it here."""
CPU = Links(False, 1e9, 200e-6, 1e11)
"""gloo between processes of one machine; an assumption, not a measurement."""

FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5
BACKWARD_SPEED = 0.82
"""The speed of our backward kernels over that of the forward one, on an H100 at 64k tokens."""
SUMS_S = 17e-12
"""What the backward pass by `gather` takes longer than that by `ulysses` for each element of all
keys and values, whose gradients it sums in float32: 11 to 28 ps on H200s (LOG.md)."""
PIECE_BYTES, MOST_PIECES = 24 << 20, 6
"""Journeys are cut for each so many bytes, which take about 70 us (more copies and kernels would
cost more than they hide), into at most so many pieces of heads."""


def seconds(
    strategy: str,
    ranks: int,
    tokens: int,
    sizes: Sizes,
    links: Links,
    direction: Literal["forward", "backward"],
) -> float:
    """Return the predicted seconds of one pass of `strategy` on the slowest rank."""
    forward = direction == "forward"
    products = FORWARD_PRODUCTS if forward else BACKWARD_PRODUCTS
    pairs = sizes.batch * sizes.heads * float(tokens) ** 2 * sizes.visible
    work = products * pairs * (sizes.head_dim + sizes.value_dim) / ranks / links.flops
    work /= 1.0 if forward else BACKWARD_SPEED
    moved, exposed, rounds, merged = _journey(strategy, ranks, tokens, sizes, forward)
    slow = links.short_flops or 0.8 * links.flops
    work *= links.flops / slow if merged else 1.0
    travel = moved / links.bytes_a_second
    hidden = max(work, travel * (1 - exposed), rounds * links.latency_s)
    found = hidden + travel * exposed + (links.start_s if ranks > 1 else 0.0)
    if strategy == "gather" and not forward and ranks > 1:
        found += SUMS_S * sizes.batch * tokens * sizes.kv_heads * (sizes.head_dim + sizes.value_dim)
    return found


def _journey(
    strategy: str, ranks: int, tokens: int, s: Sizes, forward: bool
) -> tuple[float, float, int, bool]:
    """Return the bytes that a rank receives, the share of them that nothing hides, the rounds, and
    whether partial answers are merged."""
    mine = s.batch * tokens / ranks
    key = mine * s.kv_heads * (s.head_dim + s.value_dim)
    query, out = mine * s.heads * s.head_dim, mine * s.heads * s.value_dim
    others = ranks - 1
    if ranks == 1:
        return 0.0, 0.0, 0, False
    pieces = max(1, min(MOST_PIECES, s.kv_heads, int(key * ranks * s.itemsize) // PIECE_BYTES))
    if strategy == "gather":
        moved = key * others * s.itemsize + (0 if forward else 4 * key * others)
        # nothing hides the first piece; partial gradients are not overlapped
        return moved, 1 / (2 * pieces) if forward else 0.5, pieces * (1 if forward else 2), False
    if strategy == "ulysses":
        there = query + key + (0 if forward else 2 * out)
        back = out if forward else query + key
        share = others / ranks
        return (there + back) * share * s.itemsize, 1 / pieces, 2 * pieces, False
    if strategy == "hybrid":
        width = gcd(ranks, s.kv_heads)
        share = (width - 1) / width
        there = (query + key + (0 if forward else 2 * out)) * share
        back = (out if forward else query + key) * share
        hops = ranks // width - 1
        around = key * hops * (s.itemsize if forward else s.itemsize + 4)
        moved = (there + back) * s.itemsize + around
        return moved, (there + back) * s.itemsize / max(moved, 1.0), 2 + hops, hops > 0
    rows = 1 if strategy == "ring" else _rows(ranks, s)
    columns = ranks // rows
    around = key * (columns - 1) * (s.itemsize if forward else s.itemsize + 4)
    share = query + (4 * out / s.itemsize if forward else 2 * out + 4 * query / s.itemsize)
    column = (rows - 1) * share * s.itemsize
    return around + column, column / max(around + column, 1.0), columns + 2 * (rows > 1), True


def _rows(ranks: int, s: Sizes) -> int:
    queries = s.heads * (s.head_dim + 2 * s.value_dim)
    keys = s.kv_heads * (s.head_dim + s.value_dim)
    shapes = [a for a in range(1, ranks + 1) if ranks % a == 0]
    return min(shapes, key=lambda a: (a - 1) * queries + (ranks // a - 1) * keys)
