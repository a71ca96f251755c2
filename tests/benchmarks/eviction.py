"""Measure how soon a job gets a GPU that is leased to the assistant, and what that costs the job.

    python -m tests.benchmarks.eviction [--trials 100] [--pairs 10] [--out DIR]

Needs a machine with an NVIDIA GPU that nobody uses. In a trial, a host with a model of 3 GB
(RWKV-7, 1.5 billion random weights) writes text on the GPU, under a lease, and leaves as the
assistant does when a job is submitted; NVML is asked every millisecond for the free memory. In a
pair, the same job of about ten seconds runs once with such a host and once on the idle machine, in
turn. Jobs ask for all GPUs, because the host gets the last one. The rows go to
results/eviction.csv; an interrupted run reports what it measured. This process creates no CUDA
context, which would take memory on the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pynvml as nv

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.gpu_probe import need_gpu
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.support import eventually, state_folder

SLACK = 256 * 2**20
"""Bytes by which the free memory after the host may be less than before it."""
PATIENCE_S = 60.0
Samples = dict[tuple[str, str], list[float]]
"""The measured values, by name and unit."""

HOST = """
import os, sys, threading, time
import torch
from gpudeck.scheduler.gpu_lease import GpuLease
from gpudeck.scheduler.protocol.errors import UserError
from tests.benchmarks.rwkv_gpu import SHAPES, ours, random_weights
sys.stdin.readline()
evicted = threading.Event()
lease = GpuLease(lambda why: evicted.set())
end = time.monotonic() + 60
while True:
    try:
        lease.take(3 * 2**30)
        break
    except UserError:
        if time.monotonic() > end:
            raise
        time.sleep(0.05)
with torch.inference_mode():
    model = ours(random_weights(*SHAPES["1.5B"]), torch.bfloat16)
    torch.cuda.empty_cache()
    logits, state = model.step([1], model.fresh(1))
    print("resident", flush=True)
    while not evicted.is_set():  # a token, and a look at the flag
        logits, state = model.step(logits.argmax(1).tolist(), state)
os._exit(0)
"""
BRIEF = "import time; print(time.monotonic())"
LONG = """
import time
import torch
a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
for _ in range(5000):
    b = a @ a
