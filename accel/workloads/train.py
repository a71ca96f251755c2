"""Train a language model.

Run `python -P -m gpudeck.accel.workloads.train --data=FILE ...`. Steps print lines of JSON with
their losses, at most two a second. SIGTERM and Ctrl+C end the run with a checkpoint, from which it
continues.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from gpudeck.accel.result import NOT_TIMED, Curve, Figure, Sensors
from gpudeck.accel.training.errors import Diverged, Refused, Stopped
from gpudeck.accel.training.settings import AUTO, Settings, settings_of
from gpudeck.accel.workloads.harness import Outcome, serve
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.progress import Progress
from gpudeck.accel.workloads.task import rate
from gpudeck.language.text import Message, Text, mark_phrase, message_of, phrase

if TYPE_CHECKING:
    from gpudeck.accel.runtime.capability import ComputeDevice
    from gpudeck.accel.runtime.power import EnergyWatch
    from gpudeck.accel.training.estimate import Estimate
    from gpudeck.accel.training.journal import Measured
    from gpudeck.accel.training.loop import Run

_EVERY_S = 0.5
"""The least time between two lines of progress."""
_MOST_POINTS = 500
"""The most points of a curve in a Result; metrics.jsonl has all."""
_UNTIMED = 4
"""The first steps, which compile and allocate, and do not count as speed."""
_CURVES = (
    ("loss", mark_phrase("loss"), ""),
    ("held_out", mark_phrase("held-out loss"), ""),
    ("norm", mark_phrase("gradient norm"), ""),
    ("tokens_per_second", mark_phrase("speed"), "tokens/s"),
    ("rate", mark_phrase("learning rate"), ""),
)


def work(values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    """Train by the parameters; a run that ended early has a Result with its losses, too."""
    from gpudeck.accel.runtime.power import EnergyWatch
    from gpudeck.accel.training.api import opened, write_out

    progress.stage("reading the data")
    try:
        settings = settings_of(values.given)
        out, follower = folder_of(settings), Follower(settings, device, progress)
        with opened(settings, out, device, follower, follower.read) as run:
            follower.begin(run)
            began = time.time()
            ended: Message = ""
            place = phrase("the folder of the run is {out}", out=str(out))
            with _stop_requests(follower), EnergyWatch(device.torch_device) as energy:
                try:
                    run.train()
                    write_out(run, out)
                    command = f"gpudeck serve {shlex.quote(str(out.absolute()))}"
                    place = phrase("the model is ready. Try it with: {command}", command=command)
                except (Stopped, Diverged) as e:
                    ended = message_of(e)
            follower.say(place)
            return follower.outcome(energy, began, "" if follower.estimated_only else ended)
    except Refused as e:
        raise ValueError(str(e)) from e


def folder_of(settings: Settings) -> Path:
    """Return the folder of a run, by default one whose name says the model and the job.

    A served model is called like its folder.
    """
    if settings.out != AUTO:
        return Path(settings.out).expanduser()
    trained = settings.model if settings.base == AUTO else Path(settings.base).expanduser().name
    if "GPUDECK_ARTEFACTS" not in os.environ:
        return Path("trained") / trained
    artefacts = Path(os.environ["GPUDECK_ARTEFACTS"])  # .../JOB/artefacts, of the first attempt
    return artefacts / f"{trained}-{artefacts.parent.name}"


class Follower:
    """Print what a run measures, estimate what it needs, and pass on that it is to stop."""

    def __init__(self, settings: Settings, device: ComputeDevice, progress: Progress) -> None:
        """Follow no run yet. Raises Refused if the price of energy is not a number."""
        from gpudeck.accel.training.estimate import price_in

        self._settings, self._device, self._progress = settings, device, progress
        self._printed = 0.0
        self._run: Run | None = None
        self.stop = False
        self.milliseconds: list[float] = []
        """Of the steps of this process that count as speed."""
        self.early: Estimate | None = None
        """What was estimated after the first steps."""
        self._done = 0
        """The steps of this process."""
        self._price = price_in(os.environ)

    def read(self, done: float, total: float) -> None:
        """Take the bytes of the data that were read."""
        if time.monotonic() - self._printed >= _EVERY_S:
            self._printed = time.monotonic()
            self._progress.stage(f"reading the data: {100 * done / total:.0f} %")

    def begin(self, run: Run) -> None:
        """Take the run that begins or continues."""
        self._run = run
        self._progress.plan(float(self._settings.steps))
        self._progress.stage("first steps", begins=float(run.step))

    def say(self, text: Message) -> None:
        """Print a message for people."""
        print(text, flush=True)

    def measured(self, row: Measured) -> None:
        """Print what was measured, and what it says about the rest of the run."""
        if row.loss is not None and row.seconds is not None:
            self._done += 1
            if self._done > _UNTIMED:
                self.milliseconds.append(1e3 * row.seconds)
            self._estimate_once(last=row.step == self._settings.steps)
        now, last = time.monotonic(), row.step == self._settings.steps
        if row.loss is None or last or now - self._printed >= _EVERY_S:
            self._printed = now
            print(msgspec.json.encode(self._line(row)).decode(), flush=True)
            if row.loss is not None:
                self._progress.stage(f"loss {row.loss:.4f}", begins=float(row.step))

    def _estimate_once(self, *, last: bool) -> None:
        """Tell what the run needs as soon as enough steps were timed, or after the last one if only
        that is wanted."""
        from gpudeck.accel.training.estimate import is_due

        if self.early is None and (is_due(self.milliseconds) or (last and self._settings.estimate)):
            self.early = self.estimate()
            self.say(self.early.text(time.time(), self._price))

    def _line(self, row: Measured) -> dict[str, float]:
        """Return what is printed of a step: also the share of the peak and the energy of a token
        at the present power, which the card averages over a second, where they are known."""
        said: dict[str, float] = msgspec.to_builtins(row)
        if row.tokens_per_second is not None and self._run is not None:
            share = mfu_of(self._run, row.tokens_per_second)
            if share is not None:
                said["mfu"] = share
            if (watts := self._watts()) is not None:
                said["mj_per_token"] = 1e3 * watts / row.tokens_per_second
        return said

    def _watts(self) -> float | None:
        """Return the present power of the GPUs, as if all took as much as that of this process."""
        from gpudeck.accel.runtime.power import read

        if self._run is None or self._device.kind != "cuda":
            return None
        watts = read(self._device.torch_device)[1]
        return None if watts is None else watts * self._run.ranks.count

    def stopping(self) -> bool:
        """Return True after SIGTERM or Ctrl+C, and where an estimate has all its steps."""
        return self.stop or self.estimated_only

    @property
    def estimated_only(self) -> bool:
        """Return True where only an estimate is wanted, and was made."""
        return self._settings.estimate and self.early is not None

    @property
    def flops(self) -> float:
        """Return the operations of a step."""
        assert self._run is not None
        s = self._settings
        return s.batch * s.tokens * flops_of(self._run)

    def estimate(self) -> Estimate:
        """Return what the run needs, by the steps that were done."""
        assert self._run is not None
        from gpudeck.accel.training.estimate import estimate_of

        return estimate_of(self._run, self._device, self.milliseconds)

    def outcome(self, energy: EnergyWatch, began: float, ended: Message) -> Outcome:
        """Return the Result's parts."""
        from gpudeck.accel.runtime.timing import timing_of

        assert self._run is not None
        run, rows = self._run, self._run.journal.rows
        seconds = sum(self.milliseconds) / 1e3
        return Outcome(
            *run.backend(),
            (),
            timing_of(self.milliseconds) if self.milliseconds else NOT_TIMED,
            self.flops,
            sustained_tflops=rate(self.flops * len(self.milliseconds), seconds) / 1e12,
            sustained_from=began,
            sustained_to=time.time(),
            sensors=Sensors(watts=energy.watts, absent="" if energy.watts else energy.absent),
            curves=tuple(curves_of(rows)),
            figures=tuple(figures_of(run, self.estimate(), self.early, energy)),
            failures=(ended,) if ended else (),
        )


