"""Say which backends of attention are expected on a card, by its name. Free of torch.

`gpudeck.accel.attention.dispatch` decides where torch runs, and may know better: what this machine
has measured itself, what a backend refuses, and which package is broken.
"""

from __future__ import annotations

from importlib import metadata
from typing import Literal, NamedTuple

from gpudeck.accel.attention import backend_table, prediction, table

Basis = Literal["measured", "predicted", "order"]
"""What was measured at this shape, what is predicted from other shapes, or the order in which
backends are tried where nothing like it was measured."""
_PACKAGES = {"fa3": "vllm", "fa4": "flash-attn-4"}
"""The packages of backends that come with neither torch nor GPU Deck."""
_TWO_BYTES = ("bfloat16", "float16")
_KINDS = {(7, 5): "turing", (9, 0): "hopper"}


class Shape(NamedTuple):
    """Describe a problem; the defaults are a layer of a language model of seven billion
    parameters."""

    dtype: str = "bfloat16"
    head_dim: int = 128
    causal: bool = True
    seq: int = 4096
    heads: int = 32
    kv_heads: int = 8
    batch: int = 1


class Expected(NamedTuple):
    """Hold what is expected of one pass."""

    basis: Basis
    backends: tuple[str, ...]
    """Those that are installed and expected to be able, the one that would run first."""
    rates: dict[str, float]
    """TFLOP/s of those for which it is known, also of those that are not installed."""
    gpus: tuple[str, ...] = ()
    """The GPUs that were measured."""


def expect(
    gpu: str, capability: tuple[int, int] | None, shape: Shape, direction: str = "forward"
) -> Expected:
    """Return what is expected of a pass on a GPU.

    Args:
        gpu: Its name by the driver, such as `NVIDIA H200`.
        capability: Its compute capability; None for a CPU.
        shape: The problem.
        direction: `forward` or `backward`.
    """
    basis, rates, gpus = _rates(gpu, shape, direction)
    order = backend_table.order(_kind(capability, shape))
    ranked = sorted((name for name in rates if name != "reference"), key=lambda n: -rates[n])
    able = dict.fromkeys((*ranked, *(name for name in order if name not in ranked)))
    return Expected(basis, tuple(filter(is_installed, able)), rates, gpus)


def is_installed(backend: str) -> bool:
    """Return whether a backend's package is installed, if it needs one of its own."""
    try:
        return backend not in _PACKAGES or bool(metadata.version(_PACKAGES[backend]))
    except metadata.PackageNotFoundError:
        return False


def _rates(
    gpu: str, shape: Shape, direction: str
) -> tuple[Basis, dict[str, float], tuple[str, ...]]:
    if shape.dtype not in _TWO_BYTES:
        return "order", {}, ()
    rows = table.rows_of(gpu, direction, shape.dtype, shape.head_dim, shape.causal)
    at = table.place(shape.batch * shape.heads, shape.seq, shape.seq)
    ratio = shape.heads // shape.kv_heads
    same = [row for row in rows if row.place == at and row.gpu == gpu
            and (row.head_dim, row.heads // row.kv_heads) == (shape.head_dim, ratio)]  # fmt: skip
    if same:
        return "measured", {row.backend: row.tflops for row in same}, (gpu,)
    alike = [gpu, *filter(None, [table.ALIKE.get(gpu)])]
    geometry = prediction.Geometry(
        shape.batch, shape.heads, shape.kv_heads, shape.seq, shape.seq, shape.head_dim,
        right=0 if shape.causal else None,
    )  # fmt: skip
    if times := prediction.expect(alike, direction, geometry):
        # two products of two operations each, and five in the backward pass
        flops = 4e-6 * prediction.products(geometry) * (2.5 if direction == "backward" else 1.0)
        found = {name: flops / time for name, time in times.items()}
        return "predicted", found, prediction.coefficients().gpus
    return (
        ("predicted" if rows else "order"),
        table.expect(rows, at),
        tuple(table.find_gpus(rows, at)),
    )


def _kind(capability: tuple[int, int] | None, shape: Shape) -> str:
    """Return which order of `backend_table` applies, as `dispatch.prefer` chooses it."""
    if capability is None:
        return "cpu"
    if shape.dtype not in _TWO_BYTES and capability != (7, 5):
        return "full_precision"
    return _KINDS.get(capability, "blackwell" if capability[0] == 10 else "other_gpu")
