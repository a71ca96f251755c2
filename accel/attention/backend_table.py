"""State each backend once: its name, its class, and its place in the orders of `auto`.

The module needs no torch: forms and the command line take the names from here.
"""

from __future__ import annotations

from typing import NamedTuple


class Places(NamedTuple):
    """The place of a backend in each order, by what kind of problem it is; None where `auto` does
    not try it."""

    bias: int | None = None
    few_queries: int | None = None
    full_precision: int | None = None
    """float32 and float64."""
    hopper: int | None = None
    blackwell: int | None = None
    """Of datacentres."""
    other_gpu: int | None = None
    turing: int | None = None
    """Compute capability 7.5, whatever the problem."""
    cpu: int | None = None


class Row(NamedTuple):
    """State a backend."""

    name: str
    home: str
    """Its module in `backends`."""
    kind: str
    """Its class there."""
    places: Places = Places()


# Ours take a bias until others are measured. PyTorch prefers cuDNN on Blackwell, too. `math` holds
# all scores in memory and therefore comes last.
# The places: bias, few queries, full precision, Hopper, Blackwell, another GPU, Turing; a
# CPU by its name.
TABLE = (
    Row("hopper", "own", "Hopper", Places(2, 6, None, 1, 6, 6)),
    Row("flash", "torch_kernels", "Flash", Places(6, 3, None, 5, 2, 1, cpu=1)),
    Row("cudnn", "torch_kernels", "Cudnn", Places(3, 4, None, 2, 1, 2)),
    Row("fa4", "fa4", "FlashAttention4", Places(7, 7, None, 3, 3, 5)),
    Row("fa3", "fa3", "VllmFlashAttention3", Places(8, 8, None, 4)),
    Row("triton", "own", "Portable", Places(1, 2, 2, 6, 4, 3)),
    Row("turing", "turing", "Turing", Places(turing=1)),
    Row("decoding", "own", "Decoding", Places(few_queries=1)),
    Row("efficient", "torch_kernels", "Efficient", Places(4, 5, 1, 7, 5, 4, 2)),
    Row("math", "math", "Math", Places(5, 9, 3, 8, 7, 7, 3, cpu=2)),
    Row("reference", "reference", "Reference"),
)
NAMES = tuple(row.name for row in TABLE)


def order(problem: str) -> tuple[str, ...]:
    """Return the backends that `auto` tries for a kind of problem, which is one of the fields of
    `Places`, the first one first."""
    places = {row.name: getattr(row.places, problem) for row in TABLE}
    able = [name for name, place in places.items() if place is not None]
    return tuple(sorted(able, key=places.__getitem__))