torch.cuda.synchronize()
print(time.monotonic())
"""


class Memory:
    """Read the free memory of the last GPU, which is the one that is leased."""

    def __init__(self) -> None:
        nv.nvmlInit()
        self.gpus = int(nv.nvmlDeviceGetCount())
        self._handle = nv.nvmlDeviceGetHandleByIndex(self.gpus - 1)
        self.name = str(nv.nvmlDeviceGetName(self._handle))

    def free(self) -> int:
        return int(nv.nvmlDeviceGetMemoryInfo(self._handle).free)

    @contextlib.contextmanager
    def until_free(self, least: int) -> Iterator[list[float]]:
        """Yield a list that receives the moment (monotonic seconds) at which `least` bytes were
        free.

        A thread asks every millisecond.
        """
        moments: list[float] = []

        def look() -> None:
            end = time.monotonic() + PATIENCE_S
            while self.free() < least and time.monotonic() < end:
                time.sleep(0.001)
            moments.append(time.monotonic())

        thread = threading.Thread(target=look)
        thread.start()
        yield moments
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.eviction")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    need_gpu()
    memory = Memory()
    with tempfile.TemporaryDirectory() as base, state_folder(Path(base) / "home"):
        settings.save(Settings(source="nvml", idle_dwell_s=0.0, idle_util_percent=100.0))
        with Client() as deck:
            eventually(
                lambda: (seen := deck.snapshot().devices) and all(s.reading for s in seen),
                PATIENCE_S,
            )
            if strangers := [
                p.pid for s in deck.snapshot().devices for p in s.reading.processes if p.foreign
            ]:  # type: ignore[union-attr]
                sys.stderr.write(
                    f"a GPU is in use by process {strangers[0]}: a figure would be of no use\n"
                )
                return 1
            took: Samples = {}
            try:
                with contextlib.closing(Hosts()) as hosts:
                    _trials(deck, memory, hosts, args.trials, took)
                    _pairs(deck, memory, hosts, args.pairs, took)
            finally:
                rows = _rows(took)
                if rows:
                    where = context(memory.name, ["torch", "nvidia-ml-py"])
                    print(
                        write("eviction", [{**row, **where} for row in rows], args.out),
                        *rows,
                        sep="\n",
                        flush=True,
                    )
    return 0


class Hosts:
    """Keep hosts ready that have imported everything, because importing torch takes seconds."""

    def __init__(self, ahead: int = 4) -> None:
        self._ready = deque(self._started() for _ in range(ahead))

    def close(self) -> None:
        for process in self._ready:
            process.kill()
            process.communicate()

    @staticmethod
    def _started() -> subprocess.Popen[str]:
        environment = {**os.environ, ASSISTANT_MARK: "1"}
        return subprocess.Popen(
            [sys.executable, "-c", HOST],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @contextlib.contextmanager
    def resident(self, memory: Memory, before: int) -> Iterator[None]:
        """Yield a host with a lease, and its memory on the GPU; it has left at the end."""
        self._ready.append(self._started())
        process = self._ready.popleft()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write("begin\n")
            process.stdin.flush()
            if process.stdout.readline() != "resident\n":
                raise SystemExit("the host got no lease, or no memory")
            eventually(lambda: memory.free() < before - 3 * 2**30 + SLACK, PATIENCE_S)
            yield
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.communicate()


def _trials(deck: Client, memory: Memory, hosts: Hosts, count: int, took: Samples) -> None:
    """Return the milliseconds from `submit` to its reply, to the free memory and to the job's first
    instruction.
    """
    for number in range(count):
        alone = _run(deck, memory.gpus, BRIEF)
        before = memory.free()
        with hosts.resident(memory, before), memory.until_free(before - SLACK) as freed:
            began = time.monotonic()
            job = deck.submit([sys.executable, "-c", BRIEF], gpus=memory.gpus)
            acknowledged = 1e3 * (time.monotonic() - began)
            begins = _said(deck, job.id)
        freed_ms, begins_ms = 1e3 * (freed[0] - began), 1e3 * (begins - began)
        found = {
            "submit acknowledged": acknowledged,
            "memory free": freed_ms,
            "job begins": begins_ms,
            "job begins, empty machine": alone,
        }
        for what, milliseconds in found.items():
            took.setdefault((what, "ms"), []).append(milliseconds)
        print(
            f"trial {number + 1}: memory free after {freed_ms:.0f} ms, "
            f"the job starts after {begins_ms:.0f} ms",
            flush=True,
        )


def _pairs(deck: Client, memory: Memory, hosts: Hosts, count: int, took: Samples) -> None:
    """Return the seconds from `submit` to the end of the work, with a host to evict and without, in
    turn.
    """
    for number in range(count):
        with hosts.resident(memory, memory.free()):
            evicted = _run(deck, memory.gpus, LONG) / 1e3
        alone = _run(deck, memory.gpus, LONG) / 1e3
        took.setdefault(("work done, host evicted", "s"), []).append(evicted)
        took.setdefault(("work done, empty machine", "s"), []).append(alone)
        took.setdefault(("slow-down of the pairs", "%"), []).append(100 * (evicted / alone - 1))
        print(
            f"pair {number + 1}: {evicted:.2f} s with a host to be evicted, {alone:.2f} s without",
            flush=True,
        )


def _run(deck: Client, gpus: int, code: str) -> float:
    """Return the milliseconds from `submit` to the moment that the job prints."""
    began = time.monotonic()
    job = deck.submit([sys.executable, "-c", code], gpus=gpus)
    return 1e3 * (_said(deck, job.id) - began)


def _said(deck: Client, job: int) -> float:
    """Return the moment that the job printed, once it has ended."""
    ended = deck.wait(job, 10 * PATIENCE_S)
    if ended.status != "done":
        raise SystemExit(
            f"job {job} is {ended.status}: {deck.log(job).decode(errors='replace')[-500:]}"
        )
    return float(deck.log(job))


def _rows(took: Samples) -> list[dict[str, object]]:
    return [
        {"from enqueue to": what, "unit": unit, **spread(samples)}
        for (what, unit), samples in took.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
