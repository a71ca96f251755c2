"""Check and time the attention kernels for compute capability 7.5, once, and write CSV files.

    python -m tests.benchmarks.turing --out FOLDER

On an RTX 2080 Ti, T4, Titan RTX or another GPU of compute capability 7.5 this takes some minutes:
`turing_checks.csv` says how exact each variant is, `turing_speed.csv` how fast the kernels are
beside PyTorch's, with clocks and power. On a newer GPU, which runs the PTX of the kernels, the
times say nothing about compute capability 7.5 and are left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from gpudeck.accel.attention.dispatch import refuse
from gpudeck.accel.attention.kernels.turing.builds import CAPABILITY
from gpudeck.accel.attention.passes import backward, forward
from gpudeck.accel.runtime.capability import versions
from tests.benchmarks.rows import spread, write
from tests.gpu.turing_cases import BACKEND, CASES, Case, draw, judge, options, solve

CUDA = torch.device("cuda", 0)
PEERS = (BACKEND, "efficient", "math")
TOKENS, WIDTH = 16384, 2048
REPEATS = 30
_ASKED = "clocks.sm,clocks.mem,power.draw,temperature.gpu"


def check(names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield the errors of each variant."""
    for name in names:
        case, start = CASES[name], time.perf_counter()
        try:
            drawn = draw(case, CUDA)
            found = solve(drawn)
            again = solve(drawn)
            same = all(a is None or torch.equal(a, b) for a, b in zip(found, again, strict=True))
            for j in judge(drawn, found):
                yield {
                    "case": name, "result": j.name, "relative_error": f"{j.error:.3e}",
                    "worst": f"{j.worst:.3e}", "allowed": f"{j.allowed:.3e}",
                    "right": j.is_right and same, "why": "" if same else "differs when repeated",
                }  # fmt: skip
        except Exception as e:  # noqa: BLE001 - every variant is tried
            traceback.print_exc()
            why = f"{type(e).__name__}: {str(e).splitlines()[0]}"
            yield {
                "case": name, "result": "", "relative_error": "", "worst": "", "allowed": "",
                "right": False, "why": why,
            }  # fmt: skip
        print(f"{name}: {time.perf_counter() - start:.1f} s {options(case)}", flush=True)


def measure() -> Iterator[dict[str, object]]:
    """Yield the speed of the kernels and of PyTorch's at 16,384 tokens, heads x head size 2048."""
    for head_dim in (64, 128, 256):
        for length in (512, 1024, 2048, 4096, 8192, 16384):
            for causal in (False, True):
                case = Case(
                    batch=TOKENS // length, heads=WIDTH // head_dim, queries=length,
                    head_dim=head_dim, causal=causal, layout="bshd",
                )  # fmt: skip
                yield from _measure(case)


def _measure(case: Case) -> Iterator[dict[str, object]]:
    drawn = draw(case, CUDA)
    x, p = drawn.x, drawn.problem
    with torch.no_grad():
        for backend in PEERS:
            if backend == "math" and case.queries > 1024:
                continue
            for direction in ("forward", "backward"):
                if refuse(p, backend, direction) is not None:
                    continue
                try:
                    out, lse = forward(x, p, backend)
                    found = _time(
                        partial(forward, x, p, backend)
                        if direction == "forward"
                        else partial(backward, drawn.dout, x, out, lse, p, backend)
                    )
                except torch.OutOfMemoryError:
                    continue
                flops = p.flops * (2.5 if direction == "backward" else 1.0)
                clocks = _smi(_ASKED)
                yield {
                    "backend": backend, "direction": direction, "head_dim": case.head_dim,
                    "length": case.queries, "batch": case.batch, "heads": case.heads,
                    "causal": case.causal, "tflops": f"{flops / found['median'] / 1e9:.2f}",
                    **{f"ms_{k}": v for k, v in found.items()},
                    **dict(zip(_ASKED.split(","), clocks.split(", "), strict=True)),
                }  # fmt: skip
                print(backend, direction, p, f"{flops / found['median'] / 1e9:.1f} TFLOP/s", clocks)


def _time(run: Callable[[], object]) -> dict[str, float]:
    """Return milliseconds of a call, by events of the GPU."""
    for _ in range(3):
        run()
    samples = []
    for _ in range(REPEATS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        run()
        last.record()
        last.synchronize()
        samples.append(first.elapsed_time(last))
    return spread(samples)


def _smi(fields: str) -> str:
    told = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", "-i", "0"]
    return subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Check, and time on the GPUs that the kernels are for; return 1 if a variant is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(), help="the folder of the CSV files")
    parser.add_argument("--only", default="", help="variants whose names contain this")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("This needs an NVIDIA GPU and a build of torch for CUDA.", file=sys.stderr)
        return 2
    where = {"gpu": torch.cuda.get_device_name(0), **versions()}
    print(where, _smi("name,driver_version,power.limit,clocks.max.sm,pcie.link.gen.current"))
    rows = [row | where for row in check([name for name in CASES if given.only in name])]
    write("turing_checks", rows, given.out)
    wrong = [row for row in rows if not row["right"]]
    print(f"{'case':<48} result   error      worst      allowed")
    for row in rows:
        mark = "" if row["right"] else f"  WRONG {row['why']}"
        told = f"{row['case']:<48} {row['result']:<6} {row['relative_error']:>10}"
        print(f"{told} {row['worst']:>10} {row['allowed']:>10}{mark}")
    print(f"{len(rows) - len(wrong)} of {len(rows)} results are right")
    if torch.cuda.get_device_capability(0) == CAPABILITY and not given.only:
        write("turing_speed", [row | where for row in measure()], given.out)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
