"""How true the live TFLOP/s are: the probe's hardware counters against FLOPs that were counted, on a Hopper GPU.

    python -m tests.benchmarks.tflops_truth [--out DIR]

Each case runs for some seconds in turn, the whole list twice; inputs are random. The probe is the real one, a process of its own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from scheduler.devices.model import Reading
from scheduler.devices.probe import DECODE, Readings
from tests.benchmarks.rows import RESULTS, context, write

SECONDS, ROUNDS, N, TOKENS = 4.0, 2, 8192, 16384
Call = Callable[[], object]


class Probe:
    """The real probe, listened to."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "scheduler.devices.probe", "nvml", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if isinstance(message := DECODE(line), Readings):
                self.readings.append(message.readings[0])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def gemm_cases() -> list[tuple[str, float, Call]]:
    flops = 2.0 * N**3
    a, b = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    a16, b16, a32, b32 = a.half(), b.half(), a.float(), b.float()
    a8, b8, one = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t(), torch.ones((), device="cuda")

    def float32(tf32: bool) -> Call:
        def call() -> object:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            return a32 @ b32

        return call

    return [
        ("gemm bf16", flops, lambda: a @ b),
        ("gemm fp16", flops, lambda: a16 @ b16),
        ("gemm fp32", flops, float32(False)),
        ("gemm tf32", flops, float32(True)),
        ("gemm fp8", flops, lambda: torch._scaled_mm(a8, b8, one, one, out_dtype=torch.bfloat16)),
    ]


def attention_cases() -> list[tuple[str, float, Call]]:
    cases = []
    for d in (64, 128):
        q, k, v = (torch.randn(1, 2048 // d, TOKENS, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

            def call(q: torch.Tensor = q, k: torch.Tensor = k, v: torch.Tensor = v, backend: SDPBackend = backend) -> object:
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v)

            cases.append((f"attention d{d} {backend.name.lower()}", 4.0 * 2048 * TOKENS**2, call))
    return cases


def run(call: Call, flops: float, probe: Probe) -> tuple[float, list[Reading]]:
    """Counted TFLOP/s, and the readings that lie wholly within the loop."""
    call()
    torch.cuda.synchronize()
    start, calls, ahead = time.time(), 0, deque[torch.cuda.Event]()
    while time.time() - start < SECONDS:
        call()
        calls += 1
        event = torch.cuda.Event()
        event.record()
        ahead.append(event)
        if len(ahead) > 8:
            ahead.popleft().synchronize()
    torch.cuda.synchronize()
    end = time.time()
    time.sleep(0.6)  # the last interval is still being read
    return calls * flops / (end - start) / 1e12, [r for r in probe.readings if start + 0.55 < r.time < end]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    probe = Probe()
    where = context(torch.cuda.get_device_name(), ["torch", "nvidia-ml-py"])
    rows = []
    for turn in range(ROUNDS):
        for name, flops, call in gemm_cases() + attention_cases():
            counted, readings = run(call, flops, probe)
            shown = [r.values["tflops_gpm"] for r in readings]
            mean = statistics.mean(shown)
            rows.append(
                {
                    "case": name,
                    "round": turn,
                    "counted_tflops": round(counted, 2),
                    "shown_mean": round(mean, 2),
                    "shown_min": round(min(shown), 2),
                    "shown_max": round(max(shown), 2),
                    "ratio": round(mean / counted, 4),
                    "clock_mhz": round(statistics.mean(r.values["clock_sm"] for r in readings)),
                    "watts": round(statistics.mean(r.values["power"] for r in readings)),
                    "throttle": readings[-1].texts["throttle"],
                    **where,
                }
            )
            print(f"{name:36} counted {counted:7.1f}  shown {mean:7.1f}  ratio {mean / counted:.3f}", flush=True)
    probe.close()
    print(write("tflops_truth_h100", rows, out))


if __name__ == "__main__":
    main()
