"""Choose the backend: the named one, or with `auto` the one that was measured fastest.

What this machine measured at the problem's spot decides (`gpudeck.accel.attention.lessons`), else a
row of a table at its shape, else what is predicted from other rows. Only the description of a
problem is needed, no tensors. Backends are asked in the order of what is expected of them until one
can; the others are asked when a choice is explained.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Literal

import torch

from gpudeck.accel.attention import backend_table, lessons, prediction, table
from gpudeck.accel.attention.backends import BACKENDS
from gpudeck.accel.attention.prediction import Geometry
from gpudeck.accel.attention.problem import Problem, Variant, dtype_name
from gpudeck.accel.lessons.records import Direction, Measured, explain_rates
from gpudeck.accel.lessons.store import forget_choices, on_change
from gpudeck.accel.runtime.refusals import NAMED, CannotCompute, check_name
from gpudeck.language.text import Text, join_texts, joined, phrase

NOT_FOR_AUTO = ("reference",)
DECODING = "decoding"
"""The backend for a few queries; it comes first where nothing like the problem was measured."""
_LACKING: dict[Variant, Text] = {
    "lse_grad": phrase("takes no gradient of the log-sum-exp"),
    "alibi": phrase("takes no ALiBi"),
    "blocks": phrase("takes no block mask"),
}
POSSIBLE = 0.3
"""A backend that is expected to have less than this share of the best one's speed is not measured.

Expectations of windows and short rows were wrong by up to 2.6 times, and what is hopeless is left
out after its first calls.
"""

_FAILED: dict[tuple[str, Direction, str], Text] = {}
"""Why a backend failed when it ran, by its name, the pass and the place of the problem."""

Basis = Literal["named", "measured here", "measured", "predicted", "order"]
"""Why a backend runs: the caller named it; it was measured fastest by this machine at such a call,
or by a table at this shape; it is expected to be fastest from other shapes; or it is the first
that can, because nothing like it was measured."""


@dataclass(frozen=True)
class Candidate:
    """A backend, the reason why it cannot compute the problem (or None), and its expected speed."""

    backend: str
    refusal: Text | None
    tflops: float | None = None
    """TFLOP/s, measured or predicted; None without any measurement."""


Explanation = tuple[Text, tuple[Candidate, ...]]
"""The reason of a choice, and all candidates."""


@dataclass(frozen=True)
class Choice:
    """The backend that runs, the reason, and the other candidates."""

    backend: str
    explain: Callable[[], Explanation] = field(compare=False, repr=False)
    """Finds the reason and the candidates, when somebody asks."""
    direction: Direction = "forward"
    basis: Basis = "named"

    @cached_property
    def _explanation(self) -> Explanation:
        return self.explain()

    @property
    def reason(self) -> Text:
        """Return why this backend runs."""
        return self._explanation[0]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return all backends, with why they cannot do it or how fast they are."""
        return self._explanation[1]

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
                f"  {c.backend:<10} {speed if c.refusal is None else f'no: it {c.refusal}'}"
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

    def rank(self, names: Iterable[str]) -> list[str]:
        """Return those that are rated and that `auto` may choose, the fastest first."""
        costs = self.lesson.costs if self.lesson else {n: -rate for n, rate in self.rates.items()}
        rated = [name for name in names if name in self.rates and name not in NOT_FOR_AUTO]
        return sorted(rated, key=costs.__getitem__)


@lru_cache(maxsize=4096)
def choose(problem: Problem, backend: str = "auto", direction: Direction = "forward") -> Choice:
    """Choose the backend for one pass of `problem`.

    Raises:
        ValueError: if no backend has this name, or if it cannot compute the problem; the message
            says why and which backends can.
    """
    if backend == "auto":
        speed = _expect(problem, direction)
        order = _order(problem, speed, speed.rank(BACKENDS))
        name = next((name for name in order if refuse(problem, name, direction) is None), None)
        if name is None:
            whys = (f"{name}: it {refuse(problem, name, direction)}" for name in prefer(problem))
            raise ValueError(f"no backend can compute {problem}. {'; '.join(whys)}")
        basis: Basis = speed.basis if name in speed.rates else "order"
        explain = partial(_explain, problem, direction, speed, name)
        return Choice(name, explain, direction, basis)
    check_name(backend, BACKENDS)
    if (why := refuse(problem, backend, direction)) is not None:
        others = (name for name in BACKENDS if name != backend)
        able = [name for name in others if rule_out(problem, name, direction) is None]
        raise CannotCompute(backend, why, able, backward=direction == "backward")
    return Choice(backend, partial(_explain_named, problem, direction), direction)


