"""Linear attention on a GPU, beside the kernels of others.

    python -m tests.benchmarks.linear_attention fla:gdn,ssd:registry flashqla:gdn:flashqla
        [--passes forward,graph,backward,errors] [--warm FOLDER] [--turn FILE] [--minutes 2]
        [--out FOLDER]

Each argument names a peer, kinds and a set of shapes: those of fla-core's own registry of
benchmarks, or those that FlashQLA published times of; `@0,2` after it chooses the first and third.
`none` is no peer. First the forward pass of every kind and shape is timed in turns with the peer's,
then the same replayed as CUDA graphs, in which the host's time does not count, then the backward
pass alone, and at last errors are measured on short inputs. The table is written
after every cell, so that a run that ends early leaves what it had. `--warm` only compiles what the
passes will need, shared by all processes that name the same folder, where what a killed one had
begun is left to the next. The peer tunes with all its configurations, each measured briefly
(`peer_tuning`). With `--turn`,
processes that begin together measure one after the other.

Errors are relative to the float64 recurrence over the first tokens, beside those of the recurrence
in the tensors' own dtype. On Hopper, fla-core refuses its gated backward pass with Triton 3.4 to
3.7.0, as its results are wrong there: such a row has its refusal instead of a time.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.primitives.linear_attention.api import linear_attention, operands
from gpudeck.accel.primitives.linear_attention.plan import MANY
from gpudeck.accel.primitives.linear_attention.reference import recurrence
from gpudeck.accel.runtime.graphs import Captured
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.comparisons import TUNED
from tests.benchmarks.linear_attention_inputs import DEVICE, SHAPES, Inputs, Shape, inputs
from tests.benchmarks.linear_attention_peers import FLA, PEERS, Peer, Run
from tests.benchmarks.peer_tuning import brief_tuning, compile_share
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.benchmarks.shared_gpu import turn
from tests.benchmarks.turns import in_turn

PASSES = ("forward", "graph", "backward", "errors")
CHECKED = 256
"""The tokens over which errors are measured, of one sequence."""
ERRORS = tuple(
    f"{name}_error{of}" for name in ("ours", "peer", "recurrence") for of in ("", "_of_gradients")
)
"""The columns of errors."""


Row = dict[str, object]


class Plan(NamedTuple):
    """Say what is measured beside which peer; with `none` our kernels are measured alone."""

    peer: str
    kinds: tuple[str, ...]
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, text: str) -> Plan:
        """Read PEER:KIND,KIND:SHAPES or PEER:KIND,KIND:SHAPES@NUMBER,NUMBER."""
        peer, kinds, shapes = text.split(":")
        name, _, numbers = shapes.partition("@")
        if peer not in (*PEERS, "none") or name not in SHAPES:
            raise argparse.ArgumentTypeError(f"peers: {', '.join(PEERS)}; shapes: {list(SHAPES)}")
        of = SHAPES[name]
        chosen = tuple(of[int(n)] for n in numbers.split(",")) if numbers else of
        return cls(peer, tuple(kinds.split(",")), chosen)

    @property
    def runs(self) -> Peer | None:
        """Return the peer."""
        return PEERS.get(self.peer)

    @property
    def cells(self) -> tuple[tuple[str, Shape], ...]:
        """Return the kinds with each shape."""
        return tuple((kind, shape) for kind in self.kinds for shape in self.shapes)


def ours(x: Inputs, backend: str = "triton") -> Tensor:
    """Run our kernels."""
    return linear_attention(kind=x.kind, backend=backend, **x.tensors).out


def gradients(run: Run, x: Inputs) -> dict[str, Tensor]:
    """Return the output and the gradients of its sum of squares."""
    out = run(x)
    found = torch.autograd.grad(out.float().square().sum(), list(x.tensors.values()))
    return {"out": out.detach(), **dict(zip(x.tensors, found, strict=True))}


def errors(peer: Peer | None, x: Inputs) -> dict[str, str]:
    """Return the largest relative error of output and gradients, ours, the peer's and that of the
    recurrence in the tensors' own dtype.
    """
    part = x.part(torch.bfloat16)
    exact_inputs = Inputs(
        x.kind, {n: t.detach().double().requires_grad_() for n, t in part.tensors.items()}
    )
    exact = gradients(lambda i: ours(i, "torch"), exact_inputs)
    # the recurrence is the definition; the chunked form in float64 must equal it
    with torch.no_grad():
        defined = ours(exact_inputs, "reference")
    assert float((exact["out"] - defined).norm() / defined.norm()) < 1e-9

    def worst(found: dict[str, Tensor]) -> tuple[float, float]:
        parts = {
            n: float((g.double() - exact[n]).norm() / exact[n].norm()) for n, g in found.items()
        }
        return parts.pop("out"), max(parts.values(), default=0.0)

    runs = {"ours": ours, "recurrence": naive} | ({} if peer is None else {"peer": peer.compute})
    rows: dict[str, str] = {}
    for name, run in runs.items():
        try:
            forward, backward = worst(gradients(run, part))
            rows[f"{name}_error"], rows[f"{name}_error_of_gradients"] = (
                f"{forward:.2e}",
                f"{backward:.2e}",
            )
        except Exception as e:  # noqa: BLE001 - a peer that refuses is a result
            rows[f"{name}_error"] = rows[f"{name}_error_of_gradients"] = _short(e)
            with suppress(Exception), torch.no_grad():  # a peer may refuse its backward pass only
                rows[f"{name}_error"] = f"{worst({'out': run(part)})[0]:.2e}"
    return rows


def naive(x: Inputs) -> Tensor:
    """Compute the recurrence with every step rounded to bfloat16."""
    t = x.tensors
    rest = (t.get(n) for n in ("decay", "beta", "a", "b"))
    problem = operands(t["q"], t["k"], t["v"], x.kind, *rest, None, None, None)
    return recurrence(problem.to(torch.bfloat16))[0]


def times(way: str, peer: Peer | None, x: Inputs, seconds: float) -> Row:
    """Time the forward pass, its replay, or the backward pass alone, in turns with the peer's."""

    def forward(run: Run, x: Inputs) -> Callable[[], object]:
        return torch.no_grad()(lambda: run(x))

    def backward(run: Run, x: Inputs) -> Callable[[], object]:
        out = run(x)
        leaves, dout = list(x.tensors.values()), torch.randn_like(out)
        return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)

    def graph(run: Run, x: Inputs) -> Callable[[], object]:
        return Captured(forward(run, x), DEVICE)

    make = {"forward": forward, "graph": graph, "backward": backward}[way]
    calls, refusal = [make(ours, x)], ""
    if peer is not None:
        try:
            call = make(peer.run, peer.prepare(x))
            call()
            calls.append(call)
        except Exception as e:  # noqa: BLE001 - a peer that refuses is a result
            refusal = _short(e)
    for call in calls:
        call()
        call()
    torch.cuda.synchronize()
    row: Row = dict.fromkeys(_columns(way), "")
    measured = in_turn(calls, seconds, DEVICE)
    for whose, (found, clock) in zip((way, f"peer_{way}"), measured, strict=False):
        spent = spread(found.samples_ms)
        row[f"{whose}_ms"], row[f"{whose}_p95_ms"] = spent["median"], spent["p95"]
        row[f"{whose}_count"] = spent["count"]
        row[f"{whose}_sm_mhz"] = f"{clock:.0f}"
    if len(calls) > 1:
        ratio = float(str(row[f"peer_{way}_ms"])) / float(str(row[f"{way}_ms"]))
        row[f"{way}_times_peer"] = f"{ratio:.3f}"
    row[f"peer_{way}_refusal"] = refusal
    return row


