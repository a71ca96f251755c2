"""Compare the live TFLOP/s with counted work, before and after `gpudeck calibrate`.

    python -m tests.benchmarks.calibration_truth [--only-after] [--out DIR]

It starts a daemon with a state folder of its own, reads `gpudeck status --json` about twice a
second while a process of its own runs loads of known size, calibrates, and runs them again. Inputs
are random. A figure is compared with the work done in the seconds that it describes: the counters
lag behind the work by a delay that changes as the probe starts, so it is found from the loads with
pauses (`gpudeck.scheduler.telemetry.counter_delay`), once for all loads of a phase. Single readings
lag by less or more, so of a full load only those are compared whose time it filled in any case. For
FP8 and TF32, which the counters cannot tell from BF16, it is the figure that the tile names for
this type. The GPU needs to be idle, and no setting of it is changed. What was read goes to DIR,
too, so that another fit can be tried on it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpudeck.scheduler.telemetry.counter_delay import PausedLoad, Share, counter_delay, overlap
from tests.benchmarks.gpu_probe import Call, loop, need_gpu, torch_on_gpu
from tests.benchmarks.rows import RESULTS, context, write

SECONDS, PACED_SECONDS, REST_S, READING_S = 2.3, 4.2, 0.3, 0.5
"""A load with pauses takes longer: NVML's clock is sampled some eight times a second, and is low in
one sample and high in the next."""
PACES = (
    (0.15, 0.13),
    (0.3, 0.13),
    (0.6, 0.13),
    (0.6, 0.1),
    (0.6, 0.037),
    (0.3, 0.37),
    (0.5, 1.0),
)
"""The busy share of each period, and the period in seconds."""
BEFORE = ("gemm bf16", "gemm fp8", "attention d64 cudnn")
"""What runs before the calibration, too; and the fourth pace."""
DELAYS = 0.03, 0.25
"""Seconds by which single readings lagged behind the ends of full loads, at least and at most
(tests/benchmarks/LOG.md): only readings between them are of a full load alone."""
FULL_AIM, PACE_AIM = 3.0, 5.0
"""Percent."""


def cases(torch: Any) -> list[tuple[str, Call, float, float]]:
    """Return name, call, operations of a call, and operations in a cycle relative to BF16."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def product(n: int, dtype: Any, tf32: bool = False, times: int = 1) -> tuple[Call, float]:
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)

        def call() -> None:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            for _ in range(times):
                torch.matmul(a, b, out=out)

        return call, 2.0 * n**3 * times

    def fp8(n: int) -> tuple[Call, float]:
        a, b = (torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        one = torch.ones((), device="cuda")
        call = lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)  # noqa: E731
        return call, 2.0 * n**3

    def attention(d: int, backend: Any) -> tuple[Call, float]:
        shape = (1, 2048 // d, 16384, d)
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))

        def call() -> object:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v)

        return call, 4.0 * 2048 * 16384**2

    return [
        ("gemm bf16", *product(8192, torch.bfloat16), 1.0),
        ("gemm fp16", *product(8192, torch.float16), 1.0),
        ("gemm fp32", *product(8192, torch.float32), 1.0),
        ("gemm fp8", *fp8(8192), 2.0),
        ("gemm tf32", *product(8192, torch.float32, tf32=True), 0.5),
        ("gemm bf16 4096", *product(4096, torch.bfloat16, times=4), 1.0),
        ("gemm bf16 2048", *product(2048, torch.bfloat16, times=16), 1.0),
        ("attention d64 cudnn", *attention(64, SDPBackend.CUDNN_ATTENTION), 1.0),
        ("attention d128 cudnn", *attention(128, SDPBackend.CUDNN_ATTENTION), 1.0),
    ]


def run_loads(before: bool) -> None:
    """Run the loads, and print one line of JSON for each."""
    torch = torch_on_gpu()
    found = cases(torch)
    chosen = [(name, call, work, factor, 1.0, 0.13) for name, call, work, factor in found]
    if before:
        chosen = [row for row in chosen if row[0] in BEFORE]
    paces = PACES[3:4] if before else PACES
    chosen += [(*found[0], busy, period) for busy, period in paces]
    for name, call, work, factor, busy, period in chosen:
        ran = loop(call, SECONDS if busy == 1.0 else PACED_SECONDS, busy, period)
        row = {
            "case": name,
            "load": "full" if busy == 1.0 else f"busy {busy:.0%} of {period:g} s",
            "factor": factor,
            "flops": ran.calls * work,
            "start": ran.start,
            "end": ran.end,
            "spans": ran.spans,
        }
        print(json.dumps(row), flush=True)
        time.sleep(REST_S)


def deck(*arguments: str) -> Any:
    """Run a command of GPU Deck, and return its JSON."""
    command = [sys.executable, "-m", "gpudeck", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"gpudeck {' '.join(arguments)}: {done.stderr}{done.stdout}")
    return json.loads(done.stdout)


