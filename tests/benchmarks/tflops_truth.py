"""How true the live TFLOP/s and TB/s are: the probe's hardware counters against work that was counted, on a Hopper GPU.

    python -m tests.benchmarks.tflops_truth [--out DIR]

Full load (where a large product meets the card's own power limit), busy for 30 and 60 % of the time, and small products with gaps
between them. Each case runs for some seconds in turn, the whole list twice; inputs are random. No setting of the card is touched.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.gpu_probe import Call, Probe, loop, need_gpu, torch_on_gpu
from tests.benchmarks.rows import RESULTS, context, write

SECONDS, ROUNDS, N, SMALL, TOKENS, WORDS = 6.0, 2, 8192, 2048, 16384, 2**30
AIM = 0.05


class Case(NamedTuple):
    name: str
    load: str
    duty: float
    field: str
    """What is compared: tflops_gpm, or bandwidth."""
    work: float
    """FLOP or bytes a call."""
    call: Call


def gemm_cases(torch: Any) -> list[Case]:
    def product(n: int, dtype: Any) -> Call:
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))

        def call() -> object:
            torch.backends.cuda.matmul.allow_tf32 = False
            return a @ b

        return call

    def fp8(n: int) -> Call:
        a, b = (torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)

    def tf32(n: int) -> Call:
        a, b = (torch.randn(n, n, device="cuda") for _ in range(2))

        def call() -> object:
            torch.backends.cuda.matmul.allow_tf32 = True
            return a @ b

        return call

    kinds = {"bf16": product(N, torch.bfloat16), "fp16": product(N, torch.float16), "fp8": fp8(N), "tf32": tf32(N)}
    cases = [Case(f"gemm {k}", "full", 1.0, "tflops_gpm", 2.0 * N**3, call) for k, call in kinds.items()]
    cases.append(Case("gemm fp32", "full", 1.0, "tflops_gpm", 2.0 * N**3, product(N, torch.float32)))
    for duty in (0.3, 0.6):
        load = f"busy {duty:.0%} of the time"
        cases += [Case(f"gemm {k}", load, duty, "tflops_gpm", 2.0 * N**3, kinds[k]) for k in ("bf16", "fp16", "fp8")]
    return [*cases, Case("gemm bf16", f"small, {SMALL}", 1.0, "tflops_gpm", 2.0 * SMALL**3, product(SMALL, torch.bfloat16))]


def attention_cases(torch: Any) -> list[Case]:
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    cases = []
    for d in (64, 128):
        q, k, v = (torch.randn(1, 2048 // d, TOKENS, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

            def call(q: Any = q, k: Any = k, v: Any = v, backend: Any = backend) -> object:
                with sdpa_kernel(backend):
                    return functional.scaled_dot_product_attention(q, k, v)

            name, work = f"attention d{d} {backend.name.lower().removesuffix('_attention')}", 4.0 * 2048 * TOKENS**2
            cases.append(Case(name, "full", 1.0, "tflops_gpm", work, call))
            if backend is SDPBackend.CUDNN_ATTENTION:
                cases.append(Case(name, "busy 30% of the time", 0.3, "tflops_gpm", work, call))
    return cases


def bandwidth_cases(torch: Any) -> list[Case]:
    """Copies far larger than any cache: each byte is read once and written once."""
    source = torch.randn(WORDS, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    return [
        Case("copy", load, duty, "bandwidth", 2.0 * 4 * WORDS, lambda: target.copy_(source))
        for load, duty in (("full", 1.0), ("busy 30% of the time", 0.3), ("busy 60% of the time", 0.6))
    ]


def measure(case: Case, probe: Probe) -> dict[str, object]:
    """One row: what was counted, what was shown in the same span, and how far they are apart."""
    calls, start, end = loop(case.call, SECONDS, case.duty, period=0.5 if case.field == "bandwidth" else 0.1)
    time.sleep(0.6)  # the last interval is still being read
    readings = probe.between(start, end)
    scale = 1e12 if case.field == "bandwidth" else 1.0
    counted = calls * case.work / (end - start) / 1e12
    shown = [r.values[case.field] / scale for r in readings]
    mean = statistics.mean(shown)
    return {
        "case": case.name,
        "load": case.load,
        "unit": "TB/s" if case.field == "bandwidth" else "TFLOP/s",
        "counted": round(counted, 3),
        "shown_mean": round(mean, 3),
        "shown_min": round(min(shown), 3),
        "shown_max": round(max(shown), 3),
        "error_percent": round((mean / counted - 1) * 100, 2),
        "within_aim": abs(mean / counted - 1) <= AIM,
        "at_power_limit_percent": round(100 * statistics.mean(r.values["throttle_power"] for r in readings)),
        "clock_mhz": round(statistics.mean(r.values["clock_sm"] for r in readings)),
        "watts": round(statistics.mean(r.values["power"] for r in readings)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    need_gpu()
    torch = torch_on_gpu()
    probe = Probe()
    where = context(torch.cuda.get_device_name(), ["torch", "nvidia-ml-py"])
    rows = []
    for turn in range(ROUNDS):
        for make in (gemm_cases, attention_cases, bandwidth_cases):
            for case in make(torch):
                row = measure(case, probe)
                rows.append({"round": turn, **row, **where})
                write("tflops_truth", rows, out)
                print(
                    f"{case.name:26} {case.load:22} counted {row['counted']:9} shown {row['shown_mean']:9} {row['unit']:8}"
                    f" error {row['error_percent']:6} %  at power limit {row['at_power_limit_percent']:3} %",
                    flush=True,
                )
            torch.cuda.empty_cache()
    probe.close()


if __name__ == "__main__":
    main()