on_change(choose.cache_clear)


def prefer(problem: Problem) -> tuple[str, ...]:
    """Return the order in which `auto` tries backends if nothing has been measured."""
    if problem.device.type == "cpu":
        return backend_table.order("cpu")
    if problem.capability == (7, 5):
        return backend_table.order("turing")
    if problem.bias != "none":
        return backend_table.order("bias")
    if lessons.has_few_queries(problem):
        return backend_table.order("few_queries")
    if problem.dtype in (torch.float32, torch.float64):
        return backend_table.order("full_precision")
    if problem.capability == (9, 0):
        return backend_table.order("hopper")
    blackwell = problem.capability is not None and problem.capability[0] == 10
    return backend_table.order("blackwell" if blackwell else "other_gpu")


def contenders(problem: Problem, direction: Direction) -> tuple[str, ...]:
    """Return the backends that could be the fastest, the present choice first.

    `math`, which holds all scores in memory, is one of them only where nothing else can.
    """
    choice = choose(problem, "auto", direction)
    able = [
        c
        for c in choice.candidates
        if c.refusal is None and c.backend not in NOT_FOR_AUTO and fail_to_load(c.backend) is None
    ]
    able = [c for c in able if c.backend != "math"] or able
    best = max((c.tflops for c in able if c.tflops is not None), default=0.0)
    # some are in no order, as the one for a few queries where there is one key
    order = [*prefer(problem), *BACKENDS]
    possible = [c for c in able if c.tflops is None or c.tflops >= POSSIBLE * best]
    possible.sort(
        key=lambda c: (c.backend != choice.backend, -(c.tflops or best), order.index(c.backend))
    )
    return tuple(c.backend for c in possible)


def _order(problem: Problem, speed: Expectation, ranked: list[str]) -> Iterator[str]:
    """Yield the backends in the order in which `auto` tries them: the rated ones, then others."""
    unlike = lessons.has_few_queries(problem) and speed.basis == "predicted"
    first = [DECODING] if unlike and DECODING not in ranked else []
    yield from (*first, *ranked)
    yield from (name for name in prefer(problem) if name not in (*first, *ranked))


def _explain(
    problem: Problem, direction: Direction, speed: Expectation, chosen: str
) -> Explanation:
    """Return why `auto` chose a backend, and the candidates."""
    refusals = {name: rule_out(problem, name, direction) for name in BACKENDS}
    ranked = speed.rank(name for name, why in refusals.items() if why is None)
    order = list(_order(problem, speed, ranked))
    over = order[: order.index(chosen)]
    refusals |= {name: refuse(problem, name, direction) for name in over}
    if chosen in ranked:
        reason = _reason(speed, ranked[ranked.index(chosen) :])
    else:
        reason = phrase("the first of {names} that can do it", names=joined(order))
    passed_over = (
        phrase("not {backend}: it {refusal}", backend=other, refusal=why)
        for other in over
        if (why := refusals[other]) is not None
    )
    sub = join_texts((reason, *passed_over))
    return phrase("auto: {sub}", sub=sub), _candidates(refusals, speed)


def _explain_named(problem: Problem, direction: Direction) -> Explanation:
    refusals = {name: rule_out(problem, name, direction) for name in BACKENDS}
    return NAMED, _candidates(refusals, _expect(problem, direction))


def _candidates(refusals: Mapping[str, Text | None], speed: Expectation) -> tuple[Candidate, ...]:
    return tuple(Candidate(name, why, speed.rates.get(name)) for name, why in refusals.items())


