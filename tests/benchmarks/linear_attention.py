"""Linear attention on a GPU, beside flash-linear-attention.

    python -m tests.benchmarks.linear_attention --kinds gdn,ssd --minutes 2 --out FOLDER

Shapes are those of fla-core's own registry of benchmarks. Every row states the time of forward and
of forward with backward, the peer's in turns with ours, and the errors of both against the float64
recurrence over the first tokens, beside those of the recurrence in the tensors' own dtype. With
`--compile-first SECONDS` processes of their own compile our kernels of all problems beforehand, at
the same time, and the peer's kernels are tuned briefly (`peer_tuning`).
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from accel.primitives.linear_attention.api import linear_attention
from accel.primitives.linear_attention.kinds import KINDS
from accel.runtime.timing import measure_in_turn
from tests.benchmarks.peer_tuning import brief_tuning
from tests.benchmarks.rows import RESULTS, context, spread, write

SHAPES = (
    (1, 8192, 96, 128),
    (2, 16384, 16, 128),
    (4, 2048, 16, 128),
    (4, 4096, 64, 128),
    (8, 2048, 32, 256),
    (8, 1024, 8, 64),
)
SIZES_OF = {"rwkv7": 64}
"""The head size that a kind always has; its heads are more then, for the same channels."""
ORDER = ("gdn", "rwkv7", "ssd", "kda", "gla", "retention")
CHECKED = 256
"""The tokens over which errors are measured."""
ERRORS = tuple(
    f"{name}_error{of}" for name in ("ours", "peer", "recurrence") for of in ("", "_of_gradients")
)
"""The columns of errors."""


@dataclass(frozen=True)
class Inputs:
    """Hold the tensors of one problem by the names of `linear_attention`'s arguments."""

    kind: str
    tensors: dict[str, Tensor]

    def part(self, tokens: int, heads: int, dtype: torch.dtype) -> Inputs:
        """Return the first tokens and heads of the first sequence in another dtype, as leaves."""
        return Inputs(
            self.kind,
            {
                n: x[:1, :tokens, :heads].detach().to(dtype).contiguous().requires_grad_()
                for n, x in self.tensors.items()
            },
        )


def inputs(kind: str, batch: int, length: int, heads: int, size: int) -> Inputs:
    """Draw inputs as they are in models: keys of length 1, decays of a few percent a token."""
    device = torch.device("cuda")

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device)

    vectors = (batch, length, heads, size)
    q, k, v = (drawn(*vectors) for _ in range(3))
    tensors = {"q": q, "k": functional.normalize(k, dim=-1), "v": v}
    if KINDS[kind].decay == "head":
        tensors["decay"] = -functional.softplus(drawn(batch, length, heads) - 3)
    elif kind == "rwkv7":
        tensors["decay"] = -0.606531 * drawn(*vectors).sigmoid()
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
    """Run fla-core's kernels, each with its own defaults."""
    t, scale = x.tensors, x.tensors["q"].shape[3] ** -0.5
    ops: Any = importlib.import_module(f"fla.ops.{_MODULES[x.kind]}")
    if x.kind == "gdn":
        return ops.chunk_gated_delta_rule(t["q"], t["k"], t["v"], t["decay"], t["beta"], scale)[0]
    if x.kind == "kda":
        return ops.chunk_kda(t["q"], t["k"], t["v"], t["decay"], t["beta"], scale)[0]
    if x.kind == "rwkv7":
        return ops.chunk_rwkv7(t["q"], t["decay"], t["k"], t["v"], t["a"], t["b"])[0]
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
    part = x.part(CHECKED, 4, torch.bfloat16)
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


def timings(x: Inputs, seconds: float) -> dict[str, object]:
    """Time forward, and forward with backward, in turns with the peer."""
    row: dict[str, object] = {}
    with torch.no_grad():
        row |= _in_turn("forward", x, lambda run: lambda: run(x), seconds)
    leaves = list(x.tensors.values())

    def both(run: Callable[[Inputs], Tensor]) -> Callable[[], object]:
        dout = torch.randn_like(x.tensors["v"])
        return lambda: torch.autograd.grad(run(x), leaves, dout)

    row |= _in_turn("both", x, both, seconds)
    return row


