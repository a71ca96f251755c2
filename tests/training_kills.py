"""Kill training processes at random moments, and compare the run with one that nobody disturbed.

    python -m tests.training_kills FOLDER [--kills 100] [--steps 1500] [--given NAME=VALUE ...]

Each attempt is a process of its own, forked from one that has imported torch and not used it. Most
get SIGKILL, every fourth SIGTERM, on which it writes a checkpoint. Prints a line of JSON.
`python -m tests.benchmarks.training kills` does the same on a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpudeck.accel.training.settings import Settings, settings_of

if TYPE_CHECKING:
    from gpudeck.accel.training.journal import Measured

KEPT = ("step", "loss", "held_out", "norm", "rate")
"""What of a step must be equal; times are not."""


def settings_for(steps: int, given: Sequence[str]) -> Settings:
    """Return the settings of a run with small steps and frequent checkpoints, and `name=value`s."""
    return settings_of({
        "model": "tiny", "steps": steps, "batch": 2, "tokens": 32, "evaluate": 50, "checkpoint": 4,
        "rate": 1e-3, "held_out": 0.0004, "precision": "float32", "compile": "no",
        "deterministic": "yes", **dict(word.split("=", 1) for word in given),
    })  # fmt: skip


def attempt(settings: Settings, out: Path) -> tuple[int, int]:
    """Fork a process that trains to the end or until it is stopped.

    Return its pid, and a pipe that gets a byte for each step and ends with the process.
    """
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        return pid, reading
    os.close(reading)
    status = 1
    try:
        os.environ["GPUDECK_HOME"] = str(out.parent)
        status = _train(settings, out, writing)
    except BaseException:  # noqa: BLE001 - nothing above may go on in the forked process
        traceback.print_exc()
    finally:
        os._exit(status)


def _train(settings: Settings, out: Path, told: int) -> int:
    import torch

    from gpudeck.accel.runtime.capability import find_device
    from gpudeck.accel.training.api import opened, write_out
    from gpudeck.accel.training.errors import Stopped

    torch.set_num_threads(1)
    watch = _Watch(told)
    signal.signal(signal.SIGTERM, watch.stop)
    with opened(settings, out, find_device(), watch, lambda *_: None) as run:
        try:
            run.train()
        except Stopped:
            return 3
        write_out(run, out)
    return 0


class _Watch:
    """Tell of each step by a byte in a pipe."""

    stopped = False

    def __init__(self, told: int) -> None:
        self._told = told

    def stop(self, *_: object) -> None:
        self.stopped = True

    def say(self, text: object) -> None:
        pass

    def measured(self, row: Measured) -> None:
        if row.loss is not None:
            os.write(self._told, b".")

    def stopping(self) -> bool:
        return self.stopped


def checkpoints(out: Path) -> list[str]:
    """Return the names of the checkpoints of a run."""
    return sorted(place.name for place in (out / "checkpoints").glob("step-*"))


def outcome(out: Path, settings: Settings) -> tuple[list[dict[str, Any]], bytes]:
    """Return what the steps measured, and the weights.

    A checkpoint brings a held-out loss of its own, and a run that is interrupted has more of them:
    only those count that every run has.
    """
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    kept = [
        {name: row[name] for name in KEPT if name in row}
        for row in rows
        if "held_out" not in row
        or row["step"] % settings.evaluate == 0
        or row["step"] == settings.steps
    ]
    return kept, (out / "model.safetensors").read_bytes()


def disturbed(
    settings: Settings, out: Path, kills: int, longest: float, seed: int,
    steps: int = 0, until: float = math.inf,
) -> list[int]:  # fmt: skip
    """Train with interruptions, then to the end; return the signals that were sent.

    Args:
        settings: what to train.
        out: the folder of the run.
        kills: the number of interruptions.
        longest: the seconds before one, drawn between 0 and this.
        seed: of what is drawn.
        steps: the steps of the attempt that come before these seconds, drawn from 1 to this; 0: the
            seconds count from its start.
        until: the time of `time.monotonic` from which nothing is interrupted any more.
    """
    draw, sent = random.Random(seed), []
    last = msgspec.structs.replace(settings, checkpoint=settings.steps)
    while True:
        interrupted = len(sent) < kills and time.monotonic() < until
        pid, told = attempt(settings if interrupted else last, out)
        if interrupted:
            for _ in range(draw.randint(1, steps) if steps else 0):
                os.read(told, 1)
            time.sleep(draw.uniform(0, longest))
            number = signal.SIGTERM if draw.random() < 0.25 else signal.SIGKILL
            os.kill(pid, number)
            sent.append(int(number))
            print(f"{number.name} to {pid}", *checkpoints(out), file=sys.stderr, flush=True)
        while os.read(told, 4096):
            pass
        os.close(told)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return sent[:-1] if interrupted else sent  # the last came too late
        if code not in (3, -signal.SIGTERM, -signal.SIGKILL):
            raise AssertionError(f"an attempt ended with status {code}")


def main(argv: list[str]) -> int:
    """Run both, and print whether they are equal."""
    parser = argparse.ArgumentParser(prog="python -m tests.training_kills")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--longest", type=float, default=0.5, help="seconds of an attempt at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--given", nargs="*", default=[], help="more settings")
    args = parser.parse_args(argv)
    import gpudeck.accel.training.api  # noqa: F401  once, for all attempts

    settings = settings_for(args.steps, args.given)
    quiet, noisy = args.folder / "quiet", args.folder / "noisy"
    disturbed(settings, quiet, 0, 0, 0)
    sent = disturbed(settings, noisy, args.kills, args.longest, args.seed)
    (rows, weights), (others, other_weights) = (outcome(one, settings) for one in (quiet, noisy))
    said = {
        "steps": args.steps, "killed": sent.count(signal.SIGKILL),
        "paused": sent.count(signal.SIGTERM), "rows": len(rows),
        "equal_rows": rows == others, "equal_weights": weights == other_weights,
        "last_loss": rows[-2]["loss"],
    }  # fmt: skip
    print(json.dumps(said))
    return 0 if said["equal_rows"] and said["equal_weights"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
