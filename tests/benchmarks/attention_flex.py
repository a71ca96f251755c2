"""Compare `accel.flex_attention` with compiled FlexAttention on the latter's own benchmark matrix.

    python -m tests.benchmarks.attention_flex [--seconds 0.1] [--limit 100] [--out DIR]
    python -m tests.benchmarks.attention_flex --together FOLDER   # several processes at once
    python -m tests.benchmarks.attention_flex --together FOLDER --warm   # compile only
    python -m tests.benchmarks.attention_flex --judge FILE   # sums up what was measured

Compiling FlexAttention for a cell takes longer than measuring it. Processes that name the same
folder share the cells (see `shared_gpu`); a common TORCHINDUCTOR_CACHE_DIR keeps what they
compiled, and FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1 what flash-attn-4 did.

For the matrix see attention_flex_cells; the forward pass is that of a training step. All get the
same tensors, score function and block mask; the kernels of a pass are timed as a CUDA graph, in
turns, ours twice (the ratio of the two is in the column same_twice). Ours goes by the shipped
tables. Making a block mask (mask_ms) and recognising it (read_ms) are told apart, each for the
second time. FlexAttention's backend FLASH takes part where flash-attn-4 is installed. Outputs are
compared with float64 for one head, and gradients with each other.
"""

from __future__ import annotations

import argparse
import csv
import gc
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
import torch._functorch.config
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from gpudeck import accel
from gpudeck.accel.attention import choose, describe
from gpudeck.accel.attention.backends.fa4 import find_version
from gpudeck.accel.attention.flex import recognise
from gpudeck.accel.result import Direction
from gpudeck.accel.runtime.timing import timing_of
from tests.benchmarks.attention_flex_cells import CUDA, HEADS, Cell, Problem, cells
from tests.benchmarks.attention_flex_judged import KEYS, summary
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.rows import RESULTS, context, merge
from tests.benchmarks.shared_gpu import SharedGpu
from tests.benchmarks.turns import in_turn

_GRADIENTS_APART = 0.05
"""Gradients in bfloat16 differ by less than a hundredth; wrong ones by far more."""


def contenders() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions that take part."""
    yield "ours", accel.flex_attention
    torch._dynamo.reset()
    yield "flex", torch.compile(flex_attention, dynamic=False)
    if find_version():
        flash = partial(flex_attention, kernel_options={"BACKEND": "FLASH"})
        yield "flex FLASH", torch.compile(flash, dynamic=False)


class Passes:
    """Hold both passes of a contender as CUDA graphs."""

    def __init__(self, problem: Problem, attend: Callable[..., Any]) -> None:
        # Autograd runs a backward pass on the stream of its forward pass, which is the one
        # captured; leaves that another stream has seen would bring that one into the capture.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            leaves = problem.leaves()
            self.out: Tensor = problem.call(attend, leaves)
            self._run = partial(
                torch.autograd.grad, self.out, leaves, problem.dout, retain_graph=True
            )
            self._run()
            self._forward, _ = _graph(lambda: problem.call(attend, leaves), stream)
            self._backward, self.grads = _graph(self._run, stream)

    def apart(self, passes: Mapping[str, Passes]) -> list[float]:
        """Return how far each gradient is from that of the first contender, relatively."""
        first = next(iter(passes.values()))
        return [
            float((a.float() - b.float()).norm() / b.float().norm())
            for a, b in zip(first.grads, self.grads, strict=True)
        ]

    def replay(self, direction: Direction) -> Callable[[], object]:
        """Return the function that runs a pass again."""
        return self._forward.replay if direction == "forward" else self._backward.replay


def _graph(run: Callable[[], Any], stream: torch.cuda.Stream) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Return the graph of a call, and the call's result, which a replay computes again."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = run()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    return graph, kept


def measured(cell: Cell, seconds: float, gpu: SharedGpu) -> list[dict[str, object]]:
    """Return a row for each contender of a cell in both directions."""
    problem = Problem(cell)
    passes: dict[str, Passes] = {}
    rows = []
    for name, attend in contenders():
        row: dict[str, object] = {
            "kind": cell.kind, "head_dim": cell.head_dim, "length": cell.length,
            "kv_heads": cell.kv_heads, "contender": name,
        }  # fmt: skip
        rows += [row | {"direction": direction} for direction in get_args(Direction)]
        try:
            note = _checked(problem, attend, passes, name)
        except Exception as e:  # noqa: BLE001 - one contender that fails must not end the others
            note = {"note": f"failed: {type(e).__name__}: {_told(e)}"[:300]}
        rows[-2:] = [one | note for one in rows[-2:]]
        if name in passes:
            apart = passes[name].apart(passes)
            for one in rows[-2:]:
                one["grads_apart"] = ", ".join(f"{x:.2g}" for x in apart)
            if not all(x <= _GRADIENTS_APART for x in apart):  # nan is not
                rows[-1]["note"] = "gradients differ from ours"
    _name_ours(problem, rows)
    with gpu.alone():
        for direction in get_args(Direction):
            those = [row for row in rows if row["direction"] == direction]
            _time([row for row in those if not row.get("note")], passes, problem, seconds)
        masked = problem.time_mask()
    return [dict.fromkeys(COLUMNS, "") | row | masked for row in rows]


def _told(e: Exception) -> str:
    """Return the lines of an error that say what was refused, without the compiler's preamble."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return " | ".join(lines[:3])


