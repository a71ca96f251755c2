"""All that has to be shown on a GPU, by one command that anyone with an H100 can run.

    python -m tests.gpu [--minutes 25] [--tests] [--only NAME ...] [--out FOLDER] [--list]

Uses all GPUs that CUDA_VISIBLE_DEVICES leaves, or all there are. Begins nothing that could not end
in time. FOLDER gets verdicts.txt and all logs, rows and models as campaign.tar.gz in parts (`cat
campaign.tar.gz.* | tar xz`); the same command with the same FOLDER, here or on another machine,
goes on with what is still to do. --tests leaves out what makes a figure and judges nothing.
Exit status 0: every step passed that so many GPUs can run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from tests.benchmarks.gpu_probe import need_gpu
from tests.gpu.campaign import Campaign, missing
from tests.gpu.steps import STEPS


def gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them. Ends the program in one line where there is none."""
    if chosen := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return chosen.split(",")
    return [str(n) for n in range(need_gpu())]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=25.0, help="when all must have ended (default: 25)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=[step.name for step in STEPS],
        help="these, also if they ran before",
    )
    parser.add_argument(
        "--tests", action="store_true", help="only what shows whether something is right"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("gpu-campaign"),
        metavar="FOLDER",
        help="default: gpu-campaign",
    )
    parser.add_argument("--list", action="store_true", help="show the steps, and run none")
    args = parser.parse_args()
    if args.list:
        for step in STEPS:
            absent = "".join(f"; {name} is not here" for name in missing(step, step.gpus))
            print(f"{step.name:28} {step.room:8} {step.seconds:4.0f} s  {step.shows}{absent}")
        print(f"one after the other: {sum(step.seconds for step in STEPS) / 60:.0f} minutes")
        return 0
    steps = [
        step
        for step in STEPS
        if (not args.only or step.name in args.only) and not (args.tests and step.figure)
    ]
    out = args.out.absolute()
    campaign = Campaign(steps, out.with_name(f"{out.name}.work"), out, gpus())
    campaign.forget(args.only or ())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    passed = campaign.run(60 * args.minutes)
    print(campaign.verdicts(), flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
