"""Measure how long commands take, as a shell sees it, while a daemon runs.

    python -m tests.benchmarks.cli_start [--rounds 20] [GPUDECK ...]

The time covers the interpreter, the imports and one request. Each GPUDECK is an installed
`gpudeck`, such as an older version; all of them run in turn. The rows go to results/cli_start.csv.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.support import eventually, state_folder

COMMANDS = (("status",), ("jobs",), ("submit", "--hold", "--", "true"), ("--version",))
_HERE = str(Path(sys.executable).with_name("gpudeck"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cli_start")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("gpudeck", nargs="*", default=[_HERE])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as base, state_folder(Path(base) / "home"):
        settings.save(Settings(source="cpu"))
        with Client() as deck:
            eventually(lambda: any(state.reading for state in deck.snapshot().devices), 30.0)
            found = measure(args.gpudeck, args.rounds)
    rows = []
    for (program, command), samples in found.items():
        row = spread(samples)
        rows.append(
            {
                "program": "this" if program == _HERE else program,
                "command": command,
                "unit": "ms",
                **row,
                **context(f"{os.cpu_count()} cores", []),
            }
        )
        print(f"{program:50} {command:24} {row['median']:6.0f} ms (p95 {row['p95']:.0f})")
    print(write("cli_start", rows, args.out))
    return 0


def measure(programs: list[str], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Return the milliseconds by program and command.

    The first round, which loads files from disk, is not counted.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds + 1):
        for command in COMMANDS:
            for program in programs:
                began = time.perf_counter()
                subprocess.run([program, *command], capture_output=True, check=True)
                if turn:
                    found.setdefault((program, " ".join(command)), []).append(
                        1e3 * (time.perf_counter() - began)
                    )
    return found


if __name__ == "__main__":
    sys.exit(main())
