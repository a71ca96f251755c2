"""Which way out of a GPU is the shortest: how soon its memory is free after a process with 3 GiB there is told to leave.

On a machine with an NVIDIA GPU that nobody uses:

python -m tests.benchmarks.eviction_ends [--trials 10]

The ways are taken in turn. Two moments are told apart, by NVML asked every millisecond: the 3 GiB are free, and all is but for SLACK,
the context among it. Rows go to results/eviction_ends.csv. This process makes no CUDA context: it would be on the GPU itself.
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

WEIGHTS = 3 * 2**30

BY_TORCH = f"""
import os, sys, threading
import torch
sys.stdin.readline()
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
weights = torch.zeros({WEIGHTS} // 2, dtype=torch.bfloat16, device="cuda")
block = weights[: 4096 * 4096].view(4096, 4096)
state = torch.zeros(4096, 1, dtype=torch.bfloat16, device="cuda")
torch.cuda.synchronize()
print("resident", flush=True)
while not told.is_set():  # a token: some products of a matrix and a vector, and a look at the flag
    for _ in range(24):
        state = block @ state
    torch.cuda.synchronize()
"""

BY_DRIVER = f"""
import ctypes, os, sys
sys.stdin.readline()
cuda = ctypes.CDLL("libcuda.so.1")
device, context, weights = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
             cuda.cuMemAlloc_v2(ctypes.byref(weights), ctypes.c_size_t({WEIGHTS}))):
    assert code == 0, code
print("resident", flush=True)
sys.stdin.readline()
"""

EXIT = "os._exit(0)\n"
WAYS = {
    "exit": BY_TORCH + EXIT,
    "free the weights, then exit": BY_TORCH + "del weights, block\ntorch.cuda.empty_cache()\n" + EXIT,
    "reset the device, then exit": BY_TORCH + "torch.cuda.cudart().cudaDeviceReset()\n" + EXIT,
    "killed": BY_TORCH + "import signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "exit, in expandable segments": 'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"\n' + BY_TORCH + EXIT,
    "exit, without torch": BY_DRIVER + EXIT,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.eviction_ends")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    need_gpu()
    memory = Memory()
    os.environ["CUDA_VISIBLE_DEVICES"] = str(memory.gpus - 1)
    where = context(memory.name, ["torch", "nvidia-ml-py"])
    took: dict[str, dict[str, list[float]]] = {
        way: {"the 3 GiB are free": [], "all is free": [], "the process has ended": []} for way in WAYS
    }
    for _ in range(args.trials):
        for way in WAYS:
            for what, moment in _trial(memory, way).items():
                took[way][what].append(moment)
        rows = [{"way": way, "until": what, "unit": "ms", **spread(samples)} for way in WAYS for what, samples in took[way].items()]
        written = write("eviction_ends", [{**row, **where} for row in rows], args.out)
    for row in rows:
        print(row)
    print(written)
    return 0


def _trial(memory: Memory, way: str) -> dict[str, float]:
    """Milliseconds from the word to leave to what is watched for."""
    before = memory.free()
    with _resident(way) as process:
        eventually(lambda: memory.free() < before - WEIGHTS, PATIENCE_S)
        held = memory.free()
        with memory.until_free(held + WEIGHTS - SLACK) as weights, memory.until_free(before - SLACK) as all_of_it:
            began = time.monotonic()
            _tell(process)
            process.wait(PATIENCE_S)
            ended = time.monotonic()
    return {
        "the 3 GiB are free": 1e3 * (weights[0] - began),
        "all is free": 1e3 * (all_of_it[0] - began),
        "the process has ended": 1e3 * (ended - began),
    }


@contextlib.contextmanager
def _resident(way: str) -> Iterator[subprocess.Popen[str]]:
    """A process with its memory on the GPU."""
    process = subprocess.Popen([sys.executable, "-c", WAYS[way]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        _tell(process)
        if process.stdout is None or process.stdout.readline() != "resident\n":
            raise SystemExit(f"nothing could be put on the GPU ({way})")
        yield process
    finally:
        process.kill()
        process.communicate()


def _tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


if __name__ == "__main__":
    sys.exit(main())
