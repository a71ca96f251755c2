"""Our kernels under NVIDIA's compute-sanitizer, on small shapes: out-of-bounds and misaligned accesses (memcheck), races in shared memory
(racecheck). On a machine with a GPU and the CUDA toolkit:

    python -m tests.gpu.sanitize [--tools memcheck,racecheck] [--limit 60]

Each kernel family, head size and tool is a process of its own, several at once; one that outlives the limit counts as a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import torch

from accel.attention import Ragged
from accel.attention.inputs import arrange, problem_of
from accel.attention.passes import backward, forward

FAMILIES = ("hopper forward", "hopper backward", "triton")
DIMS = (64, 128, 256)
AT_ONCE = 6


def shapes(dim: int) -> list[tuple[tuple[torch.Tensor, ...], dict[str, object]]]:
    """Lengths off the tiles, grouped heads, causal, windows, and a ragged batch with an empty sequence."""

    def tensors(*sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in sizes)

    ragged = Ragged.of((100, 0, 130), device="cuda")
    return [
        (tensors((1, 2, 330, dim), (1, 1, 330, dim), (1, 1, 330, dim)), {"causal": True}),
        (tensors((1, 2, 70, dim), (1, 2, 133, dim), (1, 2, 133, dim)), {"window": (50, None)}),
        (tensors((230, 2, dim), (230, 2, dim), (230, 2, dim)), {"causal": True, "seqlens": ragged}),
    ]


def run(family: str, dim: int) -> None:
    """What the sanitizer watches. Prints how far each answer is from that of `math`."""
    backend, _, only = family.partition(" ")
    for tensors, rules in shapes(dim):
        x = arrange(*tensors, None, rules.pop("seqlens", None), "bhsd")
        p = problem_of(x, scale=None, softcap=0.0, deterministic=False, **{"causal": False, "window": (None, None), **rules})
        exact = forward(x, p, "math")
        found = [forward(x, p, backend)[0]] if only != "backward" else []
        wanted = [exact[0]] if only != "backward" else []
        if only != "forward":
            dout = torch.randn_like(x.q)
            found += backward(dout, x, *exact, p, backend)[:3]
            wanted += backward(dout, x, *exact, p, "math")[:3]
        torch.cuda.synchronize()
        print(f"{family} d{dim} {p}:", *(f"{float((a - b).norm() / b.norm()):.2e}" for a, b in zip(found, wanted, strict=True)))


def watched(sanitizer: str, tool: str, family: str, dim: int, limit: int) -> tuple[bool, str]:
    argv = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "tests.gpu.sanitize", "--one", f"{family},{dim}"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=limit, env={**os.environ, "PYTHONWARNINGS": "ignore"}, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"{tool} {family} d{dim}: not finished after {limit} s"
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    return done.returncode == 0, f"{tool} {family} d{dim}: exit {done.returncode}, {''.join(last)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="memcheck,racecheck")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        family, dim = options.one.split(",")
        run(family, int(dim))
        return 0
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        print("compute-sanitizer is not on the path: it comes with the CUDA toolkit", file=sys.stderr)
        return 1
    # First without it, so that every kernel is compiled, and lies in Triton's cache.
    for family in FAMILIES:
        for dim in DIMS:
            subprocess.run([sys.executable, "-m", "tests.gpu.sanitize", "--one", f"{family},{dim}"], timeout=5 * options.limit, check=True)
    cases = list(product(options.tools.split(","), FAMILIES, DIMS))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(lambda case: watched(sanitizer, *case, options.limit), cases))
    print(*(line for _, line in told), sep="\n")
    return 0 if all(fine for fine, _ in told) else 1


if __name__ == "__main__":
    sys.exit(main())
