"""Time prompts of an RWKV-7 on a GPU with the recurrence token by token and in chunks.

    python -m tests.benchmarks.rwkv_prompts [0.1B 1.5B] [--out FOLDER]

Weights are random. Whole pieces of 512 tokens are replayed as a graph; shorter prompts are launched
kernel by kernel. The error of the logits is relative to fp32, token by token.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from gpudeck.accel.rwkv import prompt
from tests.benchmarks.rows import RESULTS, context, write
from tests.benchmarks.rwkv_gpu import SHAPES, VOCABULARY, ours, random_weights, seconds

LENGTHS = (4096, 511, 256, 128, 64)
PROBE, ROUNDS = 700, 7
FROM = {"token by token": 1 << 30, "in chunks": 64}


def rows(name: str) -> Iterator[dict[str, object]]:
    """Measure a model in both forms and in 16 bits of both kinds."""
    where = context(torch.cuda.get_device_name(), ("torch", "triton"))
    tokens = [(i * 37) % VOCABULARY for i in range(max(LENGTHS))]
    weights = random_weights(*SHAPES[name])
    known = ours(weights, torch.float32).forward(tokens[:PROBE])[0].double()
    for dtype in (torch.bfloat16, torch.float16):
        for form, least in FROM.items():
            prompt.CHUNKS_FROM = least
            model = ours(weights, dtype)
            found = model.forward(tokens[:PROBE])[0].double()
            error = float((found - known).norm() / known.norm())
            for length in LENGTHS:
                part = tokens[:length]
                model.forward(part)
                times = [seconds(partial(model.forward, part)) for _ in range(ROUNDS)]
                middle = statistics.median(times)
                yield {
                    **where, "model": name, "dtype": str(dtype).removeprefix("torch."),
                    "recurrence": form, "tokens": length, "ms": f"{1e3 * middle:.4g}",
                    "ms_min": f"{1e3 * min(times):.4g}", "ms_max": f"{1e3 * max(times):.4g}",
                    "tokens_per_s": f"{length / middle:.5g}", "logits_error": f"{error:.3g}",
                }  # fmt: skip


def main() -> None:
    """Measure and write rwkv_prompts.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["0.1B", "1.5B"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    prompt.CHUNKED = (torch.bfloat16, torch.float16)
    found: list[dict[str, object]] = []
    for name in given.models:
        for row in rows(name):
            found.append(row)
            print(row, flush=True)
            write("rwkv_prompts", found, given.out)


if __name__ == "__main__":
    main()
