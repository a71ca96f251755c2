"""Compare the live TFLOP/s and TB/s with work that was counted, on a Hopper GPU.

    python -m tests.benchmarks.tflops_truth [--whole] [--out DIR]

    python -m tests.benchmarks.tflops_truth --again FILE [--out DIR]

The probe's hardware counters are compared with large products, which reach the card's power limit,
in BF16 and FP16, busy for 15, 30, 60 and 100 % of the time; in FP8 and TF32 at 30 and 100 %; and in
BF16 with longer and shorter pauses: 16 cases of 3.5 s each. --whole adds FP32, small products,
attention and copies, and runs all cases twice. Inputs are random. No setting of the card is
changed.

The driver updates the clock that it reports every 0.1 s. A load with this period is always observed
in the same phase; one of 0.13 s is observed evenly. One case uses 0.1 s nevertheless, to show the
effect. What is shown is compared with the work done in the seconds that it describes: the counters'
shares arrive about 0.1 s late.

Beside what the probe shows (tflops_truth.csv), the raw counters and clocks are recorded
(tflops_raw.json.gz), and the error of every candidate for the clock is computed from them
(tflops_clocks.csv, see clock_models.py). --again repeats this from such a file, without a GPU. A
case that fails is reported and skipped; what was measured before is always written. The exit status
is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.benchmarks import clock_models, raw_counters
from tests.benchmarks.gpu_probe import Call, Probe, loop, need_gpu, torch_on_gpu
from tests.benchmarks.rows import RESULTS, context, write

SECONDS, ROUNDS, N, SMALL, TOKENS, WORDS = 3.5, 2, 8192, 2048, 16384, 2**30
DUTIES = (0.15, 0.3, 0.6, 1.0)
PERIOD, IN_STEP = 0.13, 0.1
OTHER_PACES = ((0.6, IN_STEP), (0.6, 0.037), (0.3, 0.37), (0.5, 1.0))
"""Additional loads: the busy share, and the period in seconds."""
FACTORS = {"bf16": 1.0, "fp16": 1.0, "fp8": 2.0, "tf32": 0.5}
AIM = 0.05
INTERVAL_S = 0.5
"""The number of the probe's readings."""
REST_S = 1.0
"""Seconds before the first case, in which the idle card is recorded."""


class Case(NamedTuple):
    name: str
    load: str
    duty: float
    field: str
    """The compared field: tflops_gpm or bandwidth."""
    work: float
    """FLOP or bytes of a call."""
    call: Call
    factor: float = 1.0
    """The work of the tensor pipe in a cycle with this data type, relative to BF16."""
    period: float = PERIOD
    """The period of the load in seconds."""


def gemm_cases(torch: Any, whole: bool) -> list[Case]:
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

    kinds = {
        "bf16": product(N, torch.bfloat16),
        "fp16": product(N, torch.float16),
        "fp8": fp8(N),
        "tf32": tf32(N),
    }
    cases = [
        Case(f"gemm {kind}", _load(duty), duty, "tflops_gpm", 2.0 * N**3, call, FACTORS[kind])
        for duty in DUTIES
        for kind, call in kinds.items()
        if duty in (0.3, 1.0) or kind in ("bf16", "fp16")
    ]
    for duty, period in OTHER_PACES:
        cases.append(
            Case(
                "gemm bf16",
                _load(duty, period),
                duty,
                "tflops_gpm",
                2.0 * N**3,
                kinds["bf16"],
                period=period,
            )
        )
    if not whole:
        return cases
    cases.append(
        Case("gemm fp32", "full", 1.0, "tflops_gpm", 2.0 * N**3, product(N, torch.float32))
    )
    return [
        *cases,
        Case(
            "gemm bf16",
            f"small, {SMALL}",
            1.0,
            "tflops_gpm",
            2.0 * SMALL**3,
            product(SMALL, torch.bfloat16),
        ),
    ]