def _reason(speed: Expectation, ranked: list[str]) -> Text:
    """Return why the first of `ranked` runs, and how fast the others are."""
    if speed.lesson is not None:
        return speed.lesson.reason(ranked)
    return explain_rates(speed.gpus, speed.rates, ranked, speed.basis == "measured")


def refuse(problem: Problem, backend: str, direction: Direction) -> Text | None:
    """Return why a backend cannot compute the pass on this machine, or None if it can."""
    return rule_out(problem, backend, direction) or fail_to_load(backend)


def rule_out(problem: Problem, backend: str, direction: Direction) -> Text | None:
    """Return why a backend cannot compute the pass, or None if it can where it can be loaded."""
    asked = BACKENDS[backend]
    lacking = [
        _LACKING[variant]
        for variant in problem.variants
        if variant not in asked.variants and (variant != "lse_grad" or direction == "backward")
    ]
    if refused := [*lacking, *asked.rules(problem, direction)]:
        return join_texts(refused)
    return _FAILED.get((backend, direction, lessons.place(problem))) or asked.missing()


def is_able(problem: Problem, direction: Direction) -> bool:
    """Return whether `auto` has a backend for the pass."""
    able = (name for name in BACKENDS if name not in NOT_FOR_AUTO)
    return any(refuse(problem, name, direction) is None for name in able)


def pass_over(problem: Problem, backend: str, direction: Direction, error: Exception) -> None:
    """Leave a backend that failed when it ran out from now on, at problems like this one, and warn
    of it."""
    why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    warnings.warn(
        f"attention goes on without {backend}, which failed in the {direction} pass at {problem}:"
        f" {why}",
        stacklevel=2,
    )
    _FAILED[backend, direction, lessons.place(problem)] = phrase(
        "failed when it ran: {quote}", quote=why
    )
    forget_choices()


@lru_cache(maxsize=64)
def fail_to_load(backend: str) -> Text | None:
    """Return why a backend's code cannot be loaded, or None; importing some takes seconds."""
    try:
        BACKENDS[backend].load()
    except Exception as e:  # noqa: BLE001 - a broken installation may raise anything
        message = str(e).partition("\n")[0]
        quote = ": ".join(filter(None, (type(e).__name__, message)))
        return phrase("cannot be loaded: {quote}", quote=quote)
    return None


def _expect(p: Problem, direction: Direction) -> Expectation:
    """Return the TFLOP/s of each backend, by the measurements that are nearest.

    Of the tables only plain and causal shapes are looked up. What else a problem asks for is
    assumed to slow all backends down equally, until it is measured or predicted; but of those whose
    output has to be scaled for a sink, and is rounded again, nothing is expected.
    """
    if (lesson := lessons.find(p, direction)) is not None:
        return Expectation("measured here", lesson.tflops, lesson)
    if p.bias != "none":  # no table has masks or biases, which some kernels are far slower with
        return Expectation("predicted", {})
    rows, at = _rows(p, direction), _place(p)
    gpu = _gpu(p)
    same = [r for r in rows if r.place == at and (r.head_dim, r.heads // r.kv_heads) == _heads(p)]
    plain = not p.windowed and not lessons.name_extras(p) and p.mask in ("none", "square")
    if plain and any(r.gpu == gpu for r in same):
        own = sorted((r for r in same if r.gpu == gpu), key=partial(_apart, p), reverse=True)
        rates = {r.backend: r.tflops for r in own}  # the nearest rows come last
        return Expectation("measured", rates, gpus=(str(gpu),))
    alike = [name for name in (gpu, table.ALIKE.get(gpu or "")) if name is not None]
    if p.dtype.itemsize == 2 and (us := prediction.expect(alike, direction, _geometry(p))):
        flops = p.flops / 1e6 * (2.5 if direction == "backward" else 1.0)
        rates = {name: flops / t for name, t in us.items()}
        gpus = prediction.coefficients().gpus
    else:
        rates, gpus = table.expect(rows, at), tuple(table.find_gpus(rows, at))
    if p.sink and direction == "forward":
        rates = {name: rate for name, rate in rates.items() if BACKENDS[name].adds_sink}
    return Expectation("predicted", rates, gpus=gpus)


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
