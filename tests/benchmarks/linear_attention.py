"""Linear attention on a GPU, beside flash-linear-attention.

    python -m tests.benchmarks.linear_attention --minutes 8 --out FOLDER

Shapes are those of fla-core's own registry of benchmarks. Every row states the time of forward and
of forward with backward, the peer's in turns with ours, and the errors of both against the float64
recurrence over the first tokens, beside those of the recurrence in the tensors' own dtype.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from accel.primitives.linear_attention.api import linear_attention
from accel.primitives.linear_attention.kinds import KINDS
from accel.runtime.timing import measure_in_turn
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
        parts = {n: float((found[n].double() - e).norm() / e.norm()) for n, e in exact.items()}
        return parts.pop("out"), max(parts.values())

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


def rows(seconds: float, until: float) -> Iterator[dict[str, object]]:
    """Measure every kind at every shape, as long as there is time."""
    where = context(torch.cuda.get_device_name(), ("torch", "triton", "fla-core"))
    for kind in ORDER:
        checked: dict[str, str] = {}
        for batch, length, count, size in SHAPES:
            if time.monotonic() > until:
                return
            head = SIZES_OF.get(kind, size)
            heads = count * size // head
            torch.cuda.empty_cache()
            try:
                x = inputs(kind, batch, length, heads, head)
                if not checked or size != 128:
                    checked = errors(x)
                found = timings(x, seconds)
            except Exception as e:  # noqa: BLE001 - the other shapes are measured all the same
                print(kind, (batch, length, heads, head), _short(e), flush=True)
                continue
            row = {
                **where, "kind": kind, "batch": batch, "tokens": length, "heads": heads,
                "head_size": head, **found, **checked,
            }  # fmt: skip
            print({k: v for k, v in row.items() if k not in where}, flush=True)
            yield row


def main() -> None:
    """Measure and write linear_attention.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each contender")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    found = []
    for row in rows(given.seconds, until):
        found.append(row)
        write("linear_attention", found, given.out)


if __name__ == "__main__":
    main()
