"""Linear attention on a GPU, beside flash-linear-attention.

    python -m tests.benchmarks.linear_attention [--kinds gdn,ssd] [--minutes 2] [--out FOLDER]

Shapes are those of fla-core's own registry of benchmarks, or those that FlashQLA published. First
the forward pass of every kind and shape is timed in turns with the peer's, then the backward pass
alone, and at last errors are measured on short inputs. The table is written after every cell, so
that a run that ends early leaves what it had. Processes of their own compile all kernels of both
beforehand, at the same time, and the peer's kernels are tuned briefly (`peer_tuning`).

Errors are relative to the float64 recurrence over the first tokens, beside those of the recurrence
in the tensors' own dtype. On Hopper, fla-core refuses its gated backward pass with Triton 3.4 to
3.7.0, as its results are wrong there: such a row has its refusal instead of a time.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from accel.primitives.linear_attention.api import linear_attention
from accel.primitives.linear_attention.kinds import KINDS
from accel.primitives.linear_attention.plan import MANY
from accel.runtime.timing import measure_in_turn
from tests.benchmarks.peer_tuning import brief_tuning, compile_all
from tests.benchmarks.rows import RESULTS, context, spread, write


class Shape(NamedTuple):
    """Hold the sizes of a problem; the heads are those of the values, which share those of keys."""

    batch: int
    tokens: int
    heads: int
    size: int
    shared: int = 1

    def of(self, kind: str) -> Shape:
        """Return the sizes for a kind, which may always have heads of one size."""
        head = SIZES_OF.get(kind, self.size)
        return self._replace(heads=self.heads * self.size // head, size=head)


SHAPES = {
    "registry": (
        Shape(1, 8192, 96, 128),
        Shape(2, 16384, 16, 128),
        Shape(4, 2048, 16, 128),
        Shape(4, 4096, 64, 128),
        Shape(8, 2048, 32, 256),
        Shape(8, 1024, 8, 64),
    ),
    "flashqla": (
        Shape(1, 32768, 64, 128, 4),
        Shape(1, 32768, 8, 128, 4),
        Shape(1, 32768, 32, 128, 2),
        Shape(1, 32768, 8, 128, 2),
    ),
}
"""Those of fla-core's registry, and those of the gated delta rule that FlashQLA published times of:
16 heads of keys with 64 of values and 2 with 8 forward, 16 with 32 and 4 with 8 backward."""
SIZES_OF = {"rwkv7": 64}
"""The head size that a kind always has; its heads are more then, for the same channels."""
DEVICE = torch.device("cuda", 0)
FALL = 0.60653066
"""RWKV-7's decay of a token is at least e^-FALL."""
ORDER = ("gdn", "rwkv7", "ssd", "kda", "gla", "retention")
CHECKED = 256
"""The tokens over which errors are measured, of one sequence."""
ERRORS = tuple(
    f"{name}_error{of}" for name in ("ours", "peer", "recurrence") for of in ("", "_of_gradients")
)
"""The columns of errors."""


Row = dict[str, object]


@dataclass(frozen=True)
class Inputs:
    """Hold the tensors of one problem by the names of `linear_attention`'s arguments."""

    kind: str
    tensors: dict[str, Tensor]

    def part(self, dtype: torch.dtype) -> Inputs:
        """Return the same in another dtype, as leaves."""
        return Inputs(
            self.kind,
            {n: x.detach().to(dtype, copy=True).requires_grad_() for n, x in self.tensors.items()},
        )


