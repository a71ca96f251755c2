"""Find the fastest way for a process to free its GPU memory.

    python -m tests.benchmarks.eviction_ends [--trials 6]

Needs a machine with an NVIDIA GPU that nobody uses. A process with several GiB on the GPU is told
to leave, in one of several ways, in turn. NVML is asked every millisecond. Two moments are
measured: the allocated memory is free, and all but SLACK is free, including the context. The rows
go to results/eviction_ends.csv. This process creates no CUDA context, which would take memory on
the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.eviction import PATIENCE_S, SLACK, Memory
from tests.benchmarks.gpu_probe import need_gpu
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.support import eventually

GIB = 2**30
WEIGHTS = 3 * GIB

TORCH = f"""
import ctypes, os, signal, sys, threading
import torch
print("imported", flush=True)
sys.stdin.readline()
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
weights = torch.zeros({WEIGHTS} // 2, dtype=torch.bfloat16, device="cuda")
"""
IDLES = """
torch.cuda.synchronize()
print("resident", flush=True)
told.wait()
"""
COMPUTES = """
block = weights[: 4096 * 4096].view(4096, 4096)
state = torch.zeros(4096, 1, dtype=torch.bfloat16, device="cuda")
torch.cuda.synchronize()
print("resident", flush=True)
while not told.is_set():  # a token: some products of a matrix and a vector, and a look at the flag
    for _ in range(24):
        state = block @ state
    torch.cuda.synchronize()
"""
BY_TORCH = TORCH + COMPUTES
WITHOUT_CUBLAS = BY_TORCH.replace("block @ state", "(block * state.T).sum(1, keepdim=True)")
ENGINE = """
import ctypes, os, sys, threading
import torch
from tests.benchmarks.rwkv_gpu import PROBE, SHAPES, ours, random_weights
print("imported", flush=True)
sys.stdin.readline()
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
with torch.inference_mode():
    model = ours(random_weights(*SHAPES["1.5B"]), torch.bfloat16)
    torch.cuda.empty_cache()
    logits, state = model.step([1], model.fresh(1))
    PROMPT
    print("resident", flush=True)
    while not told.is_set():
        logits, state = model.step(logits.argmax(1).tolist(), state)
"""
PROMPTED = ENGINE.replace("PROMPT\n", "model.forward(PROBE)\n")


def by_driver(size: int) -> str:
    """Hold a context and `size` bytes, and nothing else."""
    return f"""
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
print("imported", flush=True)
sys.stdin.readline()
device, context, weights = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
             cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
             cuda.cuMemAlloc_v2(ctypes.byref(weights), ctypes.c_size_t({size}))):
    assert code == 0, code
print("resident", flush=True)
sys.stdin.readline()
"""


EXIT = "os._exit(0)\n"
RESET = 'assert ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0) == 0\n'
WAYS = {
    "exit": (WEIGHTS, BY_TORCH + EXIT),
    "free the weights, then exit": (
        WEIGHTS,
        BY_TORCH + "del weights, block\ntorch.cuda.empty_cache()\n" + EXIT,
    ),
    "reset the context, then exit": (WEIGHTS, BY_TORCH + RESET + EXIT),
    "killed": (WEIGHTS, BY_TORCH + "os.kill(os.getpid(), signal.SIGKILL)\n"),
    "exit, computed without cuBLAS": (WEIGHTS, WITHOUT_CUBLAS + EXIT),
    "reset the context, then exit, computed without cuBLAS": (
        WEIGHTS,
        WITHOUT_CUBLAS + RESET + EXIT,
    ),
    "exit, nothing was computed": (WEIGHTS, TORCH + IDLES + EXIT),
    "the engine, exit": (5 * GIB // 2, ENGINE.replace("PROMPT\n", "pass\n") + EXIT),
    "the engine after a prompt, exit": (5 * GIB // 2, PROMPTED + EXIT),
    "the engine after a prompt, reset the context": (5 * GIB // 2, PROMPTED + RESET + EXIT),
    "exit, without torch": (WEIGHTS, by_driver(WEIGHTS) + EXIT),
    "exit, without torch, 1/4 GiB": (GIB // 4, by_driver(GIB // 4) + EXIT),
    "exit, without torch, 12 GiB": (12 * GIB, by_driver(12 * GIB) + EXIT),
}
"""By name: the bytes that the process holds at least, and its program. The engine is RWKV-7 with
1.5 billion weights in bf16.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.eviction_ends")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    need_gpu()
    memory = Memory()
    os.environ["CUDA_VISIBLE_DEVICES"] = str(memory.gpus - 1)
    where = context(memory.name, ["torch", "nvidia-ml-py"])
    took: dict[str, dict[str, list[float]]] = {
        way: {"what it holds is free": [], "all is free": [], "the process has ended": []}
        for way in WAYS
    }
    for _ in range(args.trials):
        with _importing() as processes:
            for way, process in processes.items():
                for what, milliseconds in _trial(memory, WAYS[way][0], process).items():
                    took[way][what].append(milliseconds)
        rows = [
            {"way": way, "until": what, "unit": "ms", **spread(samples)}
            for way in WAYS
            for what, samples in took[way].items()
        ]
        written = write("eviction_ends", [{**row, **where} for row in rows], args.out)
    for row in rows:
        print(row)
    print(written)
    return 0


def _trial(memory: Memory, size: int, process: subprocess.Popen[str]) -> dict[str, float]:
    """Return the milliseconds from the request to leave to each of the two moments."""
    before = memory.free()
    _tell(process, "resident")
    eventually(lambda: memory.free() < before - size, PATIENCE_S)
    held = memory.free()
    slack = min(SLACK, size // 2)
    with (
        memory.until_free(held + size - slack) as weights,
        memory.until_free(before - slack) as all_of_it,
    ):
        began = time.monotonic()
        _tell(process)
        process.wait(PATIENCE_S)
        ended = time.monotonic()
    return {
        "what it holds is free": 1e3 * (weights[0] - began),
        "all is free": 1e3 * (all_of_it[0] - began),
        "the process has ended": 1e3 * (ended - began),
    }


@contextlib.contextmanager
def _importing() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Return a process for each way that has imported what it needs, and is not on the GPU yet."""
    processes = {
        way: subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for way, (_, program) in WAYS.items()
    }
    try:
        for process in processes.values():
            _hear(process, "imported")
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def _hear(process: subprocess.Popen[str], word: str) -> None:
    if process.stdout is None or process.stdout.readline() != f"{word}\n":
        raise SystemExit(f"nothing could be put on the GPU ({process.args!r})")


def _tell(process: subprocess.Popen[str], answer: str = "") -> None:
    """Start the next step of a process, and wait for `answer`."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    if answer:
        _hear(process, answer)


if __name__ == "__main__":
    sys.exit(main())
