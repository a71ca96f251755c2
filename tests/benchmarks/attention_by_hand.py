"""Measure attention written by hand, and the same lines linked, beside torch's fused function.

    python -m tests.benchmarks.attention_by_hand [--seconds 0.05] [--out FOLDER] [--device cpu]

The speed-up that `gpudeck inject scan` predicts is computed from these rows. They have the columns
of the tables in `accel/attention/measured`; copy them to `accel/inject/measured/GPU.csv`.
"""

from __future__ import annotations

import argparse
import csv
import datetime
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.nn import functional

from gpudeck import accel
from gpudeck.accel.attention.table import Row
from gpudeck.accel.inject import link
from gpudeck.accel.inject.scores import SMALL as SMALLEST
from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.runtime.timing import measure_in_turn, timing_of
from tests.benchmarks.rows import RESULTS

TOKENS, WIDTH = 16384, 2048
SEQS = (512, 1024, 2048, 4096, 8192)
SMALL = (128, 256, 512)
"""Sequences that are also measured with 8 heads in a batch of 8."""
Shape = tuple[int, int, int, int, bool]
"""Batch, heads, sequence, head size, causal."""


def by_hand(q: Any, k: Any, v: Any, causal: bool) -> Any:
    att = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(*att.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        att = att.masked_fill(hidden, float("-inf"))
    return att.softmax(-1) @ v


def linked(q: Any, k: Any, v: Any, causal: bool) -> Any:
    att = link.scores(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(*att.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        att = att.masked_fill(hidden, float("-inf"))
    return link.attend(att.softmax(-1), v)


def sdpa(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def sdpa_linked(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return link.scaled_dot_product_attention(q, k, v, is_causal=causal)


WAYS: dict[str, Callable[..., Any]] = {
    "by hand": by_hand, "linked": linked, "sdpa": sdpa, "sdpa linked": sdpa_linked,
}  # fmt: skip


def shapes(cuda: bool) -> Iterator[Shape]:
    if not cuda:
        yield 1, 2, 128, 64, True
        return
    for dim, causal in product((64, 128), (True, False)):
        yield from ((8, 8, seq, dim, causal) for seq in SMALL)
        yield from ((batch, 16, 512, dim, causal) for batch in (8, 16))
        yield from ((TOKENS // seq, WIDTH // dim, seq, dim, causal) for seq in SEQS)


def measured(shape: Shape, seconds: float, about: dict[str, Any]) -> Iterator[Row]:
    batch, heads, seq, dim, causal = shape
    device, dtype = about["device"], torch.bfloat16
    q, k, v, dout = (
        torch.randn(batch, heads, seq, dim, device=device, dtype=dtype) for _ in "qkvo"
    )
    with torch.no_grad():
        forward = [partial(way, q, k, v, causal) for way in WAYS.values()]
        yield from _rows("forward", shape, forward, seconds, about)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    outs = [way(q, k, v, causal) for way in WAYS.values()]
    backward = [partial(torch.autograd.grad, out, leaves, dout, retain_graph=True) for out in outs]
    yield from _rows("backward", shape, backward, seconds, about)


def _rows(
    direction: str, shape: Shape, calls: list[Any], seconds: float, about: dict[str, Any]
) -> Iterator[Row]:
    batch, heads, seq, dim, causal = shape
    for call in (*calls, *calls):
        call()
    flop = 4 * batch * heads * seq * seq * dim * (2.5 if direction == "backward" else 1)
    loops = measure_in_turn(calls, seconds, about["device"], lambda *_: None, lambda _: None)
    for name, loop in zip(WAYS, loops, strict=True):
        t = timing_of(loop.samples_ms)
        tflops = flop * (0.5 if causal else 1) / t.median / 1e9
        us = [float(f"{ms * 1e3:.4g}") for ms in (t.median, t.p5, t.p95)]
        yield Row(about["gpu"], direction, "bfloat16", dim, causal, batch, heads, heads, seq, seq,
                  name, *us, float(f"{tflops:.4g}"), about["versions"], about["date"])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    SMALLEST["cuda"] = 0  # what is small is linked, too, to see what that costs
    accel.learning("off")  # the tables decide, by which the speed-up is predicted, too
    cuda = options.device == "cuda"
    versions = [f"torch {torch.__version__}"]
    if cuda:
        import triton

        versions.append(f"triton {triton.__version__}")
    about = {
        "gpu": find_device().name if cuda else "CPU",
        "device": torch.device(options.device),
        "versions": ", ".join(versions),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "attention_by_hand.csv").open("w", newline="") as file:
        sheet = csv.DictWriter(file, Row.__struct_fields__)
        sheet.writeheader()
        for shape in shapes(cuda):
            for row in measured(shape, options.seconds, about):
                sheet.writerow(msgspec.structs.asdict(row))
                print(row.direction, *shape, row.backend, row.microseconds, flush=True)
            file.flush()


if __name__ == "__main__":
    main()