def observe(before: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run the loads in a process of their own; return what they did, and what was shown."""
    argv = [sys.executable, "-m", "tests.benchmarks.calibration_truth", "--loads"]
    argv += ["--before"] if before else []
    shown: dict[float, dict[str, Any]] = {}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            reading = deck("status")["devices"][0]["reading"]
            if reading is not None:
                shown[reading["time"]] = reading
            time.sleep(0.1)
        assert process.stdout is not None
        loads = [json.loads(line) for line in process.stdout.read().splitlines() if line[0] == "{"]
        if process.returncode:
            raise SystemExit("the loads failed")
    return loads, [shown[at] for at in sorted(shown)]


def delay_of(loads: list[dict[str, Any]], shown: list[dict[str, Any]]) -> float:
    """Return how far the counters lagged behind the loads, in seconds."""
    paused = []
    for load in loads:
        inside = [r for r in shown if load["start"] < r["time"] < load["end"]]
        shares = [Share(r["time"] - READING_S, r["time"], _tensor(r)) for r in inside]
        paused.append(PausedLoad(load["spans"], shares))
    return counter_delay(paused)


def _tensor(reading: dict[str, Any]) -> float:
    return float(reading["values"].get("tensor_hmma", 0.0))


def compare(
    load: dict[str, Any], shown: list[dict[str, Any]], phase: str, delay: float
) -> dict[str, Any]:
    """Return the row of one load; the counters lag behind it by `delay` seconds."""
    start, end = load["start"], load["end"]
    paused = len(load["spans"]) > 1
    period = load["spans"][1][0] - load["spans"][0][0] if paused else 0.0
    least, most = (delay, delay) if paused else DELAYS
    inside = [r for r in shown if start + most + READING_S < r["time"] <= end + least]
    if period > 0.6:  # whole periods only
        inside = inside[: len(inside) - len(inside) % round(period / READING_S)]
    if not inside:
        raise SystemExit(f"nothing was shown during {load['case']}, {load['load']}")
    whole = overlap(load["spans"], start, end)
    done = [
        load["flops"] * overlap(load["spans"], at - READING_S - delay, at - delay) / whole
        for at in (r["time"] for r in inside)
    ]
    counted = sum(done) / (READING_S * len(done)) / 1e12
    values = [r["values"] for r in inside]
    figure = statistics.mean(v["tflops"] for v in values) * load["factor"]
    aim = FULL_AIM if load["load"] == "full" else PACE_AIM
    off = 100 * (figure / counted - 1)
    return {
        "phase": phase,
        "case": load["case"],
        "load": load["load"],
        "counted_tflops": round(counted, 2),
        "shown_tflops": round(figure, 2),
        "lowest": round(min(v["tflops"] for v in values) * load["factor"], 2),
        "highest": round(max(v["tflops"] for v in values) * load["factor"], 2),
        "readings": len(values),
        "error_percent": round(off, 2),
        "stated_error_percent": round(statistics.mean(v["tflops_error"] for v in values), 1),
        "within_stated": abs(off) <= max(v["tflops_error"] for v in values),
        "within_aim": abs(off) <= aim,
        "clock_mhz_nvml": round(statistics.mean(v["clock_sm"] for v in values)),
        "watts": round(statistics.mean(v["power"] for v in values)),
        "delay_ms": round(1000 * delay),
    }


def compare_all(
    loads: list[dict[str, Any]], shown: list[dict[str, Any]], phase: str
) -> list[dict[str, Any]]:
    """Return the rows of a phase."""
    delay = delay_of(loads, shown)
    return [compare(load, shown, phase, delay) for load in loads]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.calibration_truth")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only-after", action="store_true", help="measure nothing before it")
    parser.add_argument("--loads", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--before", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loads:
        run_loads(args.before)
        return 0
    need_gpu()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        deck("status")
        if not args.only_after:
            loads, shown = observe(before=True)
            rows += compare_all(loads, shown, "before")
            report(rows, args.out)
        try:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "calibration.json").write_text(json.dumps(deck("calibrate"), indent=1))
            loads, shown = observe(before=False)
            (args.out / "loads.json").write_text(json.dumps(loads))
            rows += compare_all(loads, shown, "after")
        finally:
            for file in Path(home, "jobs").glob("*/*"):
                if file.name in ("clocks.json", "log"):
                    (args.out / file.name).write_bytes(file.read_bytes())
            subprocess.run([sys.executable, "-m", "gpudeck", "daemon", "stop"], check=False)
            (args.out / "history.sqlite").write_bytes(Path(home, "history.sqlite").read_bytes())
    report(rows, args.out)
    return int(not all(row["within_aim"] for row in rows if row["phase"] == "after"))


def report(rows: list[dict[str, Any]], out: Path) -> None:
    """Print the rows, and write them."""
    where = context(torch_on_gpu().cuda.get_device_name(), ["torch", "nvidia-ml-py"])
    for row in rows:
        print(
            f"{row['phase']:7}{row['case']:22}{row['load']:20}counted {row['counted_tflops']:8} "
            f"shown {row['shown_tflops']:8}  {row['error_percent']:6} % "
            f"(stated ±{row['stated_error_percent']} %)"
        )
    print(write("calibration_truth", [row | where for row in rows], out))


if __name__ == "__main__":
    sys.exit(main())
