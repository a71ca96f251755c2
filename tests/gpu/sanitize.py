"""Our kernels under NVIDIA's compute-sanitizer, on small shapes: out-of-bounds and misaligned
accesses (memcheck), races in shared memory (racecheck). On a machine with a GPU and the CUDA
toolkit:

    python -m tests.gpu.sanitize [--tools memcheck,racecheck] [--families control,triton] [--limit 60]

Each kernel family, head size and tool is a process of its own, several at once, and tells what it
found when it ends; one that outlives the limit counts as a failure.

The race checker knows nothing of hand-overs between warps of several kinds: it calls those of a
minimal kernel races, too (`tests.gpu.handover`), and those within cuDNN's own attention. So what it
reports is told apart by the lines of the source that write and read: `entry`, where Triton's code
sends warps to their parts of the kernel; `hand-over`, a word that an mbarrier guards, in the
functions named in HAND_OVERS; anything else is a failure. That the barriers are right is shown by
`make emulation`, which runs the same source under every order of events that it draws, and finds
the defects that are planted.
"""  # noqa: E501

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import torch

from accel.attention import Ragged
from accel.attention.inputs import arrange, problem_of
from accel.attention.kernels import hopper
from accel.attention.passes import backward, forward
from tests.gpu import handover

FAMILIES = ("control", "hopper forward", "hopper backward", "triton")
HAND_OVERS = {("_publish", "_field"), ("_produce", "_consume")}
"""Which function writes to shared memory what which other one reads, an mbarrier between them."""
DIMS = (64, 128, 256)
AT_ONCE = 6


def shapes(dim: int) -> list[tuple[tuple[torch.Tensor, ...], dict[str, object]]]:
    """Lengths off the tiles, grouped heads, causal, windows, and a ragged batch with an empty
    sequence."""

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
    if family == "control":
        print(f"control: error {handover.run():.2e}")
        return
    backend, _, only = family.partition(" ")
    for tensors, rules in shapes(dim):
        x = arrange(*tensors, None, rules.pop("seqlens", None), "bhsd")
        p = problem_of(
            x,
            scale=None,
            softcap=0.0,
            deterministic=False,
            **{"causal": False, "window": (None, None), **rules},
        )
        exact = forward(x, p, "math")
        found = [forward(x, p, backend)[0]] if only != "backward" else []
        wanted = [exact[0]] if only != "backward" else []
        if only != "forward":
            dout = torch.randn_like(x.q)
            found += backward(dout, x, *exact, p, backend)[:3]
            wanted += backward(dout, x, *exact, p, "math")[:3]
        torch.cuda.synchronize()
        print(
            f"{family} d{dim} {p}:",
            *(
                f"{float((a - b).norm() / b.norm()):.2e}"
                for a, b in zip(found, wanted, strict=True)
            ),
        )


def compiled(family: str, dim: int, limit: int) -> None:
    """Run it without a tool, so that every kernel lies in Triton's cache."""
    subprocess.run(
        [sys.executable, "-m", "tests.gpu.sanitize", "--one", f"{family},{dim}"],
        timeout=5 * limit,
        check=True,
    )


def watched(sanitizer: str, tool: str, family: str, dim: int, limit: int) -> bool:
    """Whether all is well; tells what was found."""
    fine, told = found(sanitizer, tool, family, dim, limit)
    print(f"{'ok' if fine else 'NOT OK'}: {told}", flush=True)
    return fine


def found(sanitizer: str, tool: str, family: str, dim: int, limit: int) -> tuple[bool, str]:
    """Whether all is well, and what to tell."""
    every = (
        ["--racecheck-report", "hazard", "--print-limit", "100000"] if tool == "racecheck" else []
    )
    argv = [
        sanitizer,
        "--tool",
        tool,
        "--error-exitcode",
        "9",
        *every,
        sys.executable,
        "-m",
        "tests.gpu.sanitize",
    ]
    try:
        done = subprocess.run(
            [*argv, "--one", f"{family},{dim}"],
            capture_output=True,
            text=True,
            timeout=limit,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"{tool} {family} d{dim}: not finished after {limit} s"
    said = done.stdout + done.stderr
    kinds = Counter(kind_of(*pair) for pair in _PAIR.findall(said))
    told = (
        f"{tool} {family} d{dim}: exit {done.returncode}, {''.join(said.strip().splitlines()[-1:])}"
    )
    fine = done.returncode == 0 or (
        done.returncode == 9 and bool(kinds) and not any(kind.startswith("race") for kind in kinds)
    )
    return fine, told + "".join(f"\n  {count} times {kind}" for kind, count in kinds.most_common())


_PAIR = re.compile(
    r"(?:Write|Read) Thread .* in (\S+\.py):(\d+)\n.*(?:Write|Read) Thread .* in (\S+\.py):(\d+)"
)


def kind_of(file: str, line: str, other_file: str, other_line: str) -> str:
    """What two accesses to the same place in shared memory are to each other."""
    first, second = (
        _function(Path(f).name, int(n)) for f, n in ((file, line), (other_file, other_line))
    )
    if "entry" in (first, second):
        return "entry"
    return (
        f"{'hand-over' if (first, second) in HAND_OVERS else 'race'}: {first} ({file}:{line}) and"
        f" {second} ({other_file}:{other_line})"
    )


def _function(name: str, line: int) -> str:
    """The function of our kernels at that line; `entry` for the kernels themselves, which only
    set up and send their warps off."""
    for file in (*Path(hopper.__file__).parent.glob("*.py"), Path(handover.__file__)):
        if file.name == name:
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (
                    node.end_lineno or 0
                ):
                    text = ast.unparse(node)
                    return "entry" if "warp_specialize" in text else node.name
    return f"{name}:{line}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", default="memcheck,racecheck")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        family, dim = options.one.split(",")
        run(family, int(dim))
        return 0
    sanitizer = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )
    if sanitizer is None:
        print(
            "compute-sanitizer is not on the path: it comes with the CUDA toolkit", file=sys.stderr
        )
        return 1
    kernels = [
        case
        for case in product(options.families.split(","), DIMS)
        if case[0] != "control" or case[1] == DIMS[0]
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda kernel: compiled(*kernel, options.limit), kernels))
        cases = product(options.tools.split(","), kernels)
        fine = list(
            pool.map(lambda case: watched(sanitizer, case[0], *case[1], options.limit), cases)
        )
    print(f"{sum(fine)} of {len(fine)} are well")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
