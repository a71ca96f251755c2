"""Run a workload: read the parameters, check the answer, then time it.

Standard output carries progress (see `gpudeck.accel.workloads.progress`), then a summary for
people. The Result is written to the file that GPUDECK_RESULT names, or printed as the last line.
The exit status is 0 for pass, 1 for failure and 2 for wrong usage; errors are one line on standard
error.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gpudeck.accel.result import (
    NO_SENSORS,
    NOT_TIMED,
    Cell,
    Check,
    Curve,
    Figure,
    Result,
    Sensors,
    Timing,
    verdict_of,
    write,
)
from gpudeck.accel.workloads import catalog
from gpudeck.accel.workloads.options import Values, parse
from gpudeck.accel.workloads.progress import Progress, warm_up
from gpudeck.accel.workloads.summary import lines
from gpudeck.accel.workloads.task import Task, TimedTask, rate, timed
from gpudeck.language.rendering import json_in_english
from gpudeck.language.text import Message

if TYPE_CHECKING:
    from gpudeck.accel.runtime.capability import ComputeDevice


_NOT_SIZES = ("trials", "seed")


class UsageError(Exception):
    """Signal that the parameters are wrong, or do not fit together."""


class Failure(Exception):
    """Signal that this machine cannot do it; the message says what to do."""


class OutOfMemory(Failure):
    """Signal that there is not enough memory."""


Prepare = Callable[[Values, "ComputeDevice"], Task]
"""A function that creates a Task on the device.

It raises ValueError if the parameters do not fit together or the backend cannot compute them.
"""


@dataclass(frozen=True)
class Outcome:
    """Hold the part of a Result that differs between workloads."""

    backend: str
    reason: Message
    checks: tuple[Check, ...]
    timing: Timing = NOT_TIMED
    flops: float = 0.0
    moved: float = 0.0
    sustained_tflops: float = 0.0
    sustained_from: float = 0.0
    sustained_to: float = 0.0
    sensors: Sensors = NO_SENSORS
    cells: tuple[Cell, ...] = ()
    curves: tuple[Curve, ...] = ()
    figures: tuple[Figure, ...] = ()
    failures: tuple[Message, ...] = ()
    """Further failures, beside checks that did not pass."""


Work = Callable[[Values, "ComputeDevice", Progress], Outcome]
"""A function that runs a whole workload without gradients; it raises the same as Prepare."""


def main(name: str, prepare: Prepare, argv: Sequence[str] | None = None) -> int:
    """Run a workload that is one Task; return the exit status."""
    return serve(
        name,
        lambda values, device, progress: _one(prepare(values, device), values, device, progress),
        argv,
    )


def serve(name: str, work: Work, argv: Sequence[str] | None = None) -> int:
    """Run the workload called `name` in the catalog; return the exit status."""
    workload = catalog.find(name)
    try:
        result = _run(workload, work, sys.argv[1:] if argv is None else argv)
        _deliver(result)
    except UsageError as e:
        return _refused(2, str(e))
    except OutOfMemory as e:
        sizes = [
            p.name
            for p in workload.params
            if p.kind in ("int", "ints") and p.name not in _NOT_SIZES
        ]
        return _refused(1, f"out of memory: {e}. Reduce {' or '.join(sizes)}")
    except BrokenPipeError:
        # the interpreter flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _refused(1, "the output is closed")
    except (Failure, OSError) as e:
        return _refused(1, str(e))
    except KeyboardInterrupt:
        return 130
    return 0 if result.passed else _refused(1, str(result.verdict))


def require(device: ComputeDevice, needed: float) -> None:
    """Raise OutOfMemory if less than `needed` bytes are free."""
    free = device.free_memory()
    if needed > free:
        raise OutOfMemory(
            f"at least {needed / 2**30:.1f} GiB are needed, and {device} has"
            f" {free / 2**30:.1f} GiB free"
        )


def _one(task: Task, values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    seconds = values.number("seconds")
    progress.plan(seconds + warm_up(seconds))
    progress.stage("checking")
    checks = task.check()
    if not all(c.passed for c in checks):
        return Outcome(task.backend, task.reason, checks, flops=task.flops)
    m = timed(task, device, progress, seconds)
    span = m.loop.started, m.loop.ended
    cells = () if task.cell is None else (_measured(task, task.cell, checks, m),)
    return Outcome(
        task.backend,
        task.reason,
        checks,
        m.loop.timing,
        task.flops,
        task.moved,
        m.sustained_tflops,
        *span,
        m.sensors,
        cells,
    )


def _measured(task: Task, cell: Cell, checks: tuple[Check, ...], m: TimedTask) -> Cell:
    return msgspec.structs.replace(
        cell, backend=task.backend, note=task.reason, timing=m.loop.timing, checks=checks,
        tflops=rate(cell.flops, m.loop.timing.median / 1e3) / 1e12, sensors=m.sensors,
    )  # fmt: skip


def _run(workload: catalog.Workload, work: Work, argv: Sequence[str]) -> Result:
    started = time.time()
    with _usage():
        given = parse(workload, argv)
        workload.complete(given, "cpu")
    progress = Progress()
    progress.stage("loading torch")
    import torch

    with _explained():
        from gpudeck.accel.runtime import capability

        device = capability.find_device()
        values = Values(workload.complete(given, "nvidia" if device.kind == "cuda" else "cpu"))
        progress.stage("preparing")
        with torch.no_grad(), _usage():
            outcome = work(values, device, progress)
    progress.end()
    return _result(workload, values, str(device), outcome, capability.versions(), started)


def _result(
    workload: catalog.Workload,
    values: Values,
    device: str,
    o: Outcome,
    versions: dict[str, str],
    started: float,
) -> Result:
    wrong = [c.fault for c in o.checks if not c.passed]
    return Result(
        workload=workload.name,
        device=device,
        backend=o.backend,
        reason=o.reason,
        params=values.as_params(workload),
        verdict=verdict_of([*wrong, *o.failures]),
        checks=o.checks,
        timing=o.timing,
        flops=o.flops,
        tflops=rate(o.flops, o.timing.median / 1e3) / 1e12,
        sustained_tflops=o.sustained_tflops,
        sustained_from=o.sustained_from,
        sustained_to=o.sustained_to,
        versions=versions,
        started=started,
        ended=time.time(),
        bandwidth=rate(o.moved, o.timing.median / 1e3),
        sensors=o.sensors,
        cells=o.cells,
        curves=o.curves,
        figures=o.figures,
    )


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except ValueError as e:
        raise UsageError(str(e)) from e


@contextmanager
def _explained() -> Iterator[None]:
    """Turn torch's errors, which are all RuntimeError, into one line."""
    try:
        yield
    except RuntimeError as e:
        text = str(e)
        asked = re.search(r"ried to allocate ([\d.]+ \w+)", text)
        if asked or "out of memory" in text:
            raise OutOfMemory(
                f"an allocation of {asked[1] if asked else 'unknown size'} failed"
            ) from e
        raise Failure(text.partition("\n")[0] or type(e).__name__) from e


def _deliver(result: Result) -> None:
    path = os.environ.get("GPUDECK_RESULT")
    if path:
        write(result, path)
    for line in lines(result):
        print(line)
    if not path:
        print(json_in_english(msgspec.json.encode(result)).decode())
    sys.stdout.flush()


def _refused(status: int, message: str) -> int:
    print(" ".join(message.split()), file=sys.stderr)
    return status
