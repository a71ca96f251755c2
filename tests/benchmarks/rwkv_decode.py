"""Decode speed of our RWKV-7 on one CPU thread beside the `rwkv` package's, interleaved.

    python -m tests.benchmarks.rwkv_decode

Appends to results/rwkv_decode.csv: median tokens a second over the rounds and their spread, for each implementation.
"""

from __future__ import annotations

import csv
import datetime
import importlib.metadata
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

LAYERS, CHANNELS, VOCABULARY = 8, 320, 8192
ROUNDS, TOKENS, WARM_UP = 9, 64, 8
RESULTS = Path(__file__).parent / "results" / "rwkv_decode.csv"


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


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
    write(rates, sum(t.numel() for t in tensors.values()))


def write(rates: dict[str, list[float]], parameters: int) -> None:
    versions = {p: importlib.metadata.version(p) for p in ("torch", "rwkv")} | {"python": platform.python_version()}
    new = not RESULTS.exists()
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", newline="") as f:
        rows = csv.writer(f)
        if new:
            rows.writerow(
                [
                    "date",
                    "cpu",
                    "threads",
                    "dtype",
                    "parameters",
                    "implementation",
                    "tok_s_median",
                    "tok_s_min",
                    "tok_s_max",
                    "rounds",
                    "versions",
                ]
            )
        for name, found in rates.items():
            numbers = [f"{x:.1f}" for x in (statistics.median(found), min(found), max(found))]
            said = " ".join(f"{p} {v}" for p, v in versions.items())
            rows.writerow([datetime.date.today().isoformat(), cpu_name(), 1, "float32", parameters, name, *numbers, len(found), said])
            print(f"{name}: {numbers[0]} tok/s (from {numbers[1]} to {numbers[2]})")


if __name__ == "__main__":
    main()