def inputs(kind: str, shape: Shape) -> Inputs:
    """Draw inputs as they are in models: keys of length 1, decays of a few percent a token."""
    batch, length, heads, size, shared = shape.of(kind)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, device=DEVICE)

    vectors = (batch, length, heads, size)
    q, k = (drawn(batch, length, heads // shared, size) for _ in range(2))
    v = drawn(*vectors)
    tensors = {"q": q, "k": functional.normalize(k, dim=-1), "v": v}
    if KINDS[kind].decay == "head":
        tensors["decay"] = -functional.softplus(drawn(batch, length, heads) - 3)
    elif kind == "rwkv7":
        tensors["decay"] = -FALL * drawn(*vectors).sigmoid()
    elif KINDS[kind].decay == "channel":
        tensors["decay"] = -functional.softplus(drawn(*vectors) - 3)
    if "beta" in KINDS[kind].needs:
        tensors["beta"] = drawn(batch, length, heads).sigmoid()
    if kind == "rwkv7":
        erased = functional.normalize(drawn(*vectors), dim=-1)
        tensors |= {"a": -erased, "b": erased * drawn(*vectors).sigmoid()}
    return Inputs(
        kind,
        {n: (x if n == "decay" else x.bfloat16()).requires_grad_() for n, x in tensors.items()},
    )


def ours(x: Inputs, backend: str = "triton") -> Tensor:
    """Run our kernels."""
    return linear_attention(kind=x.kind, backend=backend, **x.tensors).out


def peer(x: Inputs) -> Tensor:
    """Run fla-core's kernels."""
    t, scale = x.tensors, x.tensors["q"].shape[3] ** -0.5
    ops: Any = importlib.import_module(f"fla.ops.{_MODULES[x.kind]}")
    if x.kind == "gdn":
        return ops.chunk_gated_delta_rule(t["q"], t["k"], t["v"], t["decay"], t["beta"], scale)[0]
    if x.kind == "kda":
        return ops.chunk_kda(t["q"], t["k"], t["v"], t["decay"], t["beta"], scale)[0]
    if x.kind == "rwkv7":
        # what its decays cannot be below is told: it then has chunks of 64, not of 16 tokens
        vectors = (t[name] for name in ("q", "decay", "k", "v", "a", "b"))
        return ops.chunk_rwkv7(*vectors, lower_bound=-FALL)[0]
    if x.kind == "ssd":
        return ops.chunk_simple_gla(t["q"], t["k"], t["v"], g=t["decay"], scale=1.0)[0]
    if x.kind == "gla":
        return ops.chunk_gla(t["q"], t["k"], t["v"], t["decay"], scale)[0]
    return ops.chunk_retention(t["q"], t["k"], t["v"], scale)[0]


_MODULES = {
    "gdn": "gated_delta_rule",
    "kda": "kda",
    "rwkv7": "rwkv7",
    "ssd": "simple_gla",
    "gla": "gla",
    "retention": "retention",
}


def gradients(run: Callable[[Inputs], Tensor], x: Inputs) -> dict[str, Tensor]:
    """Return the output and the gradients of its sum of squares."""
    out = run(x)
    found = torch.autograd.grad(out.float().square().sum(), list(x.tensors.values()))
    return {"out": out.detach(), **dict(zip(x.tensors, found, strict=True))}


def errors(x: Inputs) -> dict[str, str]:
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

    rows: dict[str, str] = {}
    for name, run in (("ours", ours), ("peer", peer), ("recurrence", naive)):
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
    from accel.primitives.linear_attention.api import operands
    from accel.primitives.linear_attention.reference import recurrence

    t = x.tensors
    rest = (t.get(n) for n in ("decay", "beta", "a", "b"))
    problem = operands(t["q"], t["k"], t["v"], x.kind, *rest, None, None, None)
    return recurrence(problem.to(torch.bfloat16))[0]


def forward_times(x: Inputs, seconds: float) -> Row:
    """Time the forward pass in turns with the peer's."""
    with torch.no_grad():
        return _in_turn("forward", lambda run: lambda: run(x), seconds)


def backward_times(x: Inputs, seconds: float) -> Row:
    """Time the backward pass in turns with the peer's."""
    leaves = list(x.tensors.values())

    def backward(run: Callable[[Inputs], Tensor]) -> Callable[[], object]:
        out = run(x)
        dout = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)

    return _in_turn("backward", backward, seconds)


def _in_turn(
    name: str, make: Callable[[Callable[[Inputs], Tensor]], Callable[[], object]], seconds: float
) -> Row:
    """Time what `make` makes of our function and of the peer's."""
    calls, refusal = [make(ours)], ""
    try:
        call = make(peer)
        call()
        calls.append(call)
    except Exception as e:  # noqa: BLE001 - a peer that refuses is a result
        refusal = _short(e)
    for call in calls:
        call()
        call()
    torch.cuda.synchronize()
    measured = measure_in_turn(calls, seconds, DEVICE, lambda *_: None, lambda _: None)
    row: Row = dict.fromkeys(_columns(name), "")
    for whose, found in zip((name, f"peer_{name}"), measured, strict=False):
        times = spread(found.samples_ms)
        row[f"{whose}_ms"], row[f"{whose}_p95_ms"] = times["median"], times["p95"]
        row[f"{whose}_count"] = times["count"]
    if not refusal:
        ratio = float(str(row[f"peer_{name}_ms"])) / float(str(row[f"{name}_ms"]))
        row[f"{name}_times_peer"] = f"{ratio:.3f}"
    row[f"peer_{name}_refusal"] = refusal
    return row


def _columns(name: str) -> list[str]:
    """Return the columns of a pass."""
    times = [
        f"{who}_{what}" for who in (name, f"peer_{name}") for what in ("ms", "p95_ms", "count")
    ]
    return [*times, f"{name}_times_peer", f"peer_{name}_refusal"]


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


def compilations(kinds: Sequence[str], shapes: str) -> list[str]:
    """Return what `compile_one` takes: the peer compiles anew for each number of heads."""
    peers, own = {}, {}
    for kind in kinds:
        for n, shape in enumerate(SHAPES[shapes]):
            batch, _, heads, head, shared = shape.of(kind)
            peers[kind, heads, head, shared] = f"{kind}:{shapes}:{n}:peer"
            own[kind, head, shared, batch * heads >= MANY] = f"{kind}:{shapes}:{n}:ours"
    return [*peers.values(), *own.values()]


def compile_first(kinds: Sequence[str], shapes: str, seconds: float) -> None:
    """Compile the kernels of every head size in processes of their own, into Triton's cache."""
    command = [sys.executable, "-m", "tests.benchmarks.linear_attention", "--compile"]
    environment = {**os.environ, "FLA_CACHE_RESULTS": "0", "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen([*command, what], env=environment) for what in compilations(kinds, shapes)
    ]
    until = time.monotonic() + seconds
    for process in running:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            print("not compiled in time:", process.args, flush=True)


def compile_one(kind: str, shape: Shape, whose: str) -> None:
    """Run a short problem like a shape once, forward and backward; `whose` is `ours` or `peer`."""
    run = ours
    if whose == "peer":
        compile_all()
        run = peer
    x = inputs(kind, shape._replace(tokens=1024))
    try:
        with torch.no_grad():
            run(x)
        out = run(x)
        torch.autograd.grad(out, list(x.tensors.values()), torch.randn_like(out))
    except Exception as e:  # noqa: BLE001 - the others are compiled all the same
        print(kind, shape, whose, _short(e), flush=True)


class Table:
    """Hold the rows by kind and shape, and write all of them after each change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._where = context(torch.cuda.get_device_name(), ("torch", "triton", "fla-core"))
        self.rows: dict[tuple[str, Shape], Row] = {}

    def add(self, kind: str, shape: Shape, found: Row) -> None:
        """Add columns to a row; those that it lacks are empty."""
        batch, length, heads, head, shared = shape.of(kind)
        empty = dict.fromkeys((*_columns("forward"), *_columns("backward"), *ERRORS), "")
        sizes = {"batch": batch, "tokens": length, "heads": heads, "head_size": head}
        sizes["key_heads"] = heads // shared
        new: Row = {**self._where, "kind": kind, **sizes, **empty}
        self.rows.setdefault((kind, shape), new).update(found)
        print(kind, *sizes.values(), {k: v for k, v in found.items() if v != ""}, flush=True)
        write("linear_attention", list(self.rows.values()), self._folder)


def timed(
    kinds: Sequence[str], shapes: str, measure: Callable[[Inputs], Row], table: Table, until: float
) -> None:
    """Time every kind at every shape, as long as there is time."""
    for kind in kinds:
        for shape in SHAPES[shapes]:
            if time.monotonic() > until:
                print("no time for", kind, shape, flush=True)
                continue
            torch.cuda.empty_cache()
            try:
                table.add(kind, shape, measure(inputs(kind, shape)))
            except Exception as e:  # noqa: BLE001 - the other shapes are measured all the same
                print(kind, shape, _short(e), flush=True)


def check(table: Table, until: float) -> None:
    """Add the errors of every kind and head size to its rows."""
    known: dict[tuple[str, int, int], Row] = {}
    # of each head size the fewest heads, as the peer compiles anew for others
    for kind, shape in sorted(table.rows, key=lambda key: key[1].of(key[0]).heads):
        like = (kind, shape.of(kind).size, shape.shared)
        if like not in known and time.monotonic() < until:
            known[like] = dict(errors(inputs(kind, shape._replace(batch=1, tokens=CHECKED))))
        if like in known:
            table.add(kind, shape, known[like])


def main() -> None:
    """Measure and write linear_attention.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.15, help="for each contender and pass")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--kinds", default=",".join(ORDER))
    parser.add_argument("--shapes", choices=SHAPES, default="registry")
    parser.add_argument("--compile-first", type=float, default=40.0, help="at most these seconds")
    parser.add_argument(
        "--compile", metavar="KIND:SHAPES:NUMBER:WHOSE", help="compile one problem only"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    kinds = given.kinds.split(",")
    if given.compile:
        kind, shapes, number, whose = given.compile.split(":")
        compile_one(kind, SHAPES[shapes][int(number)], whose)
        return
    if given.compile_first:
        compile_first(kinds, given.shapes, given.compile_first)
    brief_tuning()
    table = Table(given.out)
    timed(kinds, given.shapes, lambda x: forward_times(x, given.seconds), table, until)
    timed(kinds, given.shapes, lambda x: backward_times(x, given.seconds), table, until)
    check(table, until)


if __name__ == "__main__":
    main()