def _columns(way: str) -> list[str]:
    """Return the columns of a pass."""
    each = [
        f"{who}_{what}"
        for who in (way, f"peer_{way}")
        for what in ("ms", "p95_ms", "count", "sm_mhz")
    ]
    return [*each, f"{way}_times_peer", f"peer_{way}_refusal"]


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


class Compilation(NamedTuple):
    """Name the kernels to compile for a kind and shape, and which of a peer's configurations."""

    whose: str
    kind: str
    shape: Shape
    part: int = 0


_PARTS = 4
"""Into how many parts the configurations of a peer's kernels are cut."""


def compilations(plans: Sequence[Plan]) -> list[Compilation]:
    """Return what to compile: fla-core's kernels are compiled anew for each number of heads, ours
    for few and for many.
    """
    found: dict[object, Compilation] = {}
    for plan in plans:
        for kind, shape in plan.cells:
            batch, _, heads, head, shared = shape.of(kind)
            many = batch * heads >= MANY
            found.setdefault(("none", kind, head, shared, many), Compilation("none", kind, shape))
            for part in range(_PARTS if plan.peer == "fla" else plan.peer != "none"):
                key = (plan.peer, kind, heads, head, shared, part)
                found.setdefault(key, Compilation(plan.peer, kind, shape, part))
    return list(found.values())


def compile_together(todo: Sequence[Compilation], folder: Path, backward: bool) -> None:
    """Compile what no other process with this folder has compiled or is compiling."""
    folder.mkdir(parents=True, exist_ok=True)
    for n, one in enumerate(todo):
        with (folder / str(n)).open("a") as claim, suppress(BlockingIOError):
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if claim.seek(0, os.SEEK_END) == 0:
                began = time.monotonic()
                compile_one(one, backward)
                claim.write("compiled")
                print(*one, f"{time.monotonic() - began:.0f} s", flush=True)


