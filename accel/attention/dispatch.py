"""Choose the backend: the named one, or with `auto` the one that was measured fastest.

Only the description of a problem is needed, no tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from accel.attention import table
from accel.attention.backends import BACKENDS, Direction
from accel.attention.problem import Problem, dtype_name

NOT_FOR_AUTO = ("reference",)


@dataclass(frozen=True)
class Candidate:
    """A backend, the reason why it cannot compute the problem (or None), and its expected speed."""

    backend: str
    refusal: str | None
    tflops: float | None = None
    """Expected TFLOP/s, interpolated from measurements on this type of GPU; None without any."""


@dataclass(frozen=True)
class Choice:
    """The backend that runs, the reason, and the other candidates."""

    backend: str
    reason: str
    candidates: tuple[Candidate, ...]
    direction: Direction = "forward"

    @property
    def tflops(self) -> float | None:
        """Return the expected TFLOP/s of the chosen backend."""
        return next(c.tflops for c in self.candidates if c.backend == self.backend)

    def __str__(self) -> str:
        lines = [f"{self.direction}: {self.backend} ({self.reason})"]
        for c in sorted(self.candidates, key=lambda c: (c.refusal is not None, -(c.tflops or 0.0))):
            speed = "not measured here" if c.tflops is None else f"{c.tflops:.0f} TFLOP/s expected"
            lines.append(
                f"  {c.backend:<10} {speed if c.refusal is None else 'no: it ' + c.refusal}"
            )
        return "\n".join(lines)


@lru_cache(maxsize=4096)
def choose(problem: Problem, backend: str = "auto", direction: Direction = "forward") -> Choice:
    """Choose the backend for one pass of `problem`.

    Raises:
        ValueError: if no backend has this name, or if it cannot compute the problem; the message
            says why and which backends can.
    """
    if backend != "auto" and backend not in BACKENDS:
        raise ValueError(
            f"no backend is called {backend!r}. There are: auto, {', '.join(BACKENDS)}"
        )
    speed = _expected(problem, direction)
    candidates = tuple(
        Candidate(name, b.refusal(problem, direction), speed.get(name))
        for name, b in BACKENDS.items()
    )
    able = {c.backend: c for c in candidates if c.refusal is None}
    if backend == "auto":
        return _automatic(
            problem,
            {name: c for name, c in able.items() if name not in NOT_FOR_AUTO},
            candidates,
            direction,
        )
    if backend not in able:
        refusal = next(c.refusal for c in candidates if c.backend == backend)
        what = "this" if direction == "forward" else "the backward pass of this"
        raise ValueError(
            f"backend {backend} cannot do {what}: it {refusal}. These can: {', '.join(able)}"
        )
    return Choice(backend, "named by the caller", candidates, direction)


def preferred(problem: Problem) -> tuple[str, ...]:
    """Return the order in which `auto` tries backends if nothing has been measured.

    `math` holds all scores in memory and therefore comes last.
    """
    if problem.device.type == "cpu":
        return ("flash", "math")
    few_queries = problem.seq_q <= table.FEW_QUERIES < problem.seq_k
    if few_queries:
        return ("triton", "flash", "cudnn", "efficient", "hopper", "fa4", "math")
    if problem.dtype in (torch.float32, torch.float64):
        return ("efficient", "triton", "math")
    if problem.capability == (9, 0):
        return ("hopper", "cudnn", "fa4", "flash", "triton", "efficient", "math")
    # PyTorch prefers cuDNN on datacentre Blackwell, too.
    if problem.capability is not None and problem.capability[0] == 10:
        return ("cudnn", "flash", "fa4", "triton", "efficient", "hopper", "math")
    return ("flash", "cudnn", "triton", "efficient", "fa4", "hopper", "math")


def _automatic(
    problem: Problem,
    able: dict[str, Candidate],
    candidates: tuple[Candidate, ...],
    direction: Direction,
) -> Choice:
    rated = {name: c.tflops for name, c in able.items() if c.tflops is not None}
    if rated:
        order = sorted(rated, key=lambda name: -rated[name])
        then = "".join(f", {name} {rated[name]:.0f}" for name in order[1:])
        where = " and ".join(table.measured_on(_rows(problem, direction), _place(problem)))
        return Choice(
            order[0],
            f"auto: measured fastest on {where}, {rated[order[0]]:.0f} TFLOP/s{then}",
            candidates,
            direction,
        )
    order = list(preferred(problem))
    name = next(name for name in order if name in able)  # math never refuses
    refusals = {c.backend: c.refusal for c in candidates}
    passed_over = "".join(
        f"; not {other}: it {refusals[other]}" for other in order[: order.index(name)]
    )
    return Choice(
        name,
        f"auto: the first of {', '.join(order)} that can do it{passed_over}",
        candidates,
        direction,
    )


def _expected(p: Problem, direction: Direction) -> dict[str, float]:
    """Return the expected TFLOP/s of each backend from measurements of plain and causal shapes.

    A window or a softcap is assumed to slow all backends down equally.
    """
    return table.expected(_rows(p, direction), _place(p))


def _rows(p: Problem, direction: Direction) -> tuple[table.Row, ...]:
    gpu = _gpu(p)
    if gpu is None or p.dtype.itemsize != 2:
        return ()
    return table.rows_of(gpu, direction, dtype_name(p.dtype), p.head_dim, p.right == 0)


def _place(p: Problem) -> table.Place:
    return table.place(p.batch * p.heads, p.seq_q, p.seq_k)


def _gpu(p: Problem) -> str | None:
    """Return the name of the problem's GPU, or None if it is not in this machine."""
    return (
        torch.cuda.get_device_name(p.device)
        if p.device.type == "cuda" and torch.cuda.is_available()
        else None
    )
