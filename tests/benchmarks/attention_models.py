"""Judge `auto` on the zoo: attention of published models that no table contains.

    python -m tests.benchmarks.attention_models [--seconds 0.15] [--only TEXT] [--skip NAMES]
    python -m tests.benchmarks.attention_models --together FOLDER [--warm]   # several processes
    python -m tests.benchmarks.attention_models --grid          # the shapes of attention_grid
    python -m tests.benchmarks.attention_models --judge FILE    # sums up what was measured

Every contender is checked against float64 on fresh inputs, then all are timed in turn as CUDA
graphs, so that only kernels count: peers in their own layout, with outputs that lie where the graph
allocated them. `auto` learns on tensors that lie in memory as [B,S,H,D], as a model's projections
leave them, and is timed in the layout that its backend likes best. It takes part cold, by the
shipped tables alone, and as `learned`, after calls on these tensors were measured; cold twice, and
the ratio of the two is in the column same_twice. Peers are torch's kernels, flash-attn-4,
FlashAttention-3 and FlexAttention. One that fails or is wrong stays in the file and out of the
ratio. Our own kernels take part by name, which tells a wrong choice from a slow kernel. The rows of
a pass replace those that the file has of it. Processes that name the same folder share the passes
(see `shared_gpu`); --warm only compiles. With --grid the shapes are those of attention_grid, which
the tables contain, and the file is attention_grid_peers.csv.
"""

from __future__ import annotations

import argparse
import csv
import gc
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor

from accel import learning
from accel.attention import BACKENDS, Problem, Ragged, attention, choose, describe
from accel.attention.dispatch import refusal
from accel.attention.inputs import Inputs, arrange
from accel.attention.passes import backward, forward, prepared
from accel.attention.reference import reference
from accel.result import Direction
from accel.runtime.graphs import Captured
from accel.runtime.timing import copies_beyond_cache, timing_of
from accel.workloads.catalog import TOKENS, WIDTH
from tests.benchmarks.attention_grid import LENGTHS
from tests.benchmarks.attention_peers import PeerCall, peers
from tests.benchmarks.attention_shapes import SHAPES, ModelShape
from tests.benchmarks.rows import RESULTS, context, merge
from tests.benchmarks.shared_gpu import SharedGpu
from tests.benchmarks.turns import in_turn

PEER_BACKENDS = ("flash", "cudnn", "fa4", "fa3", "efficient")
OWN = ("hopper", "triton")
JUDGED = ("auto", "learned")
REQUIRED = {"auto": 0.90, "learned": 0.97}
"""The least share of the best peer's speed, cold and learned."""
PACKAGES = ("torch", "triton", "flash-attn-4", "nvidia-cutlass-dsl", "vllm")
CUDA = torch.device("cuda", 0)
ATOL = 1e-5
Call = Callable[[], tuple[Tensor, ...]]
Contender = tuple[str, Callable[[], list[Call]]]
"""A name, and a function that returns its call for each set of tensors."""


@dataclass(frozen=True)
class Draw:
    """Hold one set of tensors of a shape: [B,H,S,D] that lie in memory as [B,S,H,D], or [T,H,D]
    in a ragged batch."""

    q: Tensor
    k: Tensor
    v: Tensor
    dout: Tensor
    bias: Tensor | None
    ragged: Ragged | None

    def inputs(self, layout: str) -> Inputs:
        """Return the tensors as backends take them, in a layout."""
        x = arrange(self.q, self.k, self.v, self.bias, self.ragged, "bhsd")
        if layout == "bshd" or self.ragged is not None:
            return x
        return x._replace(q=x.q.contiguous(), k=x.k.contiguous(), v=x.v.contiguous())

    def laid_out(self, layout: str) -> Draw:
        """Return the tensors in a layout."""
        if layout == "bshd" or self.ragged is not None:
            return self
        q, k, v, dout = (t.contiguous() for t in (self.q, self.k, self.v, self.dout))
        return Draw(q, k, v, dout, self.bias, self.ragged)

    def upstream(self, layout: str) -> Tensor:
        """Return the gradient of the output [B,H,S,D] in a layout."""
        if self.ragged is not None:
            return self.dout.transpose(0, 1).unsqueeze(0)
        return self.dout.contiguous() if layout == "bhsd" else self.dout


