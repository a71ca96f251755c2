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
ratio. MLA's absorbed form has no ratio, as torch computes it without a fused kernel here:
attention_decoding measures it beside FlashAttention-3. Our own kernels take part by name, which
tells a wrong choice from a slow kernel. The rows of a pass replace those that the file has of it.
Processes that name the same folder share the passes (see `shared_gpu`); --warm only compiles. With
--grid the shapes are those of attention_grid, which the tables contain, and the file is
attention_grid_peers.csv.
"""

from __future__ import annotations

import argparse
import csv
import gc
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from gpudeck.accel.attention.dispatch import refuse
from gpudeck.accel.result import Direction
from gpudeck.accel.runtime.timing import timing_of
from gpudeck.accel.workloads.catalog import TOKENS, WIDTH
from tests.benchmarks.attention_contenders import (
    JUDGED,
    OWN,
    PEER_BACKENDS,
    Contender,
    Runner,
    captured,
)
from tests.benchmarks.attention_draws import CUDA
from tests.benchmarks.attention_exact import errors, truth
from tests.benchmarks.attention_grid import LENGTHS
from tests.benchmarks.attention_judged import misses, summary
from tests.benchmarks.attention_shapes import SHAPES, ModelShape
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.rows import RESULTS, context, installed, merge
from tests.benchmarks.shared_gpu import SharedGpu
from tests.benchmarks.turns import in_turn

PACKAGES = (
    "torch", "triton", "nvidia-cudnn-cu13", "flash-attn-4", "nvidia-cutlass-dsl", "vllm"
)  # fmt: skip


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
                share, error = errors(calls[0], known)
                row |= {"error": f"{error:.3g}", "of_bound": f"{share:.3g}"}
                if share > 1:
                    row["note"] = "wrong"
                else:
                    row["call"] = captured(calls, autograd)
                if name in JUDGED:
                    row |= {"ran": runner.chosen.backend, "why": str(runner.chosen.reason)[:160]}
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
    # of MLA's absorbed form torch has no fused kernel, and nothing to be judged by
    rivals = () if shape.absorbed else (n for n in medians if n not in (*JUDGED, *OWN))
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
    return refuse(shape.problem(CUDA), backend, direction) is None


def _written(
    shape: ModelShape,
    direction: Direction,
    options: argparse.Namespace,
    skip: Sequence[str],
    gpu: SharedGpu,
) -> str:
    """Measure a pass and write its rows into the file; return a line that sums them up."""
    rows, line = measured(shape, direction, options.seconds, options.limit, skip, gpu)
    where = context(torch.cuda.get_device_name(), installed(PACKAGES), SOURCES["attention_zoo"])
    name = "attention_grid_peers" if options.grid else "attention_zoo"
    merge(name, [row | where for row in rows], ("name", "direction"), options.out)
    return line


if __name__ == "__main__":
    sys.exit(main())
