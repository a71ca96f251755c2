"""make torture [SEED=n] [N=faults]: inject faults, and print how many jobs they cost.

The campaigns from the outside come first: they know only the command line and the files that jobs
write. Those from the inside follow, which strike the daemon and its runners at exact places. Then
come a daemon that several users share, the queue of another machine, and commands that change
people's files. The status is 1 if a job or a byte was lost, a job ran too often or in a loop, or
the daemon did not answer.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys

from tests.integration.torture import inside
from tests.integration.torture.outside import driver

PARTS = ("outside", "inside", "others", "remote", "changed_files")
NEED_ROOT = ("others", "changed_files")
"""Parts that make users or mount a disk."""


def main() -> int:
    """Run the campaigns, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.torture")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--faults", type=int, default=2000, help="of the campaigns from outside")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    runs = {
        "outside": lambda: driver.run(args.seed, args.faults),
        "inside": lambda: inside.run(args.seed),
    }
    return max(
        [
            runs[part]() if part in runs else run_alone(part, args.seed)
            for part in (PARTS if "all" in args.parts else args.parts)
        ]
    )


def run_alone(part: str, seed: int) -> int:
    """Run a campaign that is a program of its own, and return its exit status."""
    if part in NEED_ROOT and os.getuid():
        print(f"LEFT OUT: {part}, which needs root", flush=True)
        return 0
    words = [sys.executable, "-m", f"tests.integration.torture.{part}", "--seed", str(seed)]
    return subprocess.run(words, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
