"""Run all targets that take long, one after another, and write what came of each into the log.

    python -m tests.everything [TARGET ...]
    python -m tests.everything --take FILE.csv

Without names, all of TARGETS run, which takes hours. The output of each goes to build/everything.
After each one its row of tests/benchmarks/results/everything.csv is replaced, and the table of
tests/benchmarks/log/everything.md is written from these rows, so that a run which is cut off
leaves what it has. --take takes over the rows of such a file of another machine, one with a GPU
for example, and runs nothing. Exit status 0: every target passed.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.code_state import find_commit
from tests.benchmarks.rows import RESULTS, context, merge

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "build" / "everything"
LOG = ROOT / "tests" / "benchmarks" / "log" / "everything.md"
TARGETS = {
    "lint": "ruff, mypy and the import contracts",
    "test": "all fast tests",
    "slow": "the tests that are marked slow",
    "xvfb": "the window on a real X11 server",
    "matrix": "every kernel, compiled for every target",
    "emulation": "the Hopper kernels in an emulator",
    "mutants": "planted defects, each of which a test must catch",
    "torture": "injected faults in all parts of the queue",
    "soak MINUTES=120": "the queue for two hours, to find memory or files that grow",
    "truth": "invented numbers in the assistant's texts",
    "frameworks": "JAX, Trainer, PEFT, diffusers and timm with our attention",
    "gpu": "the tests that need an NVIDIA GPU, with sanitizers",
}
_TOLD = ("outcome", "seconds", "last", "commit", "date", "device")
"""The columns of a row that the table shows."""
_HEAD = """# Everything that takes long

`make everything` runs these targets and writes this page. A row is of the commit and the time
that it names; the last line is what the target printed last.

| target | what it runs | outcome | time | last line | commit | date | machine |
|---|---|---|---|---|---|---|---|
"""


def run(target: str, commit: str) -> dict[str, object]:
    """Run a target of the Makefile on a commit, and return its row."""
    file = OUTPUT / f"{target.split(maxsplit=1)[0]}.log"
    began = time.monotonic()
    with file.open("wb") as output:
        done = subprocess.run(
            ["make", *target.split()],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return {
        "target": target,
        "outcome": "passed" if done.returncode == 0 else f"failed ({done.returncode})",
        "seconds": round(time.monotonic() - began),
        "last": last_line(file),
        **context(f"{platform.machine()}, {os.cpu_count()} processors", ()),
        "commit": commit,  # of the start: the rows of the first targets change the tree
    }


def last_line(file: Path) -> str:
    """Return the last line of an output that is not make's own, as a table can hold it."""
    lines = file.read_text(errors="replace").splitlines()
    said = [line.strip(" =") for line in lines if line.strip(" =") and not line.startswith("make")]
    return said[-1].replace("|", "/")[:120] if said else ""


def write_table(results: Path = RESULTS, log: Path = LOG) -> None:
    """Write the table of the log from the rows."""
    with (results / "everything.csv").open(newline="") as file:
        rows = {row["target"]: row for row in csv.DictReader(file)}
    lines = []
    for target, what in TARGETS.items():
        if (row := rows.get(target)) is None:
            lines.append(f"| `make {target}` | {what} | not run | | | | | |\n")
            continue
        lines.append(
            f"| `make {target}` | {what} | {row['outcome']} | {row['seconds']} s | {row['last']} "
            f"| {row['commit']} | {row['date']} | {row['device']} |\n"
        )
    log.write_text(_HEAD + "".join(lines))


def take(file: Path, results: Path = RESULTS, log: Path = LOG) -> list[dict[str, str]]:
    """Put the rows that another machine wrote in the place of ours, and return them.

    Raises:
        ValueError: if a row is of no target, or does not say its outcome, time, last line, commit,
            date and machine.
    """
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    for row in rows:
        if row.get("target") not in TARGETS:
            raise ValueError(f"{file}: there is no target {row.get('target')!r}")
        if lacking := [name for name in _TOLD if not row.get(name)]:
            raise ValueError(f"{file}: the row of {row['target']} lacks {', '.join(lacking)}")
    merge("everything", rows, ("target",), results)
    write_table(results, log)
    return rows


def main() -> int:
    """Run the chosen targets, or take over rows, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.everything")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--take", type=Path, metavar="FILE", help="rows of another machine")
    given = parser.parse_args()
    if given.take:
        return int(any(row["outcome"] != "passed" for row in take(given.take)))
    chosen = [t for t in TARGETS if not given.targets or t.split()[0] in given.targets]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    failed, commit = 0, find_commit()
    for target in chosen:
        row = run(target, commit)
        failed += row["outcome"] != "passed"
        merge("everything", [row], ("target",))
        write_table()
        print(f"{row['outcome']:12} {row['seconds']:6} s  make {target}: {row['last']}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