def _load(duty: float, period: float = PERIOD) -> str:
    return "full" if duty == 1.0 else f"busy {duty:.0%} of {period:g} s"


def attention_cases(torch: Any) -> list[Case]:
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    cases = []
    for d in (64, 128):
        q, k, v = (
            torch.randn(1, 2048 // d, TOKENS, d, device="cuda", dtype=torch.bfloat16)
            for _ in range(3)
        )
        for backend in (
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
        ):

            def call(q: Any = q, k: Any = k, v: Any = v, backend: Any = backend) -> object:
                with sdpa_kernel(backend):
                    return functional.scaled_dot_product_attention(q, k, v)

            name, work = (
                f"attention d{d} {backend.name.lower().removesuffix('_attention')}",
                4.0 * 2048 * TOKENS**2,
            )
            cases.append(Case(name, "full", 1.0, "tflops_gpm", work, call))
            if backend is SDPBackend.CUDNN_ATTENTION:
                cases.append(Case(name, _load(0.3), 0.3, "tflops_gpm", work, call))
    return cases


def bandwidth_cases(torch: Any) -> list[Case]:
    """Return copies far larger than any cache, which read and write each byte once."""
    source = torch.randn(WORDS, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    return [
        Case(
            "copy",
            _load(duty, 0.53),
            duty,
            "bandwidth",
            2.0 * 4 * WORDS,
            lambda: target.copy_(source),
            period=0.53,
        )
        for duty in (1.0, 0.3, 0.6)
    ]


class Counted(msgspec.Struct, frozen=True):
    """Hold what one case did, for the analysis. Times are seconds since the epoch."""

    case: str
    load: str
    factor: float
    flops: float
    """The counted mean in FLOP/s."""
    start: float
    end: float
    spans: list[tuple[float, float]]


class Session(msgspec.Struct, frozen=True):
    """Hold the contents of tflops_raw.json.gz."""

    where: dict[str, str]
    raw: raw_counters.Raw
    counted: list[Counted]


def measure(case: Case, probe: Probe) -> tuple[dict[str, object], Counted | None]:
    """Return a row and, for FLOPs, the data of the analysis.

    The row holds what was counted, what was shown of the same seconds, and the difference. Of a
    load that is busy about once a second, only whole periods are compared.
    """
    ran = loop(case.call, SECONDS, case.duty, case.period)
    time.sleep(0.6)  # wait until the last interval has been read
    late = clock_models.LATE_S
    readings = probe.between(ran.start + late, ran.end + late)
    readings = readings[: len(readings) - len(readings) % max(round(case.period / INTERVAL_S), 1)]
    scale = 1e12 if case.field == "bandwidth" else 1.0
    flops = ran.calls * case.work / (ran.end - ran.start)
    shown = [r.values[case.field] / scale for r in readings if case.field in r.values]
    if not shown:
        raise RuntimeError(
            f"the probe reported no {case.field}: "
            + (readings[-1].explained().get(case.field, "") if readings else "no reading")
        )
    mean = statistics.mean(shown)
    began, ended = readings[0].time - INTERVAL_S - late, readings[-1].time - late
    part = clock_models.overlap(ran.spans, began, ended) / clock_models.overlap(
        ran.spans, ran.start, ran.end
    )
    counted = part * ran.calls * case.work / (ended - began) / 1e12
    row = {
        "case": case.name,
        "load": case.load,
        "unit": "TB/s" if case.field == "bandwidth" else "TFLOP/s",
        "counted": round(counted, 3),
        "shown_mean": round(mean, 3),
        "shown_min": round(min(shown), 3),
        "shown_max": round(max(shown), 3),
        "error_percent": round((mean / counted - 1) * 100, 2),
        "within_aim": abs(mean / counted - 1) <= AIM,
        "at_power_limit_percent": round(
            100 * statistics.mean(r.values.get("throttle_power", 0.0) for r in readings)
        ),
        "clock_mhz": round(statistics.mean(r.values.get("clock_sm", 0.0) for r in readings)),
        "watts": round(statistics.mean(r.values.get("power", 0.0) for r in readings)),
    }
    if case.field == "bandwidth":
        return row, None
    return row, Counted(case.name, case.load, case.factor, flops, ran.start, ran.end, ran.spans)


def analyse(session: Session, out: Path) -> Path | None:
    """Write tflops_clocks.csv, and print which candidate is best.

    Returns None if nothing was counted.
    """
    rows, off = [], []
    for done in session.counted:
        case = clock_models.Case(session.raw, done.start, done.end, done.spans)
        found = clock_models.errors(case, done.flops, done.factor)
        head: dict[str, object] = {
            "case": done.case,
            "load": done.load,
            "counted": round(done.flops / 1e12, 2),
            "factor": done.factor,
        }
        rows.append(
            {
                **head,
                **{f"error_percent: {name}": value for name, value in found.items()},
                **clock_models.evidence(case),
                **session.where,
            }
        )
        off.append((done, found))
    if not rows:
        return None
    for words, which in (
        ("of part-time loads", lambda d: d.load != "full"),
        ("of full load", lambda d: d.load == "full"),
    ):
        chosen = [found for done, found in off if which(done)]
        for name, worst in clock_models.best(chosen) if chosen else ():
            print(f"largest error {words:20} {name:34} {worst:7.2f} %")
    for what, reason in session.raw.refused.items():
        print(f"not told by this driver: {what}: {reason}")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return write("tflops_clocks", [{key: row.get(key, "") for key in keys} for row in rows], out)


class Results:
    """Hold what has been measured so far."""

    def __init__(self, where: dict[str, str]) -> None:
        self.where = where
        self.rows: list[dict[str, object]] = []
        """The number of readings shown."""
        self.counted: list[Counted] = []
        self.failed = 0

    def take(self, case: Case, probe: Probe, turn: int) -> None:
        """Measure a case, and print the outcome."""
        try:
            row, done = measure(case, probe)
        except (
            RuntimeError,
            AttributeError,
            NotImplementedError,
        ) as e:  # torch refuses a data type, or runs out of memory
            self.failed += 1
            print(f"{case.name:26} {case.load:22} FAILED: {e}", flush=True)
            return
        self.rows.append({"round": turn, **row, **self.where})
        self.counted += [done] if done else []
        print(
            f"{case.name:26} {case.load:22} counted {row['counted']:9} "
            f"shown {row['shown_mean']:9} {row['unit']:8}"
            f" error {row['error_percent']:6} %  "
            f"at power limit {row['at_power_limit_percent']:3} %",
            flush=True,
        )


def run(results: Results, probe: Probe, torch: Any, whole: bool) -> None:
    time.sleep(REST_S)
    for turn in range(ROUNDS if whole else 1):
        for make in (
            partial(gemm_cases, whole=whole),
            *((attention_cases, bandwidth_cases) if whole else ()),
        ):
            for case in make(torch):
                results.take(case, probe, turn)
            torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.tflops_truth")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--whole",
        action="store_true",
        help="also FP32, small products, attention and copies, all twice",
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="compute tflops_clocks.csv anew from a tflops_raw.json.gz",
    )
    args = parser.parse_args()
    if args.again:
        print(analyse(raw_counters.read(args.again, Session), args.out))
        return 0
    need_gpu()
    torch = torch_on_gpu()
    args.out.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_properties(0)
    where = context(device.name, ["torch", "nvidia-ml-py"])
    recording, probe = (
        raw_counters.Recording(args.out / "recording.json.gz", device.multi_processor_count),
        Probe(),
    )
    results = Results(where)
    try:
        run(results, probe, torch, args.whole)
    finally:
        probe.close()
        if results.rows:
            print(write("tflops_truth", results.rows, args.out))
        session = Session(where, recording.end(), results.counted)
        raw_counters.write(session, args.out / "tflops_raw.json.gz")
        (args.out / "recording.json.gz").unlink()
        print(analyse(session, args.out))
    return int(results.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
