"""Run others' own tests with ours in the place of their code, and count how many pass.

    python -m tests.peer_suites FOLDER [--only opinfo,fla] [--processes 4] [--out FILE.csv]

FOLDER holds checkouts, of which nothing is installed and nothing is kept here: `fla` of
fla-org/flash-linear-attention and `transformers` of huggingface/transformers, with the packages of
the same names installed. PyTorch brings its samples of attention, `opinfo`, with it. Each test's
outcome goes to FILE: passed, failed or skipped, what computed it, and the reason. The tests of
flash-attention have a program of their own, `tests.gpu.flash_attention_suite`, because their many
cases share a GPU's memory.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
HEAD = ("suite", "test", "outcome", "ran_by", "reason", "seconds")


class Suite(NamedTuple):
    """Describe a suite: the shim, the tests below its checkout, and those that are meant."""

    shim: str
    tests: tuple[str, ...]
    only: str = ""


SUITES = {
    "opinfo": Suite("", (str(HERE / "test_opinfo.py"),)),
    "fla": Suite("fla_shim", ("tests/ops",), "test_chunk and not fused"),
    "transformers": Suite("transformers_shim", ("tests/models",), "eager_matches_sdpa"),
}


def run(name: str, folder: Path, processes: int, out: Path) -> None:
    """Run a suite; its tests' outcomes are appended to a file."""
    suite, checkout = SUITES[name], folder / name
    asked = [
        "-c",
        os.devnull,
        "-q",
        "--continue-on-collection-errors",
        "-p",
        "outcomes",
        "-p",
        "no:cacheprovider",
        "-n",
        processes,
    ]
    asked += ["-p", suite.shim] if suite.shim else []
    asked += ["-k", suite.only] if suite.only else []
    place = checkout if checkout.is_dir() else folder
    places = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {
        "PYTHONPATH": os.pathsep.join(places), "OUTCOMES": str(out.resolve()), "SUITE": name,
        "HF_HUB_OFFLINE": "1", "RUN_SLOW": "1", "FLA_DISABLE_BACKEND_DISPATCH": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "--rootdir", place, *asked, *suite.tests]
    subprocess.run([*map(str, command)], cwd=place, env={**os.environ, **environment}, check=False)


def main() -> None:
    """Run the suites, and print how many tests of each ended how."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(SUITES))
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("peer_suites.csv"))
    asked = parser.parse_args()
    with asked.out.open("w", newline="") as file:
        csv.writer(file).writerow(HEAD)
    for name in asked.only.split(","):
        run(name, asked.folder.resolve(), asked.processes, asked.out)
    with asked.out.open(newline="") as file:
        counts = Counter((row["suite"], row["outcome"]) for row in csv.DictReader(file))
    for (name, outcome), n in sorted(counts.items()):
        print(f"{name}: {n} {outcome}")


if __name__ == "__main__":
    main()
