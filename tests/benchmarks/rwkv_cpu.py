"""Compare our engine with the `rwkv` package on a CPU.

    python -m tests.benchmarks.rwkv_cpu MODEL

Decode, prefill and decode of a batch are measured in turn. The rows go to results/rwkv_cpu.csv: the
tokens a second over the rounds with their spread, for each implementation, on one thread and, as
the engine can, on two; the difference of the logits after a prompt from the package's, and of int8
weights from fp32; the longest wait of a request to stop while a prompt is read; and the cost of
loading the World vocabulary.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch

from gpudeck.accel.rwkv import weights
from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.scheduler.devices.cpu import cpu_name
from tests.benchmarks.rows import context, spread, write

ROUNDS, TOKENS, WARM_UP, PROMPT, BATCH = 9, 64, 8, 512, 8
DTYPES = {"fp32": torch.float32, "int8": torch.int8}
_LOADING = """
import os, sys, time
from gpudeck.accel.rwkv.tokenizer import Tokenizer

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

before, began = resident(), time.perf_counter()
kept = Tokenizer.load(sys.argv[1])
print(time.perf_counter() - began, resident() - before)
"""


def decode(forward: Callable) -> float:
    """Return the greedy tokens a second after a short prompt."""
    logits, state = forward([1, 2, 3], None)
    for _ in range(WARM_UP):
        logits, state = forward([int(logits.argmax())], state)
    began = time.perf_counter()
    for _ in range(TOKENS):
        logits, state = forward([int(logits.argmax())], state)
    return TOKENS / (time.perf_counter() - began)


def prompt(vocabulary: int) -> list[int]:
    return [(i * 37) % vocabulary for i in range(PROMPT)]


def prefill(forward: Callable, vocabulary: int) -> float:
    """Return the tokens a second of a prompt."""
    tokens = prompt(vocabulary)
    began = time.perf_counter()
    forward(tokens, None)
    return PROMPT / (time.perf_counter() - began)


def with_threads(count: int, measure: Callable[[], float]) -> float:
    torch.set_num_threads(count)
    try:
        return measure()
    finally:
        torch.set_num_threads(1)


def longest_wait(model) -> float:
    """Return the milliseconds between two checks for a stop while a prompt is read."""
    looks = [time.perf_counter()]
    model.forward(prompt(model.vocabulary), None, lambda: looks.append(time.perf_counter()))
    return 1e3 * max(after - before for before, after in pairwise(looks))


def batched(model) -> float:
    """Return the greedy tokens a second of all sequences of a batch together."""
    logits, state = model.step(list(range(BATCH)), model.fresh(BATCH))
    began = time.perf_counter()
    for _ in range(TOKENS):
        logits, state = model.step(logits.argmax(1).tolist(), state)
    return BATCH * TOKENS / (time.perf_counter() - began)


def vocabulary() -> tuple[list[float], list[float]]:
    """Return the seconds and MB of loading the World vocabulary, each time in a new process."""
    from tests.unit.accel.rwkv.rwkv_models import vocabulary_file

    command = [sys.executable, "-c", _LOADING, str(vocabulary_file())]
    told = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(ROUNDS)
    ]
    return [float(seconds) for seconds, _ in told], [float(size) for _, size in told]


def contenders(
    ours: Mapping[str, RWKV7], peer: Callable, size: int
) -> dict[tuple[str, str, int], Callable[[], float]]:
    """Return the tokens a second by implementation, task and threads."""
    found: dict[tuple[str, str, int], Callable[[], float]] = {}
    for threads in (1, 2):
        for name, forward in (
            *(("gpudeck " + name, model.forward) for name, model in ours.items()),
            ("rwkv fp32", peer),
        ):
            found[name, "decode", threads] = lambda forward=forward: decode(forward)
            found[name, "prefill", threads] = lambda forward=forward: prefill(forward, size)
    for name, model in ours.items():
        found["gpudeck " + name, f"decode, batch {BATCH}", 1] = lambda model=model: batched(model)
    return found


def row(
    who: str, did: str, unit: str, found: Sequence[float], threads: int = 1
) -> dict[str, object]:
    return {"implementation": who, "what": did, "unit": unit, "threads": threads, **spread(found)}


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # raised by the package on import
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "assistant"))
    os.environ["RWKV_V7_ON"] = "1"
    from rwkv.model import RWKV

    tensors = {name: tensor.float() for name, tensor in weights.load(sys.argv[1]).items()}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(tensors, Path(folder) / "model.pth")
        ours = {
            name: RWKV7.load(Path(folder) / "model.pth", dtype=dtype)
            for name, dtype in DTYPES.items()
        }
        peer = RWKV(f"{folder}/model", "cpu fp32")
    size = ours["fp32"].vocabulary
    measured = contenders(ours, peer.forward, size)
    rates: dict[tuple[str, str, int], list[float]] = {key: [] for key in measured}
    for number in range(ROUNDS + 1):
        for (who, did, threads), measure in measured.items():
            rate = with_threads(threads, measure)
            if number:  # the first round compiles kernels
                rates[who, did, threads].append(rate)
    rows = [row(who, did, "tok/s", found, threads) for (who, did, threads), found in rates.items()]
    logits = {name: model.forward(prompt(size))[0] for name, model in ours.items()}
    theirs = peer.forward(prompt(size), None)[0]
    rows.append(
        row(
            "gpudeck fp32",
            "logits, from those of the package",
            "relative",
            [distance(logits["fp32"], theirs)],
        )
    )
    rows.append(
        row(
            "gpudeck int8",
            "logits, from those in fp32",
            "relative",
            [distance(logits["int8"], logits["fp32"])],
        )
    )
    rows.append(
        row(
            "gpudeck fp32",
            "longest wait to stop a prompt",
            "ms",
            [longest_wait(ours["fp32"]) for _ in range(ROUNDS)],
        )
    )
    seconds, memory = vocabulary()
    rows += [
        row("gpudeck", "World vocabulary, load", "s", seconds),
        row("gpudeck", "World vocabulary, memory", "MB", memory),
    ]
    where = {
        "parameters": sum(t.numel() for t in tensors.values()),
        **context(cpu_name(), ["torch", "numba", "rwkv"]),
    }
    for told in rows:
        print(
            f"{told['implementation']}, {told['what']}: {told['median']} {told['unit']} "
            f"(from {told['min']} to {told['max']})"
        )
    print(write("rwkv_cpu", [told | where for told in rows]))


if __name__ == "__main__":
    main()