def draws(shape: ModelShape) -> list[Draw]:
    """Return random tensors that together exceed the cache several times."""
    wide = shape.value_dim or shape.head_dim
    held = 2 * (shape.head_dim + wide) * shape.batch
    held *= shape.seq_q * shape.heads + shape.seq_k * shape.kv_heads
    bias = _bias(shape)

    def normal(heads: int, length: int, dim: int) -> Tensor:
        size = (shape.batch, length, heads, dim)
        if shape.lengths:
            size = (sum(shape.lengths), heads, dim)
        drawn = torch.randn(size, device=CUDA, dtype=torch.bfloat16)
        return drawn if shape.lengths else drawn.transpose(1, 2)

    ragged = Ragged.of(shape.lengths, device=CUDA) if shape.lengths else None
    return [
        Draw(
            normal(shape.heads, shape.seq_q, shape.head_dim),
            normal(shape.kv_heads, shape.seq_k, shape.head_dim),
            normal(shape.kv_heads, shape.seq_k, wide),
            normal(shape.heads, shape.seq_q, wide),
            bias,
            ragged,
        )
        for _ in range(copies_beyond_cache(held, CUDA))
    ]


def _bias(shape: ModelShape) -> Tensor | None:
    if shape.mask == "none":
        return None
    if shape.mask == "padding":
        ends = torch.randint(shape.seq_k // 2, shape.seq_k + 1, (shape.batch, 1, 1, 1), device=CUDA)
        return torch.arange(shape.seq_k, device=CUDA) < ends
    size = (1, shape.heads, shape.seq_q, shape.seq_k)
    if shape.mask == "learned":
        return torch.randn(size, device=CUDA, dtype=torch.bfloat16)
    slopes = 2.0 ** (-8.0 * torch.arange(1, shape.heads + 1, device=CUDA) / shape.heads)
    at = torch.arange(shape.seq_k, device=CUDA)
    return (slopes[:, None, None] * (at - at[:, None]).clamp(max=0))[None].to(torch.bfloat16)


class Runner:
    """Prepare every contender of a shape in one direction."""

    def __init__(
        self,
        shape: ModelShape,
        direction: Direction,
        skip: Sequence[str] = (),
    ) -> None:
        self.shape, self.direction, self.skip = shape, direction, skip
        learning("off")
        self.sets = draws(shape)
        first = self.sets[0]
        learned = shape.mask == "learned" and direction == "backward"
        if first.bias is not None and learned:
            first.bias.requires_grad_()
        self.rules = {
            "causal": shape.causal,
            "window": (shape.left, None),
            "softcap": shape.softcap,
        }
        with torch.set_grad_enabled(direction == "backward"):
            self.problem = describe(
                first.q, first.k, first.v, bias=first.bias, seqlens=first.ragged, **self.rules
            )  # fmt: skip
        self.chosen = choose(self.problem, "auto", direction)
        self._solved = [
            attention(x.q, x.k, x.v, bias=_plain(x.bias), seqlens=x.ragged, return_lse=True,
                      **self.rules)
            for x in (self.sets if direction == "backward" else ())
        ]  # fmt: skip

    def contenders(self) -> Iterator[Contender]:
        """Yield each contender but what is learned."""
        yield "auto", self.cold
        for name in (*OWN, *PEER_BACKENDS):
            if name not in self.skip and refusal(self.problem, name, self.direction) is None:
                yield name, partial(self._backend, name, BACKENDS[name].layout)
        for name, peer in peers(self.shape, self._plain_inputs(self.sets[0], "bhsd")):
            if name not in self.skip:
                yield name, partial(self._peer, peer)

    def cold(self) -> list[Call]:
        """Return the calls of `auto` by the shipped tables."""
        learning("off")
        return self._by_choice()

    def learned(self) -> list[Call]:
        """Let `auto` learn as in a program, by three calls, and return its calls from then on."""
        learning("once")
        x = self.sets[0]
        grad = self.direction == "backward"
        leaves = [t.detach().requires_grad_(grad) for t in (x.q, x.k, x.v)]
        for _ in range(3):
            with torch.set_grad_enabled(grad):
                bias = _plain(x.bias, self.direction)
                out = attention(*leaves, bias=bias, seqlens=x.ragged, **self.rules)
            if grad:
                out.backward(x.dout)
        return self._by_choice()

    def _by_choice(self) -> list[Call]:
        """Return the calls of `auto` as it chooses now."""
        self.chosen = choose(self.problem, "auto", self.direction)
        layout = BACKENDS[self.chosen.backend].layout
        if self.direction == "backward":
            return self._backend(self.chosen.backend, layout)
        return [
            partial(_user_call, x.laid_out(layout), _plain(x.bias), self.rules, self.shape.lengths)
            for x in self.sets
        ]

    def _backend(self, name: str, layout: str) -> list[Call]:
        inputs = [self._plain_inputs(x, layout) for x in self.sets]
        if self.direction == "backward":
            return [
                partial(_gradients, x.upstream(layout), given, self._out(i, layout),
                        self._lse(i), self.problem, name)
                for i, (x, given) in enumerate(zip(self.sets, inputs, strict=True))
            ]  # fmt: skip
        run = None
        if inputs[0].bias is None and inputs[0].ragged is None:
            run = prepared(inputs[0], self.problem, name)
        if run is not None:
            return [partial(run, x.q, x.k, x.v) for x in inputs]
        return [partial(forward, x, self.problem, name) for x in inputs]

    def _peer(self, peer: PeerCall) -> list[Call]:
        calls: list[Call] = []
        for x in self.sets:
            given = self._plain_inputs(x, "bhsd")
            if self.shape.lengths:
                given = given._replace(**{n: getattr(given, n).contiguous() for n in "qkv"})
            leaves = [t.detach().clone(memory_format=torch.preserve_format) for t in given[:3]]
            if given.bias is not None:
                leaves.append(given.bias.detach().clone())
            if self.direction == "forward":
                calls.append(partial(_tuple, peer, leaves))
            else:
                learned = self.shape.mask == "learned"
                wanted = leaves if learned else leaves[:3]
                for leaf in wanted:
                    leaf.requires_grad_()
                with torch.enable_grad():
                    out = peer(*leaves)
                up = x.upstream("bhsd")
                calls.append(partial(torch.autograd.grad, out, wanted, up, retain_graph=True))
        return calls

    def _plain_inputs(self, x: Draw, layout: str) -> Inputs:
        return x.inputs(layout)._replace(bias=_plain(x.inputs("bhsd").bias, self.direction))

    def _out(self, i: int, layout: str) -> Tensor:
        out = self._solved[i][0]
        if self.shape.lengths:
            return out.transpose(0, 1).unsqueeze(0)
        return out.contiguous() if layout == "bhsd" else out

    def _lse(self, i: int) -> Tensor:
        lse = self._solved[i][1]
        return lse.unsqueeze(0) if self.shape.lengths else lse


def _plain(bias: Tensor | None, direction: str = "forward") -> Tensor | None:
    return bias if bias is None or direction == "backward" else bias.detach()


def _user_call(
    x: Draw, bias: Tensor | None, rules: dict[str, object], lengths: tuple[int, ...]
) -> tuple[Tensor, ...]:
    out = attention(x.q, x.k, x.v, bias=bias, seqlens=x.ragged, **rules)  # type: ignore[call-overload]
    return (out.transpose(0, 1).unsqueeze(0) if lengths else out,)


def _tuple(peer: PeerCall, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (peer(*leaves),)


def _gradients(
    dout: Tensor, x: Inputs, out: Tensor, lse: Tensor, problem: Problem, name: str
) -> tuple[Tensor, ...]:
    return backward(dout, x, out, lse, problem, name)[:3]


def truth(shape: ModelShape, direction: Direction, x: Draw) -> Iterator[tuple[int, tuple, tuple]]:
    """Yield the place of a sample, its exact and its plain answers.

    A sample is one group of heads of one sequence: the first and the last one forward, the last one
    backward.
    """
    group = shape.heads // shape.kv_heads
    given, dout = x.inputs("bhsd"), x.upstream("bhsd")
    spots = [(0, 0), (shape.batch - 1, shape.kv_heads - 1)]
    for b, g in spots if direction == "forward" else spots[1:]:
        heads = slice(g * group, (g + 1) * group)
        rows: slice = slice(None)
        at = b
        if shape.lengths:
            start = sum(shape.lengths[:b])
            rows, at = slice(start, start + shape.lengths[b]), 0
        q, d = given.q[at : at + 1, heads, rows], dout[at : at + 1, heads, rows]
        k, v = (t[at : at + 1, g : g + 1, rows] for t in (given.k, given.v))
        bias = given.bias
        if bias is not None:
            bias = bias.detach()[min(at, bias.shape[0] - 1) :][:1]
            bias = bias if bias.shape[1] == 1 else bias[:, heads]
        answers = [
            _reference(shape, direction, q, k, v, d, bias, dtype)
            for dtype in (torch.float64, torch.bfloat16)
        ]
        where = ((at, heads, rows), (at, slice(g, g + 1), rows))
        yield where, *answers  # type: ignore[misc]


def _reference(
    shape: ModelShape,
    direction: Direction,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dout: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, ...]:
    leaves = [t.detach().to(dtype).requires_grad_(direction == "backward") for t in (q, k, v)]
    if bias is not None and bias.dtype != torch.bool:
        bias = bias.to(dtype)
    with torch.set_grad_enabled(direction == "backward"):
        out = reference(
            *leaves, causal=shape.causal, window=(shape.left, None), softcap=shape.softcap,
            scale=shape.head_dim**-0.5, bias=bias, dtype=dtype,
        )  # fmt: skip
    if direction == "forward":
        return (out,)
    return torch.autograd.grad(out, leaves, dout.to(dtype))


def errors(runner: Runner, call: Call, known: Sequence[tuple]) -> tuple[float, float]:
    """Return the largest relative error of a contender's answers as a share of its bound, and the
    error itself."""
    got = call()
    worst = (0.0, 0.0)
    for where, exact, plain in known:
        for i, (true, simple) in enumerate(zip(exact, plain, strict=True)):
            at, heads, rows = where[min(i, 1)]
            answer = got[i].detach()[at, heads, rows].double()
            size = float(true.double().norm())
            error = float((answer - true[0]).norm()) / size
            bound = 2 * float((simple.double() - true).norm()) / size + ATOL
            error = error if math.isfinite(error) else 1e30
            worst = max(worst, (error / bound, error))
    return worst


def captured(calls: Sequence[Call], autograd: bool) -> Callable[[], object]:
    """Return a function that replays all calls as one CUDA graph.

    Autograd runs a backward pass on the stream of its forward pass: the caller makes that the
    current stream, and it is the one captured.
    """

    def run() -> None:
        for call in calls:
            call()

    if not autograd:
        return Captured(run, CUDA)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    run()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        run()
    return partial(_replay, graph, calls)


def _replay(graph: torch.cuda.CUDAGraph, kept: Sequence[Call]) -> None:
    """Replay a graph whose kernels read the tensors of the calls, which are therefore kept."""
    graph.replay()


def ready(
    runner: Runner,
    contenders: Iterable[Contender],
    known: Sequence[tuple],
    limit: float = math.inf,
) -> Iterator[dict[str, object]]:
    """Yield a row for each contender, with its replay under `call` if it is right.

    No contender is prepared, which may compile it, once `limit` seconds have passed.
    """
    deadline = time.monotonic() + limit
    for name, make in contenders:
        if time.monotonic() > deadline:
            note = f"left out: {limit:g} s for the shape had passed"
            yield {"contender": name, "error": "", "of_bound": "", "note": note}
            continue
        autograd = runner.direction == "backward" and name not in (*JUDGED, *OWN, *PEER_BACKENDS)
        row: dict[str, object] = {"contender": name, "error": "", "of_bound": "", "note": ""}
        stream = torch.cuda.Stream() if autograd else torch.cuda.current_stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                calls = make()
                share, error = errors(runner, calls[0], known)
                row |= {"error": f"{error:.3g}", "of_bound": f"{share:.3g}"}
                if share > 1:
                    row["note"] = "wrong"
                else:
                    row["call"] = captured(calls, autograd)
                if name in JUDGED:
                    row |= {"ran": runner.chosen.backend, "why": runner.chosen.reason[:160]}
        except Exception as e:  # noqa: BLE001 - a peer that fails must not end the others
            row["note"] = f"failed: {type(e).__name__}: {str(e).partition(chr(10))[0]}"[:200]
        torch.cuda.synchronize()
        yield row


def measured(
    shape: ModelShape,
    direction: Direction,
    seconds: float,
    limit: float,
    skip: Sequence[str],
    gpu: SharedGpu,
) -> tuple[list[dict[str, object]], str]:
    """Return the rows of one shape in one direction, and a line that sums them up.

    Raises:
        ValueError: if `attention` cannot compute the shape.
    """
    runner = Runner(shape, direction, skip)
    known = list(truth(shape, direction, runner.sets[0]))
    rows = list(ready(runner, runner.contenders(), known, limit))
    again = [captured(runner.cold(), autograd=False)] if "call" in rows[0] else []
    with gpu.alone():  # all kernels are loaded by now
        rows += ready(runner, [("learned", runner.learned)], known)
        timed = [row for row in rows if "call" in row]
        calls = [*(row.pop("call") for row in timed), *again]
        loops = in_turn(calls, seconds, CUDA) if calls else []
    flops = shape.flops * (2.5 if direction == "backward" else 1.0)
    medians: dict[str, float] = {}
    for row, (loop, mhz) in zip(timed, loops, strict=False):
        t = timing_of([1e3 * ms / len(runner.sets) for ms in loop.samples_ms])
        medians[str(row["contender"])] = t.median
        row |= {
            "us": f"{t.median:.5g}", "p5": f"{t.p5:.5g}", "p95": f"{t.p95:.5g}", "count": t.count,
            "tflops": f"{flops / t.median / 1e6:.5g}", "sm_mhz": f"{mhz:.0f}",
        }  # fmt: skip
    rivals = (n for n in medians if n not in (*JUDGED, *OWN))
    best = min(rivals, key=medians.__getitem__, default="")
    ratios = {n: medians[best] / medians[n] for n in JUDGED if best and n in medians}
    twin = 0.0
    if len(loops) > len(timed):
        second = timing_of([1e3 * ms / len(runner.sets) for ms in loops[-1][0].samples_ms])
        twin = medians["auto"] / second.median
    about = {
        name: getattr(shape, name)
        for name in ("group", "name", "batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim")
    } | {"causal": shape.causal, "left": shape.left, "softcap": shape.softcap, "mask": shape.mask}
    blank = dict.fromkeys(("us", "p5", "p95", "count", "tflops", "sm_mhz"), "")
    full = []
    for row in rows:
        name = str(row["contender"])
        ratio = ratios.get(name)
        verdict = {
            "best_peer": best if name in JUDGED else "",
            "ratio_to_best_peer": f"{ratio:.4f}" if ratio else "",
            "same_twice": f"{twin:.4f}" if name == "auto" and twin else "",
        }
        ran = {"ran": name, "why": ""}
        full.append({**about, "direction": direction, **ran, **blank, **row, **verdict})
    said = ", ".join(f"{n} {t:.1f}" for n, t in sorted(medians.items(), key=lambda p: p[1]))
    bad = "".join(f"; {r['contender']}: {r['note']}" for r in rows if r["note"])
    chose = " ".join(f"{r['contender']}={r['ran']}" for r in full if r["contender"] in JUDGED)
    told = " ".join(f"{ratio:.3f}" for ratio in ratios.values())
    return full, f"{direction:8} {shape.name}: {told} ({twin:.3f}) {chose}: {said}{bad}"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0.0


def summary(rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Yield `auto` against the best peer by group and direction, and the A/A pairs beside it."""
    for direction in ("forward", "backward"):
        judged = [r for r in rows if r["direction"] == direction and r["ratio_to_best_peer"]]
        for group in (*dict.fromkeys(str(r["group"]) for r in judged), "all"):
            for name in JUDGED:
                those = [
                    r for r in judged if r["contender"] == name and group in (r["group"], "all")
                ]
                ratios = [float(str(r["ratio_to_best_peer"])) for r in those]
                if those:
                    yield (
                        f"{direction} {group}, {name}: {geometric_mean(ratios):.3f} over"
                        f" {len(ratios)} shapes ({min(ratios):.3f} to {max(ratios):.3f})"
                    )
        twins = [float(str(r["same_twice"])) for r in judged if r["same_twice"]]
        if twins:
            yield (
                f"{direction}: the same kernel twice {geometric_mean(twins):.3f}"
                f" ({min(twins):.3f} to {max(twins):.3f})"
            )


def misses(rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Yield each shape where `auto` has less than is required of the best peer's speed, and why.

    The choice is at fault if a backend that it could have chosen was faster by more than 2 %, else
    the peer is none of the backends, or the kernel in its wrapper is slower than the peer's.
    """
    passes: dict[tuple[str, str], dict[str, Mapping[str, object]]] = {}
    for row in rows:
        at = str(row["name"]), str(row["direction"])
        passes.setdefault(at, {})[str(row["contender"])] = row
    for (name, direction), those in passes.items():
        able = {n: float(str(r["us"])) for n, r in those.items() if n in BACKENDS and r["us"]}
        best = min(able, key=able.__getitem__, default="")
        for contender, required in REQUIRED.items():
            row = those.get(contender)
            if row is None or not row["ratio_to_best_peer"]:
                continue
            ratio, ran = float(str(row["ratio_to_best_peer"])), str(row["ran"])
            if ratio < required:
                lost = able.get(ran, 0.0) / able[best] if best else 0.0
                fault = (
                    f"the choice: {best} is {lost:.2f} times as fast"
                    if lost > 1.02
                    else "no choice"
                )
                told = f"{ratio:.3f} of {row['best_peer']}, {ran} ran"
                yield f"{contender} {direction} {name}: {told}; at fault: {fault}"


def warm(shape: ModelShape, direction: Direction, skip: Sequence[str]) -> str:
    """Run every contender of a pass once, so that kernels lie compiled on disk, and return a line
    that says what failed."""
    runner = Runner(shape, direction, skip)
    rows = ready(runner, runner.contenders(), [])
    notes = [f"{row['contender']}: {row['note']}" for row in rows if row["note"]]
    return "; ".join(("compiled", shape.name, direction, *notes))


def grid() -> tuple[ModelShape, ...]:
    """Return the shapes of attention_grid."""
    return tuple(
        ModelShape(mask, f"{mask} d{dim}, {length}", TOKENS // length, heads, heads, length, length,
                   dim, causal=mask == "causal")
        for length in map(int, LENGTHS.split(","))
        for dim in (128, 64, 256)
        for heads in (WIDTH // dim,)
        for mask in ("full", "causal")
    )  # fmt: skip


def _directions(shape: ModelShape) -> tuple[Direction, ...]:
    return ("forward", "backward") if shape.trained else ("forward",)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.15, help="for each contender")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds to prepare a shape")
    parser.add_argument("--first", type=int, help="only so many shapes")
    parser.add_argument("--grid", action="store_true", help="the shapes of attention_grid")
    parser.add_argument("--only", default="", help="shapes whose name or group contains this")
    parser.add_argument("--skip", default="", help="contenders that take no part, such as"
                        " flash,efficient,torch sdpa")  # fmt: skip
    parser.add_argument("--able", default="", help="only passes that this backend can compute")
    parser.add_argument("--judge", type=Path, help="sum up a file that was measured before")
    parser.add_argument("--together", type=Path, help="the folder that processes share")
    parser.add_argument("--warm", action="store_true", help="compile only")
    parser.add_argument("--until", type=float, default=math.inf, help="no pass begins after these"
                        " seconds")  # fmt: skip
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.judge:
        with options.judge.open(newline="") as f:
            held = list(csv.DictReader(f))
        print(*summary(held), *misses(held), sep="\n")
        return
    skip = options.skip.split(",")
    torch._dynamo.config.recompile_limit = 1000
    torch.set_grad_enabled(False)  # but where a peer's own backward pass is recorded
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device=CUDA)
    passes = [
        (shape, direction)
        for shape in (grid() if options.grid else SHAPES)[: options.first]
        if options.only in shape.name or options.only in shape.group
        for direction in _directions(shape)
        if not options.able or _is_able(shape, options.able, direction)
    ]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        gpu = SharedGpu(options.together or Path(folder))
        for shape, direction in gpu.claimed(passes):
            if time.monotonic() - begun > options.until:
                return
            try:
                if options.warm:
                    line = warm(shape, direction, skip)
                else:
                    with gpu.preparing():
                        line = _written(shape, direction, options, skip, gpu)
            except ValueError as e:
                line = f"{direction:8} {shape.name}: not computed: {e}"
            print(f"{time.monotonic() - begun:.0f} s {line}", flush=True)
            gc.collect()
            torch.cuda.empty_cache()


def _is_able(shape: ModelShape, backend: str, direction: Direction) -> bool:
    return refusal(shape.problem(CUDA), backend, direction) is None


def _written(
    shape: ModelShape,
    direction: Direction,
    options: argparse.Namespace,
    skip: Sequence[str],
    gpu: SharedGpu,
) -> str:
    """Measure a pass and write its rows into the file; return a line that sums them up."""
    rows, line = measured(shape, direction, options.seconds, options.limit, skip, gpu)
    there = {d.metadata["Name"] for d in metadata.distributions()}
    where = context(torch.cuda.get_device_name(), [p for p in PACKAGES if p in there])
    name = "attention_grid_peers" if options.grid else "attention_zoo"
    merge(name, [row | where for row in rows], ("name", "direction"), options.out)
    return line


if __name__ == "__main__":
    sys.exit(main())