def _checked(
    problem: Problem, attend: Callable[..., Any], passes: dict[str, Passes], name: str
) -> dict[str, object]:
    """Capture a contender's passes, keep them if the output is right, and return its error."""
    found = Passes(problem, attend)
    error, plain = problem.error(found.out.detach())
    told: dict[str, object] = {"error": f"{error:.3g}", "plain_error": f"{plain:.3g}"}
    if error > 2 * plain + 1e-5:
        return told | {"note": "wrong"}
    passes[name] = found
    return told


def _name_ours(problem: Problem, rows: list[dict[str, object]]) -> None:
    """Write into our rows what ran."""
    found = recognise(problem.q, problem.k, problem.score_mod, problem.block_mask)
    options = found.options if found is not None else {}
    leaves = problem.leaves()
    if options.get("seqlens") is not None:  # documents are computed as a ragged batch
        leaves = [x.transpose(1, 2).flatten(0, 1) for x in leaves]
    described = describe(*leaves, **options)
    for row in rows:
        if row["contender"] == "ours" and not row.get("note"):
            choice = choose(described, "auto", row["direction"])
            row |= {"ran": choice.backend, "why": str(choice.reason)[:100]}


def _time(
    rows: list[dict[str, object]], passes: dict[str, Passes], problem: Problem, seconds: float
) -> None:
    """Time one direction of all contenders in turn, and ours twice."""
    if not rows:
        return
    direction: Direction = rows[0]["direction"]  # type: ignore[assignment]
    calls = [passes[str(row["contender"])].replay(direction) for row in rows]
    twice = rows[0]["contender"] == "ours"
    measured = in_turn([*calls, calls[0]] if twice else calls, seconds, CUDA)
    flops = 4.0 * HEADS * problem.pairs * problem.cell.head_dim
    flops *= 2.5 if direction == "backward" else 1.0
    times = [timing_of([1e3 * ms for ms in loop.samples_ms]) for loop, _ in measured]
    for row, t, (_, mhz) in zip(rows, times, measured, strict=False):
        row |= {
            "us": f"{t.median:.5g}", "p5": f"{t.p5:.5g}", "p95": f"{t.p95:.5g}", "count": t.count,
            "tflops": f"{flops / t.median / 1e6:.4g}",
            "sm_mhz": f"{mhz:.0f}",
        }  # fmt: skip
        if twice:
            row["same_twice"] = f"{times[0].median / times[-1].median:.4g}"
            row["ours_is_faster_by"] = f"{t.median / times[0].median:.4g}"


COLUMNS = (
    *KEYS, "contender", "ran", "us", "p5", "p95",
    "count", "tflops", "ours_is_faster_by", "same_twice", "error", "plain_error", "grads_apart",
    "mask_ms", "read_ms", "sm_mhz", "why", "note",
)  # fmt: skip


def main() -> None:
    """Measure as many cells as the time suffices for, and write each as it comes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.1, help="for each contender of a cell")
    parser.add_argument("--limit", type=float, default=math.inf, help="no cell begins after these")
    parser.add_argument("--together", type=Path, help="the folder that processes share")
    parser.add_argument("--warm", action="store_true", help="compile only")
    parser.add_argument("--lengths", default="")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--judge", type=Path, help="sum up a file that was measured before")
    asked = parser.parse_args()
    if asked.judge:
        with asked.judge.open(newline="") as f:
            print(*summary(list(csv.DictReader(f))), sep="\n")
        return
    begun = time.monotonic()
    accel.learning("off")
    # A compiled backward pass that reuses the buffers of its forward pass could run only once.
    torch._functorch.config.donated_buffer = False
    lengths, kinds = (text.split(",") if text else [] for text in (asked.lengths, asked.kinds))
    chosen = [
        cell
        for cell in cells()
        if (not lengths or str(cell.length) in lengths) and (not kinds or cell.kind in kinds)
    ]
    packages = ("torch", "triton", "flash-attn-4")[: 3 if find_version() else 2]
    where = context(torch.cuda.get_device_name(), packages, SOURCES["attention_flex"])
    with tempfile.TemporaryDirectory() as folder:
        gpu = SharedGpu(asked.together or Path(folder))
        for cell in gpu.claimed(chosen):
            if time.monotonic() - begun > asked.limit:
                return
            if asked.warm:
                warm(cell)
            else:
                with gpu.preparing():
                    rows = measured(cell, asked.seconds, gpu)
                merge("attention_flex", [row | where for row in rows], KEYS, asked.out)
                print(f"{time.monotonic() - begun:.0f} s {cell}", *_lines(rows), sep="; ",
                      flush=True)  # fmt: skip
            gc.collect()
            torch.cuda.empty_cache()


def _lines(rows: list[dict[str, object]]) -> Iterator[str]:
    """Yield what the rows of a cell say."""
    for direction in get_args(Direction):
        those = [row for row in rows if row["direction"] == direction]
        said = (
            f"{r['contender']} {r['ran']} {r['tflops'] or r['note']} ({r['ours_is_faster_by']})"
            for r in those
        )
        yield f"{direction}: {', '.join(said)}"


def warm(cell: Cell) -> None:
    """Compile all that a cell needs, which then is in the caches on disk."""
    problem = Problem(cell)
    for name, attend in contenders():
        leaves = problem.leaves()
        try:
            torch.autograd.grad(problem.call(attend, leaves), leaves, problem.dout)
        except Exception as e:  # noqa: BLE001 - the run itself says what fails
            print(cell, name, type(e).__name__, str(e)[:3000], flush=True)
    torch.cuda.synchronize()
    print("compiled", cell, flush=True)


if __name__ == "__main__":
    main()
