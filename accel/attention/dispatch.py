"""Choose the backend: the named one, or with `auto` the one that was measured fastest.

Only the description of a problem is needed, no tensors.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache

import torch

from accel.attention import table
from accel.attention.backends import BACKENDS, Direction
from accel.attention.problem import Problem, dtype_name
from accel.runtime.backend_names import check_name

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
    check_name(backend, BACKENDS)
    speed = _expected(problem, direction)
    candidates = tuple(
        Candidate(name, b.refusal(problem, direction), speed.get(name))
        for name, b in BACKENDS.items()
    )
    if backend == "auto":
        return _automatic(problem, candidates, direction)
    if (why := refusal(problem, backend, direction)) is not None:
        able = [c.backend for c in candidates if c.refusal is None and c.backend != backend]
        what = "this" if direction == "forward" else "the backward pass of this"
        raise ValueError(
            f"backend {backend} cannot do {what}: it {why}. These can: {', '.join(able)}"
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
        return ("triton", "flash", "cudnn", "efficient", "hopper", "fa4", "fa3", "math")
    if problem.dtype in (torch.float32, torch.float64):
        return ("efficient", "triton", "math")
    if problem.capability == (9, 0):
        return ("hopper", "cudnn", "fa4", "fa3", "flash", "triton", "efficient", "math")
    # PyTorch prefers cuDNN on datacentre Blackwell, too.
    if problem.capability is not None and problem.capability[0] == 10:
        return ("cudnn", "flash", "fa4", "triton", "efficient", "hopper", "math")
    return ("flash", "cudnn", "triton", "efficient", "fa4", "hopper", "math")


def _automatic(problem: Problem, candidates: tuple[Candidate, ...], direction: Direction) -> Choice:
    """Choose the first backend of the order that can be loaded; `math` always can."""
    refusals = {c.backend: c.refusal for c in candidates}
    rated = {
        c.backend: c.tflops
        for c in candidates
        if c.refusal is None and c.tflops is not None and c.backend not in NOT_FOR_AUTO
    }
    measured = sorted(rated, key=lambda name: -rated[name])
    order = [*measured, *(name for name in preferred(problem) if name not in rated)]
    for name in order:
        refusals[name] = refusals[name] or unloadable(name)
        if refusals[name] is None:
            break
    over = order[: order.index(name)]
    if name in rated:
        behind = measured[len(over) + 1 :]
        then = "".join(f", {other} {rated[other]:.0f}" for other in behind)
        where = " and ".join(table.measured_on(_rows(problem, direction), _place(problem)))
        reason = f"measured fastest on {where}, {rated[name]:.0f} TFLOP/s{then}"
    else:
        reason = f"the first of {', '.join(order)} that can do it"
    reason += "".join(f"; not {other}: it {refusals[other]}" for other in over)
    shown = tuple(dataclasses.replace(c, refusal=refusals[c.backend]) for c in candidates)
    return Choice(name, f"auto: {reason}", shown, direction)


def refusal(problem: Problem, backend: str, direction: Direction) -> str | None:
    """Return why a backend cannot compute the pass on this machine, or None if it can."""
    return BACKENDS[backend].refusal(problem, direction) or unloadable(backend)


@lru_cache(maxsize=64)
def unloadable(backend: str) -> str | None:
    """Return why a backend's code cannot be loaded, or None; importing some takes seconds."""
    try:
        BACKENDS[backend].load()
    except Exception as e:  # noqa: BLE001 - a broken installation may raise anything
        message = str(e).partition("\n")[0]
        return f"cannot be loaded: {type(e).__name__}" + (f": {message}" if message else "")
    return None


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
