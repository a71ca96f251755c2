"""Run a backend of `accel.attention` on one problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor

from accel.attention import Choice, Problem, attention, choose
from accel.attention.inputs import Inputs
from accel.attention.passes import backward
from accel.attention.problem import default_scale
from accel.result import Direction
from accel.runtime.capability import ComputeDevice
from accel.runtime.timing import copies_beyond_cache
from accel.workloads.grid import Shape
from accel.workloads.harness import require
from accel.workloads.inputs import Tensors, fresh

NAMED = "named by the user"


@dataclass(frozen=True)
class Case:
    """Hold one problem in one direction, with enough inputs to exceed the cache."""

    shape: Shape
    direction: Direction
    problem: Problem
    sets: tuple[Tensors, ...]
    solved: tuple[tuple[Tensor, Tensor], ...]
    """out and lse of each set, if the backward pass needs them."""


@dataclass(frozen=True)
class Contender:
    """Pair a Case with a backend that can compute it."""

    name: str
    """The requested name: `auto`, or a backend."""
    choice: Choice
    case: Case

    @property
    def backend(self) -> str:
        """Return the name of the backend that runs."""
        return self.choice.backend

    @property
    def reason(self) -> str:
        """Return why this backend runs."""
        return self.choice.reason if self.name == "auto" else NAMED

    def call(self) -> Callable[[], object]:
        """Return a function that runs one pass, with the inputs in turn."""
        if self.case.direction == "forward":
            turns = cycle(self.case.sets)
            return lambda: self._forward(next(turns))
        both = cycle(zip(self.case.sets, self.case.solved, strict=True))
        return lambda: self._backward(*next(both))

    def answers(self) -> dict[str, Tensor]:
        """Return the answers for the first inputs by their names."""
        x = self.case.sets[0]
        if self.case.direction == "forward":
            out, lse = attention(
                x.q, x.k, x.v, causal=self.case.shape.causal, backend=self.backend, return_lse=True
            )
            return {"out": out, "lse": lse}
        return dict(zip(("dq", "dk", "dv"), self._backward(x, self.case.solved[0]), strict=True))

    def _forward(self, x: Tensors) -> Tensor:
        return attention(x.q, x.k, x.v, causal=self.case.shape.causal, backend=self.name)

    def _backward(self, x: Tensors, solved: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return backward(x.dout, Inputs(x.q, x.k, x.v), *solved, self.case.problem, self.backend)[:3]


def problem_of(shape: Shape, direction: Direction, device: ComputeDevice) -> Problem:
    """Return the problem as dispatch sees it. Raises ValueError."""
    return Problem(
        shape.batch,
        shape.heads,
        shape.kv_heads,
        shape.seq,
        shape.seq,
        shape.head_dim,
        getattr(torch, shape.dtype),
        device.torch_device,
        device.capability,
        default_scale(shape.head_dim),
        grad=direction == "backward",
        right=0 if shape.causal else None,
    )


def pose(shape: Shape, direction: Direction, device: ComputeDevice, seed: int) -> Case:
    """Create the inputs. Raises OutOfMemory before anything is allocated."""
    size = shape.moved(direction)
    count = copies_beyond_cache(size, device.torch_device)
    require(device, size * count)
    sets = tuple(fresh(shape, device.torch_device, seed + i) for i in range(count))
    solved: tuple[tuple[Tensor, Tensor], ...] = ()
    if direction == "backward":
        solved = tuple(attention(x.q, x.k, x.v, causal=shape.causal, return_lse=True) for x in sets)
    return Case(shape, direction, problem_of(shape, direction, device), sets, solved)


def enter(name: str, case: Case, device: ComputeDevice) -> Contender:
    """Return the backend on a Case.

    Raises:
        ValueError: if the backend cannot compute it.
        OutOfMemory: if its scores do not fit into memory.
    """
    choice = choose(case.problem, name, case.direction)
    if choice.backend == "math":
        # the scores and their softmax, in float32
        require(device, 2 * 4.0 * case.shape.scores / case.problem.dtype.itemsize)
    return Contender(name, choice, case)
