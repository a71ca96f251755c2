"""Judge the first choice of `auto` on shapes that a seed draws.

    python -m tests.benchmarks.attention_first_choice --seed 44 --count 60 [--limit 300] [--out DIR]

`auto` chooses by the shipped tables and by what they predict; it has measured nothing. Its choice
is timed in turn with every backend that can compute the pass, as CUDA graphs, each in its own
layout, on tensors that together exceed the cache. Batch, heads, head size, lengths, causality and
the query heads that share a key head are drawn from what models use; a shape has at most 2**37
products, so that it takes milliseconds. What `auto` chooses where flash-attn-4 is absent is judged
by the same times. The table gets a row after each pass, and no pass begins once --limit seconds
have passed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from gpudeck.accel.runtime.timing import timing_of
from tests.benchmarks.attention_contenders import OWN, PEER_BACKENDS, Runner, captured
from tests.benchmarks.attention_draws import CUDA
from tests.benchmarks.attention_shapes import ModelShape
from tests.benchmarks.rows import RESULTS, context, merge
from tests.benchmarks.turns import in_turn

DIMS = (32, 64, 64, 72, 80, 96, 112, 128, 128, 160, 192, 256)
GROUPS = (1, 1, 1, 2, 4, 8, 16)
HEADS = (4, 8, 12, 16, 20, 25, 32, 40, 48, 64, 96, 128)
MOST_PRODUCTS, MOST_ELEMENTS = 1 << 37, 1 << 28
"""Products of a query, a key and an element; elements of the queries."""
LAYOUT_FREE = (*OWN, *PEER_BACKENDS)
FA4 = "fa4"


def draw_shapes(seed: int, count: int) -> Iterator[ModelShape]:
    """Yield as many shapes as asked for, the same for the same seed."""
    rng = random.Random(seed)
    while count:
        length = round(2 ** rng.uniform(4, 15))
        if rng.random() < 0.7:
            length = 1 << (length - 1).bit_length()
        batch = round(2 ** rng.uniform(0, 7))
        heads, dim, group = rng.choice(HEADS), rng.choice(DIMS), rng.choice(GROUPS)
        causal = rng.random() < 0.6
        products = batch * heads * length * length * dim // (2 if causal else 1)
        held = batch * heads * length * dim
        if heads % group or products > MOST_PRODUCTS or held > MOST_ELEMENTS:
            continue
        name = f"{batch} x {heads}/{heads // group} x {length}, {dim}{', causal' * causal}"
        yield ModelShape(
            "drawn", name, batch, heads, heads // group, length, length, dim, causal=causal
        )
        count -= 1


def judge(shape: ModelShape, direction: str, seconds: float) -> dict[str, object]:
    """Return the row of a pass: what was chosen, its time, and the fastest backend's."""
    runner = Runner(shape, direction)  # type: ignore[arg-type]
    chosen = runner.chosen
    rated = {c.backend: c.tflops for c in chosen.candidates if c.tflops and c.refusal is None}
    rated.pop(FA4, None)
    alone = max(rated, key=rated.__getitem__, default="")
    calls, failed = {}, []
    for name, make in runner.contenders():
        if name == "auto" or name not in LAYOUT_FREE:
            continue
        try:
            calls[name] = captured(make(), autograd=False)
        except Exception as e:  # noqa: BLE001 - a backend that fails must not end the others
            failed.append(f"{name}: {type(e).__name__}")
        torch.cuda.synchronize()
    loops = in_turn(list(calls.values()), seconds, CUDA)
    us = {
        name: timing_of([1e3 * ms / len(runner.sets) for ms in loop.samples_ms]).median
        for name, (loop, _) in zip(calls, loops, strict=True)
    }
    best = min(us, key=us.__getitem__)
    peers = [us[name] for name in us if name not in OWN]
    own = us.get(chosen.backend)
    others = [us[name] for name in us if name != FA4]
    return {
        **{n: getattr(shape, n) for n in ("name", "batch", "heads", "kv_heads", "seq_q")},
        **{"head_dim": shape.head_dim, "causal": shape.causal, "direction": direction},
        **{"chosen": chosen.backend, "basis": chosen.basis, "us": f"{own:.5g}" if own else ""},
        **{"best": best, "best_us": f"{us[best]:.5g}"},
        "of_best": f"{us[best] / own:.4f}" if own else "",
        "of_best_peer": f"{min(peers) / own:.4f}" if own and peers else "",
        "without_fa4": alone,
        "of_best_without_fa4": f"{min(others) / us[alone]:.4f}" if alone in us else "",
        "all": " ".join(f"{n}={t:.5g}" for n, t in sorted(us.items(), key=lambda x: x[1])),
        "note": "; ".join(failed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=44)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.05, help="for each backend")
    parser.add_argument("--limit", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    began = time.monotonic()
    where = context(torch.cuda.get_device_name(0), ["torch", "triton"])
    keys = ("name", "direction", "device")
    for shape in draw_shapes(asked.seed, asked.count):
        for direction in ("forward", "backward"):
            if time.monotonic() - began > asked.limit:
                return
            row = judge(shape, direction, asked.seconds) | {"seed": asked.seed, **where}
            merge("attention_first_choice", [row], keys, asked.out)
            print(f"{row['of_best']:6} {row['of_best_without_fa4']:6} {direction:8} {row['name']}:"
                  f" {row['chosen']}; {row['all']}", flush=True)  # fmt: skip
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