def compile_one(one: Compilation, backward: bool) -> None:
    """Run a problem once, which compiles what it needs."""
    run: Run = ours
    if one.whose in PEERS:
        PEERS[one.whose].choose()
        run = PEERS[one.whose].compute
    # kernels of Triton do not depend on the length; what tilelang's take may
    short = one.shape._replace(tokens=1024) if one.whose in ("none", "fla") else one.shape
    x = inputs(one.kind, short)
    try:
        with compile_share(one.part, _PARTS):
            with torch.no_grad():
                run(x)
            if backward:
                out = run(x)
                torch.autograd.grad(out, list(x.tensors.values()), torch.randn_like(out))
    except Exception as e:  # noqa: BLE001 - the others are compiled all the same
        print(*one, _short(e), flush=True)


class Table:
    """Hold the rows by peer, kind and shape, and write all of them after each change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rows: dict[tuple[str, str, Shape], Row] = {}

    def add(self, plan: Plan, kind: str, shape: Shape, found: Row) -> None:
        """Add columns to a row; those that it lacks are empty."""
        batch, length, heads, head, shared = shape.of(kind)
        sizes = {"batch": batch, "tokens": length, "heads": heads, "head_size": head}
        sizes["key_heads"] = heads // shared
        if (row := self.rows.get((plan.peer, kind, shape))) is None:
            packages = () if plan.runs is None else plan.runs.packages
            where = context(
                torch.cuda.get_device_name(),
                ("torch", "triton", *packages),
                SOURCES["linear_attention"],
            )
            timed = [column for way in PASSES[:-1] for column in _columns(way)]
            empty = dict.fromkeys((*timed, *ERRORS), "")
            tuning = TUNED if plan.peer in FLA else ""
            row = {**where, "peer": plan.peer, "tuning": tuning, "kind": kind, **sizes, **empty}
            self.rows[plan.peer, kind, shape] = row
        row.update(found)
        told = {k: v for k, v in found.items() if v != ""}
        print(plan.peer, kind, *sizes.values(), told, flush=True)
        write("linear_attention", list(self.rows.values()), self._folder)


def measure(plan: Plan, passes: Sequence[str], seconds: float, table: Table, until: float) -> None:
    """Time every kind at every shape and measure the errors, as long as there is time."""
    peer = plan.runs
    if peer is not None:
        peer.choose()
    for way in passes:
        if way == "errors":
            check(plan, peer, table, until)
            continue
        for kind, shape in plan.cells:
            if time.monotonic() > until:
                print("no time for", plan.peer, way, kind, shape, flush=True)
                continue
            torch.cuda.empty_cache()
            try:
                table.add(plan, kind, shape, times(way, peer, inputs(kind, shape), seconds))
            except Exception as e:  # noqa: BLE001 - the other shapes are measured all the same
                print(plan.peer, kind, shape, _short(e), flush=True)


def check(plan: Plan, peer: Peer | None, table: Table, until: float) -> None:
    """Add the errors of every kind and head size to the rows of a plan."""
    known: dict[tuple[str, int, int], Row] = {}
    # of each head size the fewest heads, as the peer compiles anew for others
    for kind, shape in sorted(plan.cells, key=lambda cell: cell[1].of(cell[0]).heads):
        like = (kind, shape.of(kind).size, shape.shared)
        if like not in known and time.monotonic() < until:
            known[like] = dict(errors(peer, inputs(kind, shape._replace(batch=1, tokens=CHECKED))))
        if like in known:
            table.add(plan, kind, shape, known[like])


def main() -> None:
    """Measure and write linear_attention.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plans", type=Plan.of, nargs="+", metavar="PEER:KINDS:SHAPES")
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--seconds", type=float, default=0.15, help="for each contender and pass")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--warm", type=Path, help="compile together with others in this folder")
    parser.add_argument("--turn", type=Path, help="measure while this file is locked")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.warm:
        os.environ["FLA_CACHE_RESULTS"] = "0"  # nothing is tuned here that is worth keeping
        backward = "backward" in given.passes or "errors" in given.passes
        compile_together(compilations(given.plans), given.warm, backward)
        return
    brief_tuning()
    torch.zeros(1, device=DEVICE)
    with turn(given.turn):
        until = time.monotonic() + 60 * given.minutes
        table = Table(given.out)
        for plan in given.plans:
            measure(plan, given.passes.split(","), given.seconds, table, until)


if __name__ == "__main__":
    main()
