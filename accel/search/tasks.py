"""Describe tasks: what a kernel must compute, for which sizes, and who else can compute it.

The catalog `TASKS` has the operations for which there are templates. `reference` is plain torch: in
float64 it is the truth, and in the dtype of the inputs it is the honest computation whose error is
compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpudeck.accel.search import attention_tasks, recurrence_tasks
from gpudeck.accel.search.draws import DRAWS
from gpudeck.accel.search.verdict import Source

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Size:
    """Describe one size of a task: the value that is timed, and those that may be drawn."""

    timed: int
    low: int
    high: int


@dataclass(frozen=True)
class Task:
    """Describe what a candidate must compute: a function of tensors that returns one tensor."""

    name: str
    sizes: Mapping[str, Size]
    shapes: Callable[[Sizes], tuple[tuple[int, ...], ...]]
    """The shapes of the inputs."""
    result: Callable[[Sizes], tuple[int, ...]]
    """The shape of the result."""
    reference: Callable[..., Tensor]
    flops: Callable[[Sizes], float]
    dtype: torch.dtype = torch.float32
    draws: tuple[str, ...] = tuple(DRAWS)
    """The distributions that make sense; see `draws`."""
    own: bool = True
    """Whether the candidate must compute the result itself, and may not have torch do it."""
    product: bool = False
    """Whether most operations are matrix products, which tensor cores compute."""
    alternatives: Mapping[str, Source] = field(default_factory=dict)
    """What computes the same, beside `reference` and what torch.compile makes of it."""
    written: Source | None = None
    """Where `reference` is defined, if that is a file."""

    @property
    def source(self) -> Source:
        """Return what names `reference` to other processes."""
        return self.written or Source(self.reference.__module__, self.reference.__name__)

    @property
    def timed(self) -> dict[str, int]:
        """Return the sizes that are timed."""
        return {name: size.timed for name, size in self.sizes.items()}

    def drawn(self, random: torch.Generator) -> dict[str, int]:
        """Return hidden sizes, most of them no multiples of anything."""

        def between(low: int, high: int) -> int:
            return int(torch.randint(low, high + 1, (), generator=random))

        return {name: between(size.low, size.high) for name, size in self.sizes.items()}

    def sizes_of(self, inputs: Sequence[Tensor]) -> dict[str, int]:
        """Return the sizes of given inputs, of a task whose shapes have each size as it is."""
        names: Any = self.shapes({name: name for name in self.sizes})  # type: ignore[misc]
        return {
            name: length
            for shape, x in zip(names, inputs, strict=False)
            for name, length in zip(shape, x.shape, strict=False)
            if name in self.sizes
        }

    def moved(self, sizes: Sizes) -> float:
        """Return the bytes of all inputs and of the result."""
        shapes = (*self.shapes(sizes), self.result(sizes))
        return float(sum(map(math.prod, shapes)) * self.dtype.itemsize)


def softmax(x: Tensor) -> Tensor:
    """Return the softmax of rows, step by step."""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def torch_softmax(x: Tensor) -> Tensor:
    """Return the softmax of rows by torch's operator."""
    return F.softmax(x, -1)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return rows divided by their root mean square, times a weight."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def torch_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return the same by torch's operator."""
    return F.rms_norm(x, weight.shape, weight, EPS)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return rows with mean 0 and variance 1, times a weight, plus a bias."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(-1, keepdim=True) + EPS) * weight + bias


def torch_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the same by torch's operator."""
    return F.layer_norm(x, weight.shape, weight, bias, EPS)


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    """Return the gated activation of LLaMA's feed-forward layers."""
    return x * torch.sigmoid(x) * y


def gelu(x: Tensor) -> Tensor:
    """Return x times the normal distribution function."""
    return 0.5 * x * (1.0 + torch.erf(x * 0.5**0.5))


def torch_gelu(x: Tensor) -> Tensor:
    """Return the same by torch's operator."""
    return F.gelu(x)


def row_sum(x: Tensor) -> Tensor:
    """Return the sum of each row."""
    return x.sum(-1)


def cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    """Return for each row -log softmax(x) weighted by the distribution softmax(y)."""
    return -(torch.log_softmax(x, -1) * torch.softmax(y, -1)).sum(-1)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Return the product of two matrices."""
    return x @ y


EPS = 1e-5
_ROWS = {"rows": Size(4096, 1, 300), "columns": Size(4096, 16, 3000)}
_STEADY = tuple(d for d in DRAWS if d not in ("constant", "small", "sparse", "sorted"))
"""Distributions whose rows have a variance that rounding does not drown."""


def _matrix(sizes: Sizes) -> tuple[int, int]:
    return sizes["rows"], sizes["columns"]


def _vector(sizes: Sizes) -> tuple[int]:
    return (sizes["rows"],)


def _row_task(
    reference: Callable[..., Tensor],
    operations: float,
    vectors: int = 0,
    matrices: int = 1,
    draws: tuple[str, ...] = tuple(DRAWS),
    result: Callable[[Sizes], tuple[int, ...]] = _matrix,
    library: Callable[..., Tensor] | None = None,
) -> Task:
    """Return a task on matrices, and vectors as long as a row.

    Args:
        reference: what is computed.
        operations: for each element.
        vectors: the inputs that are vectors, after the matrices.
        matrices: the inputs that are matrices.
        draws: the distributions.
        result: the shape of the result.
        library: the function of this module that has one operator of torch compute it.
    """
    return Task(
        reference.__name__,
        _ROWS,
        lambda s: (_matrix(s),) * matrices + ((s["columns"],),) * vectors,
        result,
        reference,
        lambda s: operations * s["rows"] * s["columns"],
        draws=draws,
        alternatives={"library": Source(__name__, library.__name__)} if library else {},
    )


_PRODUCT = Task(
    "matmul",
    {"rows": Size(2048, 1, 200), "inner": Size(2048, 16, 400), "columns": Size(2048, 1, 200)},
    lambda s: ((s["rows"], s["inner"]), (s["inner"], s["columns"])),
    _matrix,
    matmul,
    lambda s: 2.0 * s["rows"] * s["inner"] * s["columns"],
    own=False,
    product=True,
)

_HEADS = {"heads": Size(32, 1, 3), "tokens": Size(2048, 1, 300), "width": Size(128, 16, 128)}
_MODERATE = ("normal", "uniform", "shifted", "negative", "sparse")
"""Distributions whose scores 16 bits can hold."""


def _of_heads(sizes: Sizes) -> tuple[int, int, int]:
    return sizes["heads"], sizes["tokens"], sizes["width"]


def _attention_task(
    reference: Callable[..., Tensor],
    library: Callable[..., Tensor],
    sizes: Mapping[str, Size],
    shapes: Callable[[Sizes], tuple[tuple[int, ...], ...]],
    result: Callable[[Sizes], tuple[int, ...]],
    flops: Callable[[Sizes], float],
) -> Task:
    source = Source(library.__module__, library.__name__)
    return Task(
        reference.__name__, sizes, shapes, result, reference, flops, draws=_MODERATE,
        product=True, alternatives={"library": source},
    )  # fmt: skip


_ATTENTION = (
    _attention_task(
        attention_tasks.attention,
        attention_tasks.torch_attention,
        _HEADS,
        lambda s: (_of_heads(s),) * 3,
        _of_heads,
        lambda s: 2.0 * s["heads"] * s["tokens"] ** 2 * s["width"],
    ),
    _attention_task(
        attention_tasks.attention_gradients,
        attention_tasks.torch_attention_gradients,
        _HEADS,
        lambda s: (_of_heads(s),) * 4,
        lambda s: (s["heads"], 3, s["tokens"] * s["width"]),
        lambda s: 5.0 * s["heads"] * s["tokens"] ** 2 * s["width"],
    ),
    _attention_task(
        attention_tasks.decoding,
        attention_tasks.torch_decoding,
        {"sequences": Size(64, 1, 4), "keys": Size(4096, 1, 3000), "width": Size(128, 16, 128)},
        lambda s: (
            *((s["sequences"], s["keys"], s["width"]),) * 2,
            (s["sequences"], attention_tasks.GROUP, s["width"]),
        ),
        lambda s: (s["sequences"], attention_tasks.GROUP, s["width"]),
        lambda s: 4.0 * s["sequences"] * attention_tasks.GROUP * s["keys"] * s["width"],
    ),
)

_RECURRENCES = (
    Task(
        "retention",
        {"tokens": Size(4096, 1, 300), "heads": Size(32, 1, 3), "width": Size(128, 16, 128)},
        lambda s: ((s["tokens"], s["heads"], s["width"]),) * 3,
        lambda s: (s["tokens"], s["heads"], s["width"]),
        recurrence_tasks.retention,
        # a state of width x width is read and written for each token
        lambda s: 4.0 * s["tokens"] * s["heads"] * s["width"] ** 2,
        dtype=torch.bfloat16, draws=_MODERATE, product=True,
    ),
    Task(
        "rwkv7",
        {"tokens": Size(256, 1, 80), "heads": Size(32, 1, 3)},
        lambda s: ((s["tokens"], s["heads"], recurrence_tasks.HEAD),) * 6,
        lambda s: (s["tokens"], s["heads"], recurrence_tasks.HEAD),
        recurrence_tasks.rwkv7,
        lambda s: 9.0 * s["tokens"] * s["heads"] * recurrence_tasks.HEAD**2,
        draws=("normal", "uniform"), own=False,
    ),
)  # fmt: skip

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _row_task(softmax, 4, library=torch_softmax),
        _row_task(rms_norm, 4, vectors=1, library=torch_rms_norm),
        _row_task(layer_norm, 7, vectors=2, draws=_STEADY, library=torch_layer_norm),
        _row_task(swiglu, 5, matrices=2),
        # in the tail, 1 + erf cancels: rows of one value there tell formulas apart, not honesty
        _row_task(gelu, 4, draws=tuple(d for d in DRAWS if d != "constant"), library=torch_gelu),
        _row_task(row_sum, 1, result=_vector),
        _row_task(cross_entropy, 9, matrices=2, result=_vector),
        _PRODUCT,
        *_ATTENTION,
        *_RECURRENCES,
    )
}
"""By name."""


def task_of(name: str, dtype: torch.dtype, sizes: Sizes) -> Task:
    """Return a task of the catalog with other timed sizes and another dtype.

    Raises:
        ValueError: if the catalog has no such task, or the task no such size.
    """
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}. There are: {', '.join(TASKS)}")
    task = TASKS[name]
    if unknown := set(sizes) - set(task.sizes):
        raise ValueError(f"{name} has no size {', '.join(sorted(unknown))}")
    timed = {
        key: Size(sizes.get(key, size.timed), size.low, size.high)
        for key, size in task.sizes.items()
    }
    return replace(task, dtype=dtype, sizes=timed)