def _in_turn(
    name: str,
    x: Inputs,
    make: Callable[[Callable[[Inputs], Tensor]], Callable[[], object]],
    seconds: float,
) -> dict[str, object]:
    calls, refused = [make(ours)], ""
    try:
        call = make(peer)
        call()
        calls.append(call)
    except Exception as e:  # noqa: BLE001 - a peer that refuses is a result
        refused = _short(e)
    for call in calls:
        call()
        call()
    torch.cuda.synchronize()
    measured = measure_in_turn(
        calls, seconds, torch.device("cuda", 0), lambda *_: None, lambda _: None
    )
    own = spread(measured[0].samples_ms)
    row: dict[str, object] = {
        f"{name}_ms": own["median"],
        f"{name}_p95_ms": own["p95"],
        f"{name}_count": own["count"],
        f"peer_{name}_ms": refused,
        f"peer_{name}_p95_ms": "",
        f"{name}_times_peer": "",
    }
    if len(measured) > 1:
        other = spread(measured[1].samples_ms)
        row[f"peer_{name}_ms"], row[f"peer_{name}_p95_ms"] = other["median"], other["p95"]
        row[f"{name}_times_peer"] = f"{other['median'] / own['median']:.3f}"
    return row


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


def posed(kind: str, shape: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return batch, tokens, heads and head size of a kind at a shape."""
    batch, length, count, size = shape
    head = SIZES_OF.get(kind, size)
    return batch, length, count * size // head, head


def compile_first(kinds: Sequence[str], shapes: int, seconds: float) -> None:
    """Run each problem once in a process of its own, so that the kernels are in Triton's cache."""
    command = [sys.executable, "-m", "tests.benchmarks.linear_attention", "--compile"]
    running = [subprocess.Popen([*command, f"{kind}:{i}"]) for kind in kinds for i in range(shapes)]
    until = time.monotonic() + seconds
    for process in running:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            print("not compiled in time:", process.args, flush=True)


def compile_one(kind: str, shape: int) -> None:
    """Run one problem once with our kernels, forward and backward."""
    x = inputs(kind, *posed(kind, SHAPES[shape]))
    try:
        out = ours(x)
        torch.autograd.grad(out, list(x.tensors.values()), torch.randn_like(out))
    except Exception as e:  # noqa: BLE001 - the others are compiled all the same
        print(kind, shape, _short(e), flush=True)


def rows(
    kinds: Sequence[str], shapes: int, seconds: float, until: float
) -> Iterator[dict[str, object]]:
    """Measure every kind at every shape, as long as there is time."""
    where = context(torch.cuda.get_device_name(), ("torch", "triton", "fla-core"))
    for kind in kinds:
        for shape in SHAPES[:shapes]:
            if time.monotonic() > until:
                return
            batch, length, heads, head = posed(kind, shape)
            torch.cuda.empty_cache()
            try:
                x = inputs(kind, batch, length, heads, head)
                found = timings(x, seconds)
            except Exception as e:  # noqa: BLE001 - the other shapes are measured all the same
                print(kind, (batch, length, heads, head), _short(e), flush=True)
                continue
            row = {
                **where, "kind": kind, "batch": batch, "tokens": length, "heads": heads,
                "head_size": head, **found,
            }  # fmt: skip
            print({k: v for k, v in row.items() if k not in where}, flush=True)
            yield row


def main() -> None:
    """Measure and write linear_attention.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each contender")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--kinds", default=",".join(ORDER))
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="how many of them")
    parser.add_argument("--compile-first", type=float, help="seconds for compiling beforehand")
    parser.add_argument("--compile", metavar="KIND:SHAPE", help="compile one problem only")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    kinds = given.kinds.split(",")
    if given.compile or given.compile_first:
        brief_tuning()
    if given.compile:
        kind, _, shape = given.compile.partition(":")
        compile_one(kind, int(shape))
        return
    if given.compile_first:
        compile_first(kinds, given.shapes, given.compile_first)
    found = []
    for row in rows(kinds, given.shapes, given.seconds, until):
        found.append({**row, **dict.fromkeys(ERRORS, "")})
        write("linear_attention", found, given.out)
    checked = dict.fromkeys((str(row["kind"]), int(str(row["head_size"]))) for row in found)
    for kind, head in checked:
        if time.monotonic() > until:
            return
        told = errors(inputs(kind, 1, CHECKED, 4, head))
        print(kind, head, told, flush=True)
        for row in found:
            if (row["kind"], row["head_size"]) == (kind, head):
                row.update(told)
        write("linear_attention", found, given.out)


if __name__ == "__main__":
    main()
