"""Judge or search a kernel as a program, which prints the verdict as one line of JSON.

    python -P -m gpudeck.accel.search.program judge FILE --task softmax
    python -P -m gpudeck.accel.search.program tune FILE
    python -P -m gpudeck.accel.search.program tune attention --dtype bfloat16

The exit status is 0 if the kernel was accepted, 1 if it was refused, and 2 if nothing could be
judged, which one line on standard error explains.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from gpudeck.accel.search.verdict import Source, Verdict, encode


def _judge(args: argparse.Namespace) -> Verdict:
    import torch

    from gpudeck.accel.search.contest import Effort
    from gpudeck.accel.search.judge import COMPILED, judge
    from gpudeck.accel.search.tasks import task_of

    task = task_of(args.task, getattr(torch, args.dtype), _sizes(args))
    return judge(
        Source(str(Path(args.target).resolve(strict=True)), args.entry),
        dataclasses.replace(task, own=task.own and not args.library),
        compiled=() if args.no_compile else COMPILED,
        effort=Effort(seconds=args.seconds),
        seed=args.seed,
    )


def _tune(args: argparse.Namespace) -> Verdict:
    import torch

    from gpudeck.accel.search.api import TASKS, optimize_kernel
    from gpudeck.accel.search.contest import Effort
    from gpudeck.accel.search.engine import Budget
    from gpudeck.accel.search.judge import COMPILED

    found = optimize_kernel(
        args.target if args.target in TASKS else Path(args.target),
        sizes=_sizes(args),
        dtype=getattr(torch, args.dtype),
        budget=Budget(args.minutes),
        effort=Effort(seconds=args.seconds),
        compiled=() if args.no_compile else COMPILED,
        use=args.install,
    )
    assert found.verdict is not None, "the target is this machine"
    return found.verdict


def _sizes(args: argparse.Namespace) -> dict[str, int]:
    return {name: int(value) for name, value in (s.split("=") for s in args.size)}


def main() -> int:
    """Do what the arguments name."""
    parser = argparse.ArgumentParser(prog="python -P -m gpudeck.accel.search.program")
    parser.add_argument("action", choices=("judge", "tune"))
    parser.add_argument("target")
    parser.add_argument("--task")
    parser.add_argument("--entry", default="candidate")
    parser.add_argument("--size", action="append", default=[])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--library", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--install", action="store_true")
    args = parser.parse_args()
    try:
        verdict = _judge(args) if args.action == "judge" else _tune(args)
    except BlockingIOError:
        print("another program searches the same kernel; wait until it has ended", file=sys.stderr)
        return 2
    except (ValueError, OSError, MemoryError, RuntimeError) as e:
        print(" ".join(str(e).split()), file=sys.stderr)
        return 2
    print(encode(verdict).decode())
    return 0 if verdict.accepted else 1


if __name__ == "__main__":
    sys.exit(main())
