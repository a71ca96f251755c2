"""Choose a strategy by what it is predicted to cost, or take the one that is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpudeck.accel.distributed.cost import Links, Sizes, seconds
from gpudeck.accel.distributed.problem import Problem
from gpudeck.accel.distributed.strategies import gather, hybrid, mesh, ring, ulysses
from gpudeck.accel.distributed.strategies.base import Strategy
from gpudeck.accel.runtime.refusals import NAMED
from gpudeck.language.text import Text, phrase

Pass = Literal["forward", "backward"]

STRATEGIES: dict[str, Strategy] = {
    "gather": gather,
    "ulysses": ulysses,
    "ring": ring,
    "mesh": mesh,
    "hybrid": hybrid,
}


@dataclass(frozen=True)
class Candidate:
    """A strategy, the reason why it cannot be used (or None), and its predicted seconds."""

    strategy: str
    refusal: Text | None
    seconds: float | None = None


@dataclass(frozen=True)
class Choice:
    """The strategy of one pass, the reason, and the other candidates."""

    strategy: str
    reason: Text
    candidates: tuple[Candidate, ...]
    direction: Pass = "forward"
    exchange: str = ""
    """How tensors travelled, if it is known already."""

    @property
    def seconds(self) -> float:
        """Return the predicted seconds of the strategy."""
        return next(c.seconds or 0.0 for c in self.candidates if c.strategy == self.strategy)

    def __str__(self) -> str:
        lines = [f"{self.direction}: {self.strategy} ({self.reason})"]
        order = sorted(self.candidates, key=lambda c: (c.refusal is not None, c.seconds or 0.0))
        for c in order:
            text = f"{1e3 * c.seconds:.3g} ms predicted" if c.seconds is not None else ""
            lines.append(
                f"  {c.strategy:<8} {text if c.refusal is None else f'no: it {c.refusal}'}"
            )
        return "\n".join(lines)


def choose(
    problem: Problem,
    sizes: Sizes,
    links: Links,
    strategy: str = "auto",
    direction: Pass = "forward",
) -> Choice:
    """Choose the strategy of one pass.

    Raises:
        ValueError: if no strategy has this name, or if it cannot divide the problem.
    """
    if strategy != "auto" and strategy not in STRATEGIES:
        raise ValueError(f"strategy is one of auto, {', '.join(STRATEGIES)}; got {strategy!r}")
    candidates = tuple(_candidate(name, problem, sizes, links, direction) for name in STRATEGIES)
    able = [c for c in candidates if c.refusal is None]
    if strategy == "auto":
        best = min(able, key=lambda c: c.seconds or 0.0)
        return Choice(
            best.strategy,
            phrase("auto: {sub}", sub=links.reason),
            candidates,
            direction,
        )
    found = next(c for c in candidates if c.strategy == strategy)
    if found.refusal is not None:
        raise ValueError(
            f"strategy {strategy} cannot divide this: it {found.refusal}. These can:"
            f" {', '.join(c.strategy for c in able)}"
        )
    return Choice(strategy, NAMED, candidates, direction)


def _candidate(
    name: str, problem: Problem, sizes: Sizes, links: Links, direction: Pass
) -> Candidate:
    refusal = STRATEGIES[name].refusal(problem, sizes.heads, sizes.kv_heads)
    if refusal is not None:
        return Candidate(name, refusal)
    return Candidate(
        name, None, seconds(name, problem.size, problem.tokens, sizes, links, direction)
    )
