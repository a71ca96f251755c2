"""Choose the backend: the named one, or with `auto` the one that was measured fastest.

What this machine measured at the problem's spot decides (`gpudeck.accel.attention.learned`), else a
row of a table at its shape, else what is predicted from other rows. Only the description of a
problem is needed, no tensors.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import torch

from gpudeck.accel.attention import learned, prediction, table
from gpudeck.accel.attention.backends import BACKENDS, Direction
from gpudeck.accel.attention.prediction import Geometry
from gpudeck.accel.attention.problem import Problem, dtype_name
from gpudeck.accel.attention.spot import extras
from gpudeck.accel.lessons.mode import on_change
from gpudeck.accel.lessons.records import Measured
from gpudeck.accel.runtime.backend_names import check_name

NOT_FOR_AUTO = ("reference",)
DECODING = "decoding"
"""The backend for a few queries; it comes first where nothing like the problem was measured."""
POSSIBLE = 0.3
"""A backend that is expected to have less than this share of the best one's speed is not measured.

Expectations of windows and short rows were wrong by up to 2.6 times, and what is hopeless is left
out after its first calls.
"""

Basis = Literal["named", "measured here", "measured", "predicted", "order"]
"""Why a backend runs: the caller named it; it was measured fastest by this machine at such a call,
or by a table at this shape; it is expected to be fastest from other shapes; or it is the first
that can, because nothing like it was measured."""


@dataclass(frozen=True)
class Candidate:
    """A backend, the reason why it cannot compute the problem (or None), and its expected speed."""

    backend: str
    refusal: str | None
    tflops: float | None = None
    """TFLOP/s, measured or predicted; None without any measurement."""


@dataclass(frozen=True)
class Choice:
    """The backend that runs, the reason, and the other candidates."""

    backend: str
    reason: str
    candidates: tuple[Candidate, ...]
    direction: Direction = "forward"
    basis: Basis = "named"

    @property
    def is_measured(self) -> bool:
        """Return whether measurements of this very shape decided."""
        return self.basis in ("measured here", "measured")

    @property
    def tflops(self) -> float | None:
        """Return the expected TFLOP/s of the chosen backend."""
        return next(c.tflops for c in self.candidates if c.backend == self.backend)

    def __str__(self) -> str:
        lines = [f"{self.direction}: {self.backend} ({self.reason})"]
        for c in sorted(self.candidates, key=lambda c: (c.refusal is not None, -(c.tflops or 0.0))):
            kind = "measured" if self.is_measured else "expected"
            speed = "not measured here" if c.tflops is None else f"{c.tflops:.0f} TFLOP/s {kind}"
            lines.append(
                f"  {c.backend:<10} {speed if c.refusal is None else 'no: it ' + c.refusal}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Expectation:
    """What is known of the speed of backends."""

    basis: Basis
    rates: Mapping[str, float]
    """TFLOP/s."""
    lesson: Measured | None = None
    gpus: tuple[str, ...] = ()


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
        Candidate(name, b.refusal(problem, direction), speed.rates.get(name))
        for name, b in BACKENDS.items()
    )
    if backend == "auto":
        return _automatic(problem, candidates, direction, speed)
    if (why := refusal(problem, backend, direction)) is not None:
        able = [c.backend for c in candidates if c.refusal is None and c.backend != backend]
        what = "this" if direction == "forward" else "the backward pass of this"
        raise ValueError(
            f"backend {backend} cannot do {what}: it {why}. These can: {', '.join(able)}"
        )
    return Choice(backend, "named by the caller", candidates, direction)


on_change(choose.cache_clear)


def preferred(problem: Problem) -> tuple[str, ...]:
    """Return the order in which `auto` tries backends if nothing has been measured.

    `math` holds all scores in memory and therefore comes last.
    """
    if problem.device.type == "cpu":
        return ("flash", "math")
    if problem.bias != "none":  # ours, until others are measured
        return ("triton", "hopper", "cudnn", "efficient", "math", "flash", "fa4", "fa3")
    if few_queries(problem):
        return (DECODING, "triton", "flash", "cudnn", "efficient", "hopper", "fa4", "fa3", "math")
    if problem.dtype in (torch.float32, torch.float64):
        return ("efficient", "triton", "math")
    if problem.capability == (9, 0):
        return ("hopper", "cudnn", "fa4", "fa3", "flash", "triton", "efficient", "math")
    # PyTorch prefers cuDNN on datacentre Blackwell, too.
    if problem.capability is not None and problem.capability[0] == 10:
        return ("cudnn", "flash", "fa4", "triton", "efficient", "hopper", "math")
    return ("flash", "cudnn", "triton", "efficient", "fa4", "hopper", "math")


def few_queries(problem: Problem) -> bool:
    """Return whether a few queries read long keys, as in decoding."""
    return problem.seq_q <= table.FEW_QUERIES < problem.seq_k


def contenders(problem: Problem, direction: Direction) -> tuple[str, ...]:
    """Return the backends that could be the fastest, the present choice first.

    `math`, which holds all scores in memory, is one of them only where nothing else can.
    """
    choice = choose(problem, "auto", direction)
    able = [
        c
        for c in choice.candidates
        if c.refusal is None and c.backend not in NOT_FOR_AUTO and unloadable(c.backend) is None
    ]
    able = [c for c in able if c.backend != "math"] or able
    best = max((c.tflops for c in able if c.tflops is not None), default=0.0)
    # some are in no order, as the one for a few queries where there is one key
    order = [*preferred(problem), *BACKENDS]
    possible = [c for c in able if c.tflops is None or c.tflops >= POSSIBLE * best]
    possible.sort(
        key=lambda c: (c.backend != choice.backend, -(c.tflops or best), order.index(c.backend))
    )
    return tuple(c.backend for c in possible)


def _automatic(
    problem: Problem,
    candidates: tuple[Candidate, ...],
    direction: Direction,
    speed: Expectation,
) -> Choice:
    """Choose the first backend of the order that can be loaded; `math` always can."""
    refusals = {c.backend: c.refusal for c in candidates}
    rated = {
        c.backend: c.tflops
        for c in candidates
        if c.refusal is None and c.tflops is not None and c.backend not in NOT_FOR_AUTO
    }
    costs = speed.lesson.costs if speed.lesson else {name: -rate for name, rate in rated.items()}
    ranked = sorted(rated, key=costs.__getitem__)
    order = [*ranked, *(name for name in preferred(problem) if name not in rated)]
    if few_queries(problem) and speed.basis == "predicted" and DECODING not in rated:
        order.sort(key=lambda name: name != DECODING)
    for name in order:
        refusals[name] = refusals[name] or unloadable(name)
        if refusals[name] is None:
            break
    over = order[: order.index(name)]
    basis: Basis = speed.basis if name in rated else "order"
    if name in rated:
        reason = _reason(speed, rated, ranked[ranked.index(name) :])
    else:
        reason = f"the first of {', '.join(order)} that can do it"
    reason += "".join(f"; not {other}: it {refusals[other]}" for other in over)
    shown = tuple(dataclasses.replace(c, refusal=refusals[c.backend]) for c in candidates)
    return Choice(name, f"auto: {reason}", shown, direction, basis)


def _reason(speed: Expectation, rated: Mapping[str, float], ranked: list[str]) -> str:
    """Return why the first of `ranked` runs, and how fast the others are."""
    first, *behind = ranked
    if speed.lesson is not None:
        return speed.lesson.reason(ranked)
    then = "".join(f", {other} {rated[other]:.0f}" for other in behind)
    where = " and ".join(speed.gpus)
    how = "measured fastest on" if speed.basis == "measured" else "predicted from measurements on"
    return f"{how} {where}, {rated[first]:.0f} TFLOP/s{then}"


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


def _expected(p: Problem, direction: Direction) -> Expectation:
    """Return the TFLOP/s of each backend, by the measurements that are nearest.

    Of the tables only plain and causal shapes are looked up. What else a problem asks for is
    assumed to slow all backends down equally, until it is measured or predicted.
    """
    if (lesson := learned.found(p, direction)) is not None:
        return Expectation("measured here", lesson.tflops, lesson)
    if p.bias != "none":  # no table has masks or biases, which some kernels are far slower with
        return Expectation("predicted", {})
    rows, at = _rows(p, direction), _place(p)
    gpu = _gpu(p)
    same = [r for r in rows if r.place == at and (r.head_dim, r.heads // r.kv_heads) == _heads(p)]
    plain = not p.windowed and not extras(p) and p.mask in ("none", "square")
    if plain and any(r.gpu == gpu for r in same):
        own = sorted((r for r in same if r.gpu == gpu), key=partial(_apart, p), reverse=True)
        rates = {r.backend: r.tflops for r in own}  # the nearest rows come last
        return Expectation("measured", rates, gpus=(str(gpu),))
    alike = [name for name in (gpu, table.ALIKE.get(gpu or "")) if name is not None]
    if p.dtype.itemsize == 2 and (us := prediction.expected(alike, direction, _geometry(p))):
        flops = p.flops / 1e6 * (2.5 if direction == "backward" else 1.0)
        rates = {name: flops / t for name, t in us.items()}
        return Expectation("predicted", rates, gpus=prediction.coefficients().gpus)
    gpus = table.measured_on(rows, at)
    return Expectation("predicted", table.expected(rows, at), gpus=tuple(gpus))


def _apart(p: Problem, row: table.Row) -> float:
    """Return how many octaves a row at the problem's place is apart from it in heads."""
    return abs(math.log2(row.batch * row.heads) - math.log2(p.batch * p.heads))


def _heads(p: Problem) -> tuple[int, int]:
    return p.head_dim, p.heads // p.kv_heads


def _geometry(p: Problem) -> Geometry:
    sizes = (p.batch, p.heads, p.kv_heads, p.seq_q, p.seq_k, p.head_dim, p.left, p.right)
    return Geometry(*sizes, bool(p.softcap), p.bias != "none", p.ragged)


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
