"""Time the `rwkv` package on a model, in a process of its own: `python -m ... MODEL DEVICE`.

Its import changes torch's settings and prints, and its loops cannot be interrupted; a process can
be ended at any time. The last line that it prints is a PackageSpeed as JSON.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.assistant.host_protocol import PackageSpeed, TokenRate

STRATEGIES = {"cpu": "cpu fp32", "cuda": "cuda fp16"}
ROUNDS = 5
DECODED, PROMPT = 32, 256
"""Tokens of a round, as for our own engine."""
_MAX_S = 20.0


def main(model: str, device: str) -> int:
    """Print the speed of the package."""
    import torch

    from gpudeck.accel.rwkv.weights import load

    os.environ |= {"RWKV_V7_ON": "1", "RWKV_CUDA_ON": "0", "RWKV_JIT_ON": "1"}
    tensors = load(model)
    with tempfile.TemporaryDirectory() as folder:  # the package reads .pth alone
        torch.save(tensors, Path(folder) / "model.pth")
        from rwkv.model import RWKV

        package = RWKV(f"{folder}/model", STRATEGIES[device])
    vocabulary = len(tensors["emb.weight"])
    prompt = [1 + (i * 37) % (vocabulary - 1) for i in range(PROMPT)]
    speed = PackageSpeed(
        f"rwkv {version('rwkv')}",
        STRATEGIES[device],
        _rate(lambda: _decode(package), DECODED),
        _rate(lambda: _prefill(package, prompt), PROMPT),
    )
    print(msgspec.json.encode(speed).decode(), flush=True)
    return 0


def _decode(package: Any) -> None:
    logits, state = package.forward([0], None)
    for _ in range(DECODED):
        logits, state = package.forward([int(logits.argmax())], state)


def _prefill(package: Any, prompt: list[int]) -> None:
    logits, _ = package.forward(prompt, None)
    float(logits[0])  # waits until a GPU has computed it


def _rate(run: Callable[[], None], tokens: int) -> TokenRate:
    """Return tokens per second over the rounds, after a first run that fills caches."""
    run()
    rates: list[float] = []
    end = time.monotonic() + _MAX_S
    while len(rates) < ROUNDS and (not rates or time.monotonic() < end):
        began = time.perf_counter()
        run()
        rates.append(tokens / (time.perf_counter() - began))
    return TokenRate(statistics.median(rates), min(rates), max(rates), len(rates))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