@contextmanager
def _stop_requests(follower: Follower) -> Iterator[None]:
    """Have SIGTERM and Ctrl+C end the run after the step that is computed."""

    def stop(signum: int, frame: FrameType | None) -> None:
        follower.stop = True

    had = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in had.items():
            signal.signal(number, handler)


def curves_of(rows: Sequence[Measured]) -> Iterator[Curve]:
    """Yield the curves of a run, each with at most 500 points, the last one included."""
    for field, name, unit in _CURVES:
        known = [row for row in rows if getattr(row, field) is not None]
        if not known:
            continue
        skip = -(-len(known) // _MOST_POINTS)
        kept = known[::-1][::skip][::-1]
        values = tuple(float(getattr(row, field)) for row in kept)
        yield Curve(Text(name), tuple(row.step for row in kept), values, unit)


def flops_of(run: Run) -> float:
    """Return the operations of a step for each token."""
    s = run.settings
    return run.model.flops(s.tokens, frozen=s.frozen)


def mfu_of(run: Run, tokens_per_second: float) -> float | None:
    """Return the share of the GPUs' peak that a speed is; None if the peak is not known."""
    from gpudeck.accel.runtime.peaks import peak_tflops

    peak = peak_tflops(run.device.name, run.settings.dtype)
    if peak is None:
        return None
    return flops_of(run) * tokens_per_second / 1e12 / peak / run.ranks.count


def figures_of(
    run: Run, estimate: Estimate, early: Estimate | None, energy: EnergyWatch
) -> Iterator[Figure]:
    """Yield what is worth a line."""
    losses = [row.loss for row in run.journal.rows if row.loss is not None]
    if losses:
        yield Figure(phrase("loss"), losses[-1])
    held = [row.held_out for row in run.journal.rows if row.held_out is not None]
    if held:
        yield Figure(phrase("held-out loss"), held[-1])
    parameters = sum(weight.numel() for weight in run.model.parameters())
    yield Figure(phrase("parameters"), parameters)
    yield Figure(phrase("memory at most"), estimate.memory / 2**30, "GiB")
    if not estimate.seconds:
        return
    if early is not None:
        yield Figure(phrase("memory as estimated"), early.memory / 2**30, "GiB")
        yield Figure(phrase("step as estimated"), 1e3 * early.seconds, "ms")
    yield Figure(phrase("speed"), estimate.tokens_per_second, "tokens/s")
    share = mfu_of(run, estimate.tokens_per_second)
    if share is not None:
        yield Figure("MFU", share)
    if energy.watts is not None:
        watts = energy.watts * run.ranks.count  # other processes' GPUs do the same
        yield Figure(phrase("energy"), 1e3 * watts / estimate.tokens_per_second, "mJ/token")


def join_ranks() -> None:
    """Give each process that torchrun started a GPU of its own, and let the first one speak."""
    local = os.environ.get("LOCAL_RANK")
    if local is None:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[int(local)]
    elif visible is None and Path("/dev/nvidiactl").exists():  # else it computes on the CPU
        os.environ["CUDA_VISIBLE_DEVICES"] = local
    if os.environ["RANK"] != "0":
        os.environ.pop("GPUDECK_RESULT", None)
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    join_ranks()
    # threads of torch that wait for each other leave the processor to other programs, beside which
    # spinning ones halve the speed (tests/benchmarks/log/training.md)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # layers of an RWKV-7 that torch 2.11 takes from this cache have shapes of arbitrary numbers, as
    # tests/benchmarks/log/training.md tells
    os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")
    sys.exit(serve("train", work))
