"""Decode speed of our RWKV-7 on one CPU thread beside the `rwkv` package's, interleaved.

    python -m tests.benchmarks.rwkv_decode

Writes results/rwkv_decode.csv: median tokens a second over the rounds and their spread, for each implementation.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from scheduler.devices.cpu import cpu_name
from tests.benchmarks.rows import context, spread, write

LAYERS, CHANNELS, VOCABULARY = 8, 320, 8192
ROUNDS, TOKENS, WARM_UP = 9, 64, 8


def rate(forward: Callable, tokens: int) -> float:
    """Greedy tokens a second from a short prompt on."""
    logits, state = forward([1, 2, 3], None)
    for _ in range(WARM_UP):
        logits, state = forward([int(logits.argmax())], state)
    began = time.perf_counter()
    for _ in range(tokens):
        logits, state = forward([int(logits.argmax())], state)
    return tokens / (time.perf_counter() - began)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the package's, at import
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "assistant"))
    os.environ["RWKV_V7_ON"] = "1"
    from rwkv.model import RWKV
    from rwkv_models import random_model

    from assistant.model import RWKV7

    tensors = random_model(LAYERS, CHANNELS, VOCABULARY)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(tensors, Path(folder) / "model.pth")
        contenders = {"gpudeck": RWKV7.load(Path(folder) / "model.pth").forward, "rwkv": RWKV(f"{folder}/model", "cpu fp32").forward}
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, forward in contenders.items():
                rates[name].append(rate(forward, TOKENS))
    what = {"parameters": sum(t.numel() for t in tensors.values()), "dtype": "float32", "threads": 1}
    where = context(cpu_name(), ["torch", "rwkv"])
    rows = [{"implementation": name, "unit": "tok/s", **spread(found), **what, **where} for name, found in rates.items()]
    for row in rows:
        print(f"{row['implementation']}: {row['median']} tok/s (from {row['min']} to {row['max']})")
    print(write("rwkv_decode", rows))


if __name__ == "__main__":
    main()
