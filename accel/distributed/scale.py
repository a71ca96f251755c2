"""Predict attention over more GPUs than there are: seconds and memory of each strategy.

The numbers are modelled, from what was measured on two GPUs of one host (`cost.DIRECT`) and, beyond
the GPUs of a host, from an assumption about the network (`cost.BETWEEN_HOSTS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from gpudeck.accel.distributed.cost import BETWEEN_HOSTS, DIRECT, Links, Sizes, seconds


@dataclass(frozen=True)
class Kind:
    """The datasheet of a kind of GPU: its speed in bf16, its NVLink one way, and its memory."""

    tflops: float
    link_gb_s: float
    memory_gib: float


KINDS = {
    "H100": Kind(989, 450, 80),
    "H200": Kind(989, 450, 141),
    "A100": Kind(312, 300, 80),
    "B200": Kind(2250, 900, 180),
}
MEASURED = "H100"
"""The kind on which the model's parameters were measured. Others are assumed to reach the same
share of their datasheets."""
STRATEGIES = ("gather", "ulysses", "ring", "mesh", "hybrid")
RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Prediction:
    """What one strategy is predicted to take on so many GPUs; modelled, not measured."""

    ranks: int
    strategy: str
    forward_s: float
    backward_s: float
    bytes_of_a_rank: float
    """Tensors, gradients and buffers of one rank, without the kernel's own."""


def predict(
    tokens: int,
    sizes: Sizes,
    ranks: Sequence[int] = RANKS,
    gpus_of_a_host: int = 8,
    kind: str = MEASURED,
) -> list[Prediction]:
    """Return the predictions for a sequence, for each number of ranks the fastest strategy
    first.

    Raises:
        KeyError: if `kind` is none of KINDS.
    """
    every, speed = [], KINDS[kind].tflops / KINDS[MEASURED].tflops
    near = KINDS[kind].link_gb_s / KINDS[MEASURED].link_gb_s
    for count in ranks:
        links = DIRECT if count <= gpus_of_a_host else BETWEEN_HOSTS
        width = links.bytes_a_second * (near if links.direct else 1.0)
        links = replace(links, bytes_a_second=width, flops=links.flops * speed)
        able = [name for name in STRATEGIES if _possible(name, count, sizes)]
        found = [_one(name, count, tokens, sizes, links) for name in able]
        every += sorted(found, key=lambda p: p.forward_s + p.backward_s)
    return every


def _possible(strategy: str, ranks: int, s: Sizes) -> bool:
    if strategy == "ulysses":
        return s.kv_heads % ranks == 0
    return strategy != "hybrid" or gcd(ranks, s.kv_heads) > 1


def _one(strategy: str, ranks: int, tokens: int, s: Sizes, links: Links) -> Prediction:
    if strategy not in ("gather", "ulysses"):
        links = replace(links, direct=False)
    forward, backward = (
        seconds(strategy, ranks, tokens, s, links, direction)
        for direction in ("forward", "backward")
    )
    return Prediction(ranks, strategy, forward, backward, _bytes(strategy, ranks, tokens, s))


def _bytes(strategy: str, ranks: int, tokens: int, s: Sizes) -> float:
    """Return the bytes of q, k, v, the output, their gradients and what the strategy holds."""
    mine = s.batch * tokens / ranks
    key = mine * s.kv_heads * (s.head_dim + s.value_dim) * s.itemsize
    query = mine * s.heads * (s.head_dim + s.value_dim) * s.itemsize
    own = 2 * (query + key) + 4 * mine * s.heads
    if strategy == "gather":
        return own + 3 * key * ranks / min(6, s.kv_heads)
    if strategy == "ulysses":
        return own + 4 * (key + 2 * query) / min(6, max(1, s.kv_heads // ranks))
    return own + 4 * key + 2 * query
