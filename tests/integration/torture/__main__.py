"""make torture [SEED=n] [N=faults]: inject faults, and print how many jobs they cost.

The campaigns from the outside come first: they know only the command line and the files that jobs
write. Those from the inside follow, which strike the daemon and its runners at exact places. The
status is 1 if a job was lost, ran too often or in a loop, or the daemon did not answer.
"""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.integration.torture import inside
from tests.integration.torture.outside import driver

PARTS = ("outside", "inside")


def main() -> int:
    """Run the campaigns, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.torture")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=PARTS)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--faults", type=int, default=2000, help="of the campaigns from outside")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    runs = {
        "outside": lambda: driver.run(args.seed, args.faults),
        "inside": lambda: inside.run(args.seed),
    }
    return max([runs[part]() for part in args.parts])


if __name__ == "__main__":
    sys.exit(main())
