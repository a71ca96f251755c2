"""Judge a file as a program: `python -P -m gpudeck.accel.search.judging FILE --task softmax`.

The verdict's record is printed as one line of JSON. The exit status is 0 if the candidate was
accepted, 1 if it was refused, and 2 if it could not be judged, which one line on standard error
explains.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from gpudeck.accel.search.verdict import Source, encode


def main() -> int:
    """Judge the file that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -P -m gpudeck.accel.search.judging")
    parser.add_argument("file", type=Path)
    parser.add_argument("--task", required=True)
    parser.add_argument("--entry", default="candidate")
    parser.add_argument("--size", action="append", default=[])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--library", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    try:
        sizes = {name: int(value) for name, value in (s.split("=") for s in args.size)}
        import torch

        from gpudeck.accel.search.contest import Effort
        from gpudeck.accel.search.judge import COMPILED, judge
        from gpudeck.accel.search.tasks import task_of

        task = task_of(args.task, getattr(torch, args.dtype), sizes)
        verdict = judge(
            Source(str(args.file.resolve(strict=True)), args.entry),
            dataclasses.replace(task, own=task.own and not args.library),
            compiled=() if args.no_compile else COMPILED,
            effort=Effort(seconds=args.seconds),
            seed=args.seed,
        )
    except (ValueError, OSError, MemoryError, RuntimeError) as e:
        print(" ".join(str(e).split()), file=sys.stderr)
        return 2
    print(encode(verdict).decode())
    return 0 if verdict.accepted else 1


if __name__ == "__main__":
    sys.exit(main())
