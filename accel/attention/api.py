"""The operation: validate, choose a backend, run it. What ran is named, and is never another than was asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, overload

from torch import Tensor

from accel.attention.backends import TORCH_BACKENDS
from accel.attention.problem import Backend, Candidate, Choice, Problem, describe
from accel.attention.reference import reference


class Reference:
    """The float64 oracle, as a backend like the others; never chosen by `auto`."""

    name = "reference"

    def refusal(self, problem: Problem) -> None:
        """None: it solves every valid problem."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
        """Computed in float64, returned in the dtype of q."""
        return reference(q, k, v, causal=problem.causal, scale=problem.scale).to(q.dtype)


_ALL: tuple[Backend, ...] = (*TORCH_BACKENDS, Reference())
BACKENDS = {backend.name: backend for backend in _ALL}


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    backend: str = ...,
    return_choice: Literal[False] = ...,
) -> Tensor: ...
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., scale: float | None = ..., backend: str = ..., return_choice: Literal[True]
) -> tuple[Tensor, Choice]: ...
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None, backend: str = "auto", return_choice: bool = False
) -> Tensor | tuple[Tensor, Choice]:
    """softmax(q kᵀ · scale) v, exactly, with gradients.

    q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D], all float16, bfloat16 or float32 on one CPU or CUDA device; Hkv divides H (grouped or
    multi-query heads). `causal` is aligned bottom-right: the last query sees every key; a query that sees none gives zeros. `scale` is
    1/sqrt(D) unless given. `backend` is `auto` or a name in BACKENDS. Returns [B,H,Sq,D] in the dtype of q, with `return_choice` also the
    Choice. Raises ValueError for inputs that do not fit together, and for a named backend that cannot solve the problem.
    """
    problem = describe(q, k, v, causal=causal, scale=scale)
    choice = choose(problem, backend)
    out = _zeros(q, k, v) if problem.empty else BACKENDS[choice.backend](q, k, v, problem)
    return (out, choice) if return_choice else out


@lru_cache(maxsize=1024)
def choose(problem: Problem, backend: str = "auto") -> Choice:
    """Which backend solves `problem`: the one named, or for `auto` the first of `preferred` that can. Needs no tensors.

    Raises ValueError where there is no such backend, or where it cannot, saying why and which can.
    """
    if backend != "auto" and backend not in BACKENDS:
        raise ValueError(f"no backend is called {backend!r}. There are: auto, {', '.join(BACKENDS)}")
    candidates = tuple(Candidate(name, b.refusal(problem)) for name, b in BACKENDS.items())
    refusals = {c.backend: c.refusal for c in candidates}
    if backend == "auto":
        return _automatic(problem, refusals, candidates)
    if refusals[backend] is not None:
        able = ", ".join(name for name, why in refusals.items() if why is None)
        raise ValueError(f"backend {backend} cannot do this: it {refusals[backend]}. These can: {able}")
    return Choice(backend, "named by the caller", candidates)


def preferred(problem: Problem) -> tuple[str, ...]:
    """The order `auto` tries. `math` holds all scores in memory, and comes last."""
    if problem.device.type == "cpu":
        return ("flash", "math")
    # On Hopper cuDNN was the fastest of torch's kernels at every length measured; torch prefers it there and on datacentre Blackwell too.
    if problem.capability is not None and problem.capability[0] in (9, 10):
        return ("cudnn", "flash", "efficient", "math")
    return ("flash", "cudnn", "efficient", "math")


def _zeros(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The answer where there is nothing to compute. The sums over nothing tie it to its inputs, whose gradients are zeros, not None."""
    return q.new_zeros(q.shape) + (q[:, :, :0].sum() + k[:, :, :0].sum() + v[:, :, :0].sum())


def _automatic(problem: Problem, refusals: dict[str, str | None], candidates: tuple[Candidate, ...]) -> Choice:
    order = preferred(problem)
    name = next(name for name in order if refusals[name] is None)  # math refuses nothing
    passed_over = "".join(f"; not {other}: it {refusals[other]}" for other in order[: order.index(name)])
    return Choice(name, f"auto: the first of {', '.join(order)} that can do it{passed_over}", candidates)
