"""Run a backend of `accel.attention`, or attention in FP8, on one problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

import msgspec
import torch
from torch import Tensor

from gpudeck.accel.attention import BACKENDS, Choice, Problem, attention, choose, dispatch, fp8
from gpudeck.accel.attention.backends.base import Layout
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.passes import backward, prepare
from gpudeck.accel.attention.problem import default_scale
from gpudeck.accel.result import Cell, Direction
from gpudeck.accel.runtime.capability import ComputeDevice
from gpudeck.accel.runtime.graphs import Captured
from gpudeck.accel.runtime.refusals import CannotCompute
from gpudeck.accel.runtime.timing import copies_beyond_cache
from gpudeck.accel.workloads.check import Oracle, nearest, worst_error
from gpudeck.accel.workloads.grid import Shape
from gpudeck.accel.workloads.harness import require
from gpudeck.accel.workloads.inputs import Tensors, fresh
from gpudeck.language.text import Text, phrase

NAMED = phrase("named by the user")
FP8 = {"fp8": "hopper", "fp8-emulation": "emulation"}
"""The contenders in FP8, and the backends of `fp8_attention` that they are."""


Solved = tuple[Tensor, Tensor]
"""out and lse."""


@dataclass(frozen=True)
class Case:
    """Hold one problem in one direction, with enough inputs to exceed the cache."""

    shape: Shape
    direction: Direction
    problem: Problem
    sets: tuple[Tensors, ...]
    solved: tuple[Solved, ...]
    """The results of each set's forward pass, if the backward pass needs them."""

    def laid_out(self, layout: Layout) -> Case:
        """Return the same problem with its tensors in a layout; they are copied once for all."""
        if layout == "bhsd":
            return self
        if layout not in self._copies:
            sets = tuple(Tensors(*map(rows_first, x)) for x in self.sets)
            solved = tuple((rows_first(out), lse) for out, lse in self.solved)
            self._copies[layout] = dataclasses.replace(self, sets=sets, solved=solved)
        return self._copies[layout]

    _copies: dict[Layout, Case] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Contender:
    """Pair a Case with a backend that can compute it.

    A named backend gets its tensors in its own layout and is called without `attention` around it;
    `auto` and FP8 are called as users call them, so that FP8 includes the rounding of q, k and v.
    """

    name: str
    """The requested name: `auto`, a backend, or one of FP8."""
    choice: Choice
    case: Case

    @property
    def backend(self) -> str:
        """Return the name of the backend that runs."""
        return self.choice.backend

    @property
    def reason(self) -> Text:
        """Return why this backend runs."""
        return self.choice.reason if self.name == "auto" else NAMED

    def call(self) -> Callable[[], object]:
        """Return a function that runs one pass, with the inputs in turn."""
        turns = cycle(self._passes())

        def one() -> object:
            return next(turns)()

        return one

    def several(self) -> tuple[Callable[[], object], int]:
        """Return a function that runs several passes with different inputs, and their number.

        On a GPU it replays a CUDA graph of one pass on each of the inputs, so that neither the
        host's time nor the allocation of outputs counts. On a CPU it runs a single pass.

        Raises:
            RuntimeError: if the backend cannot be captured in a graph.
        """
        if self.case.problem.device.type != "cuda":
            return self.call(), 1
        passes = self._passes()

        def run() -> None:
            for one in passes:
                one()

        return Captured(run, self.case.problem.device), len(passes)

    def answers(self) -> dict[str, Tensor]:
        """Return the answers for the first inputs by their names."""
        names = ("out", "lse") if self.case.direction == "forward" else ("dq", "dk", "dv")
        return dict(zip(names, self._passes()[0](), strict=True))

    def checked(self, cell: Cell, oracle: Oracle) -> Cell:
        """Return the cell with the checks of the answers for the first inputs."""
        checks = oracle.check(self.answers(), fp8=self.name in FP8)
        return msgspec.structs.replace(cell, checks=nearest(checks), error=worst_error(checks))

    def _passes(self) -> list[Callable[[], tuple[Tensor, ...]]]:
        """Return a function for each of the inputs that runs the pass on it."""
        whole = self.name == "auto" or self.name in FP8
        case = self.case.laid_out("bhsd" if whole else BACKENDS[self.backend].layout)
        problem = case.problem
        if case.direction == "backward":
            return [
                partial(_backward, x, solved, problem, self.backend)
                for x, solved in zip(case.sets, case.solved, strict=True)
            ]
        if whole:
            return [partial(forward, x, case.shape, self.name) for x in case.sets]
        inputs = [Inputs(x.q, x.k, x.v) for x in case.sets]
        if (run := prepare(inputs[0], problem, self.backend)) is not None:
            return [partial(run, x.q, x.k, x.v) for x in inputs]
        return [partial(BACKENDS[self.backend].forward, x, problem) for x in inputs]


def forward(x: Tensors, shape: Shape, name: str) -> Solved:
    """Compute attention as users call it, by `auto`, a backend or one of FP8."""
    out, lse = attention(
        x.q, x.k, x.v, causal=shape.causal, return_lse=True, backend=FP8.get(name, name),
        precision="fp8" if name in FP8 else None,
    )  # fmt: skip
    return out, lse


def refusal(problem: Problem, name: str, direction: Direction) -> Text | None:
    """Return why a named contender cannot compute a pass, or None."""
    if name not in FP8:
        return dispatch.refuse(problem, name, direction)
    if direction == "backward":
        return phrase("has no backward pass")
    return fp8.refusal(problem, fp8.BACKENDS[FP8[name]])


def chosen(problem: Problem, name: str, direction: Direction) -> Choice:
    """Choose what computes a pass.

    Raises:
        ValueError: if the named contender cannot.
    """
    if name not in FP8:
        return choose(problem, name, direction)
    if (why := refusal(problem, name, direction)) is not None:
        raise CannotCompute(name, why)
    return fp8.choose(problem, FP8[name])


def _backward(x: Tensors, solved: Solved, problem: Problem, backend: str) -> tuple[Tensor, ...]:
    grads = backward(x.dout, Inputs(x.q, x.k, x.v), *solved, problem, backend)
    return grads.q, grads.k, grads.v


def rows_first(x: Tensor) -> Tensor:
    """Return a copy of [B,H,S,D] that lies in memory as [B,S,H,D]."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


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
    choice = chosen(case.problem, name, case.direction)
    if choice.backend == "math":
        # the scores and their softmax, in float32
        require(device, 2 * 4.0 * case.shape.scores / case.problem.dtype.itemsize)
    return Contender(name, choice, case)
