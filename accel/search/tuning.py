"""Search a declared kernel as a program: `python -P -m gpudeck.accel.search.tuning FILE`.

The winner's verdict is printed as one line of JSON. The exit status is 0 if the winner was
accepted, 1 if it was refused, and 2 if nothing could be searched, which one line on standard error
explains.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpudeck.accel.search.verdict import encode


def main() -> int:
    """Search the file that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -P -m gpudeck.accel.search.tuning")
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--install", action="store_true")
    args = parser.parse_args()
    try:
        from gpudeck.accel.search.api import optimize_kernel
        from gpudeck.accel.search.contest import Effort
        from gpudeck.accel.search.engine import Budget
        from gpudeck.accel.search.judge import COMPILED

        found = optimize_kernel(
            args.file,
            budget=Budget(args.minutes),
            effort=Effort(seconds=args.seconds),
            compiled=() if args.no_compile else COMPILED,
            use=args.install,
        )
    except BlockingIOError:
        print("another program searches the same kernel; wait until it has ended", file=sys.stderr)
        return 2
    except (ValueError, OSError, MemoryError, RuntimeError) as e:
        print(" ".join(str(e).split()), file=sys.stderr)
        return 2
    assert found.verdict is not None, "the target is this machine"
    print(encode(found.verdict).decode())
    return 0 if found.verdict.accepted else 1


if __name__ == "__main__":
    sys.exit(main())
