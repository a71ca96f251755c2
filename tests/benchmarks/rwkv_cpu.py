"""Our RWKV-7 on one CPU thread beside the `rwkv` package's, in turn: decode, prefill, decode of a batch, and what int8 weights cost.

    python -m tests.benchmarks.rwkv_cpu

Writes results/rwkv_cpu.csv: tokens a second over the rounds with their spread, for each implementation; for int8 the relative error of
the logits after a prompt. A weight matrix of random numbers has no outliers: a trained model's error must be measured on that model.
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
ROUNDS, TOKENS, WARM_UP, PROMPT, BATCH = 9, 64, 8, 512, 8


def decode(forward: Callable) -> float:
    """Greedy tokens a second from a short prompt on."""
    logits, state = forward([1, 2, 3], None)
    for _ in range(WARM_UP):
        logits, state = forward([int(logits.argmax())], state)
    began = time.perf_counter()
    for _ in range(TOKENS):
        logits, state = forward([int(logits.argmax())], state)
    return TOKENS / (time.perf_counter() - began)


def prefill(forward: Callable) -> float:
    """Tokens a second of a prompt."""
    tokens = [(i * 37) % VOCABULARY for i in range(PROMPT)]
    began = time.perf_counter()
    forward(tokens, None)
    return PROMPT / (time.perf_counter() - began)


def batched(model) -> float:
    """Greedy tokens a second of all sequences of a batch together."""
    logits, state = model.step(list(range(BATCH)), model.fresh(BATCH))
    began = time.perf_counter()
    for _ in range(TOKENS):
        logits, state = model.step(logits.argmax(1).tolist(), state)
    return BATCH * TOKENS / (time.perf_counter() - began)


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
        ours = {
            name: RWKV7.load(Path(folder) / "model.pth", dtype=dtype) for name, dtype in (("fp32", torch.float32), ("int8", torch.int8))
        }
        peer = RWKV(f"{folder}/model", "cpu fp32")
    contenders: dict[tuple[str, str], Callable[[], float]] = {}
    for name, model in ours.items():
        contenders["gpudeck " + name, "decode"] = lambda model=model: decode(model.forward)
        contenders["gpudeck " + name, "prefill"] = lambda model=model: prefill(model.forward)
        contenders["gpudeck " + name, f"decode, batch {BATCH}"] = lambda model=model: batched(model)
    contenders["rwkv fp32", "decode"] = lambda: decode(peer.forward)
    contenders["rwkv fp32", "prefill"] = lambda: prefill(peer.forward)
    rates: dict[tuple[str, str], list[float]] = {key: [] for key in contenders}
    for number in range(ROUNDS + 1):
        for key, measure in contenders.items():
            rate = measure()
            if number:  # the first round compiles
                rates[key].append(rate)
    what = {"parameters": sum(t.numel() for t in tensors.values()), "threads": 1}
    where = context(cpu_name(), ["torch", "numba", "rwkv"])
    rows = [{"implementation": who, "what": did, "unit": "tok/s", **spread(found), **what, **where} for (who, did), found in rates.items()]
    exact, rounded = (model.forward(list(range(200)))[0] for model in ours.values())
    error = spread([float((rounded - exact).norm() / exact.norm())])
    rows.append({"implementation": "gpudeck int8", "what": "error of the logits", "unit": "relative", **error, **what, **where})
    for row in rows:
        print(f"{row['implementation']}, {row['what']}: {row['median']} {row['unit']} (from {row['min']} to {row['max']})")
    print(write("rwkv_cpu", rows))


if __name__ == "__main__":
    main()
