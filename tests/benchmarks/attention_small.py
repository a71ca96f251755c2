"""Measure many short sequences: the time of one sequence, with and without a CUDA graph, and the
memory of attention.

    python -m tests.benchmarks.attention_small [--out DIR]

The shapes are FlashCore's nine: 8 heads of 64, float16, lengths 128, 256 and 512, batches of 8, 16
and 32. Peers are called in their cheapest way: torch's kernels as operations, below
scaled_dot_product_attention, which is measured, too, because users call it; flash-attn-4 by its own
function; FlashAttention-3 by vllm's operation. Contenders take turns, round by round. Inputs are
random and stay in the L2 cache, as the outputs of a previous layer would. Without a graph, 200
calls are launched, and the clock stops when the last one has finished.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gpudeck.accel.attention import BACKENDS, attention, choose, describe
from gpudeck.accel.attention.backends import fa3
from gpudeck.accel.attention.backends.fa4 import find_version
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.reference import reference
from tests.benchmarks.rows import RESULTS, context, spread, write

SHAPES = [(seq, batch) for seq in (128, 256, 512) for batch in (8, 16, 32)]
HEADS, DIM = 8, 64
ROUNDS, IN_GRAPH, EAGER_CALLS = 25, 20, 200
PACKAGES = ["torch", "triton"]
Call = Callable[[], Tensor]


def contenders(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Call]:
    """Return the contenders: ours by name, peers by their operations."""
    aten = torch.ops.aten
    found: dict[str, Call] = {
        "auto": lambda: attention(q, k, v),
        "triton": lambda: attention(q, k, v, backend="triton"),
        "hopper": lambda: attention(q, k, v, backend="hopper"),
        "peer: sdpa": lambda: scaled_dot_product_attention(q, k, v),
        "peer: flash": lambda: aten._scaled_dot_product_flash_attention(q, k, v)[0],
        "peer: cudnn": lambda: aten._scaled_dot_product_cudnn_attention(q, k, v, None, False)[0],
    }
    rows = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
    if fa3.find_library():
        BACKENDS["fa3"].load()
        laid_out = Inputs(*(t.transpose(1, 2) for t in rows))
        problem = describe(*laid_out[:3])
        found["peer: fa3"] = lambda: BACKENDS["fa3"].forward(laid_out, problem)[0]
    if find_version():
        from flash_attn.cute.interface import flash_attn_func

        found["peer: fa4"] = lambda: flash_attn_func(*rows)[0].transpose(1, 2)
    return found


def graph_of(call: Call) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_GRAPH):
            call()
    return graph


def graph_seconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(5):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / 5 / IN_GRAPH


def eager_seconds(call: Call) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(EAGER_CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / EAGER_CALLS


def shape_rows(seq: int, batch: int, about: dict[str, str]) -> list[dict[str, object]]:
    q, k, v = (
        torch.randn(batch, HEADS, seq, DIM, device="cuda", dtype=torch.float16) for _ in range(3)
    )
    calls = contenders(q, k, v)
    exact, plain = reference(q, k, v), reference(q, k, v, dtype=torch.float16)
    bound = 2 * float((plain - exact).abs().max()) + 1e-5
    errors = {name: float((call() - exact).abs().max()) for name, call in calls.items()}
    graphs = {name: graph_of(call) for name, call in calls.items()}
    chosen = choose(describe(q, k, v)).backend
    samples: dict[tuple[str, str], list[float]] = {}
    for turn in range(ROUNDS):
        names = list(calls)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            samples.setdefault((name, "graph"), []).append(
                graph_seconds(graphs[name]) * 1e6 / batch
            )
            samples.setdefault((name, "eager"), []).append(eager_seconds(calls[name]) * 1e6 / batch)
    rows = []
    for (name, how), times in samples.items():
        ran = f"auto: {chosen}" if name == "auto" else name
        right = {
            "error": f"{errors[name]:.3g}",
            "bound": f"{bound:.3g}",
            "passed": errors[name] <= bound,
        }
        rows.append(
            {
                **about,
                "seq": seq,
                "batch": batch,
                "contender": ran,
                "how": how,
                "unit": "us a sequence",
                **spread(times),
                **right,
            }
        )
    return rows


def memory_rows(about: dict[str, str]) -> list[dict[str, object]]:
    """Return the bytes beyond inputs, outputs and gradients, of both passes, causal, with 16 heads
    of 128.
    """
    rows = []
    for backend in ("hopper", "triton", "flash", "cudnn", "fa4", "math"):
        for seq in (4096, 8192, 16384, 32768):
            if backend == "math" and seq > 8192:
                continue
            q, k, v = (
                torch.randn(
                    1, 16, seq, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True
                )
                for _ in range(3)
            )
            try:
                choose(describe(q, k, v, causal=True), backend, "backward")
            except ValueError as e:
                print(f"memory: {e}", flush=True)
                break
            dout = torch.randn_like(q)
            found = {}
            for what in (
                "forward",
                "both passes",
                "forward",
                "both passes",
            ):  # the first call allocates workspaces that are kept
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                out = attention(q, k, v, causal=True, backend=backend)
                outputs = 1 if what == "forward" else 4
                grads = () if what == "forward" else torch.autograd.grad(out, (q, k, v), dout)
                torch.cuda.synchronize()
                found[what] = (
                    torch.cuda.max_memory_allocated()
                    - before
                    - outputs * q.numel() * q.element_size()
                )
                del out, grads
            rows += [
                {
                    **about,
                    "backend": backend,
                    "seq": seq,
                    "pass": p,
                    "bytes a token beyond": round(b / seq),
                }
                for p, b in found.items()
            ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    about = context(
        torch.cuda.get_device_name(), PACKAGES + (["flash-attn-4"] if find_version() else [])
    )
    rows = []
    for seq, batch in SHAPES:
        found = shape_rows(seq, batch, about)
        rows += found
        for how in ("graph", "eager"):
            line = {str(r["contender"]): r["median"] for r in found if r["how"] == how}
            print(
                f"S{seq} B{batch} {how}: {', '.join(f'{n} {t:.2f}' for n, t in line.items())}",
                flush=True,
            )
        write("attention_small", rows, out)
    memory = memory_rows(about)
    write("attention_memory", memory, out)
    for r in memory:
        print(r["backend"], r["seq"], r["pass"], r["bytes a token beyond"], "bytes a token")


if __name__ == "__main__":
    main()
