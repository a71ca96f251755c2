"""What all workloads share: read the parameters, check the answer, then time it.

Standard output carries progress (see `accel.workloads.progress`), then a summary for people. The Result goes to the file that
GPUDECK_RESULT names, or is the last line. Exit status: 0 passed, 1 failed, 2 wrong usage; errors are one line on standard error.
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

from accel.result import Check, Result, Timing, write
from accel.workloads import catalog
from accel.workloads.options import Values, parse
from accel.workloads.progress import Progress

if TYPE_CHECKING:
    from accel.runtime.capability import Device
    from accel.runtime.timing import Measurement

_NOT_TIMED = Timing(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)


class UsageError(Exception):
    """The parameters are wrong, or do not fit together."""


class Failure(Exception):
    """It cannot be done here; says why and what to do."""


class OutOfMemory(Failure):
    """More memory is needed than there is."""


@dataclass(frozen=True)
class Task:
    """A workload made ready: what to call, and what one call is."""

    backend: str
    reason: str
    call: Callable[[], object]
    check: Callable[[], tuple[Check, ...]]
    """Calls once and compares the answer."""
    flops: float = 0.0
    """Of one call."""
    moved: float = 0.0
    """Bytes read and written by one call, where that is the point."""


Prepare = Callable[[Values, "Device"], Task]
"""Makes a Task on the device. Raises ValueError where the parameters do not fit together or the backend cannot do it."""


def main(name: str, prepare: Prepare, argv: Sequence[str] | None = None) -> int:
    """Run the workload called `name` in the catalog; returns the exit status."""
    workload = catalog.find(name)
    try:
        result = _run(workload, prepare, sys.argv[1:] if argv is None else argv)
        _deliver(result)
    except UsageError as e:
        return _refused(2, str(e))
    except OutOfMemory as e:
        sizes = [p.name for p in workload.params if p.kind == "int"]
        return _refused(1, f"out of memory: {e}. Reduce {' or '.join(sizes)}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter's last flush would complain again
        return _refused(1, "nobody reads the output any more")
    except (Failure, OSError) as e:
        return _refused(1, str(e))
    except KeyboardInterrupt:
        return 130
    return 0 if result.verdict == "pass" else _refused(1, result.verdict)


def require(device: Device, needed: float) -> None:
    """Raises OutOfMemory where less than `needed` bytes are free, before anything is allocated."""
    free = device.free_memory()
    if needed > free:
        raise OutOfMemory(f"at least {needed / 2**30:.1f} GiB are needed, and {device} has {free / 2**30:.1f} GiB free")


def summary(result: Result) -> list[str]:
    """The result in a few lines, for people."""
    t = result.timing
    lines = [f"{result.workload} on {result.device}, by {result.backend} ({result.reason})"]
    if t.count:
        rate = f"{result.bandwidth / 1e9:.4g} GB/s" if result.bandwidth else f"{result.tflops:.4g} TFLOP/s"
        sustained = f", sustained {result.sustained_tflops:.4g} TFLOP/s" if result.flops else ""
        lines.append(f"{rate} at the median of {t.median:.4g} ms (P95 {t.p95:.4g}, P99 {t.p99:.4g}, {t.count} calls){sustained}")
    compared = "; ".join(f"{c.name} {c.error:.3g} (bound {c.bound:.3g})" for c in result.checks)
    return [*lines, f"{result.verdict.partition(':')[0]}: {compared}"]


def _run(workload: catalog.Workload, prepare: Prepare, argv: Sequence[str]) -> Result:
    started = time.time()
    with _usage():
        given = parse(workload, argv)
        progress = Progress(float(workload.complete(given, "cpu")["seconds"]))
    progress.stage("loading torch")
    import torch

    with _explained():
        from accel.runtime import capability

        device = capability.current()
        values = Values(workload.complete(given, "nvidia" if device.kind == "cuda" else "cpu"))
        progress.plan(values.number("seconds"))
        progress.stage("preparing")
        with torch.inference_mode():
            with _usage():
                task = prepare(values, device)
            progress.stage("checking")
            checks = task.check()
            measured = _time(task, device, progress) if all(c.passed for c in checks) else None
        return _result(workload, values, device, task, checks, measured, started)


def _time(task: Task, device: Device, progress: Progress) -> Measurement:
    from accel.runtime.timing import measure

    def report(elapsed: float, calls: int) -> None:
        progress.advance(elapsed, calls * task.flops)

    progress.stage("warming up", flops_before=task.flops)  # the check called once
    measure(task.call, progress.warm_up_s, device.torch_device, report)
    progress.stage("timing", begins=progress.warm_up_s)
    measured = measure(task.call, progress.seconds, device.torch_device, report)
    progress.end()
    return measured


def _result(
    workload: catalog.Workload,
    values: Values,
    device: Device,
    task: Task,
    checks: tuple[Check, ...],
    measured: Measurement | None,
    started: float,
) -> Result:
    from accel.runtime.capability import versions

    timing = measured.timing if measured else _NOT_TIMED
    wrong = [f"{c.name} is {c.error:.3g}, above the bound {c.bound:.3g}" for c in checks if not c.passed]
    return Result(
        workload=workload.name,
        device=str(device),
        backend=task.backend,
        reason=task.reason,
        params=values.as_params(workload),
        verdict=f"fail: {'; '.join(wrong)}" if wrong else "pass",
        checks=checks,
        timing=timing,
        flops=task.flops,
        tflops=_rate(task.flops, timing.median / 1e3) / 1e12,
        sustained_tflops=_rate(task.flops * timing.count, measured.wall_s) / 1e12 if measured else 0.0,
        sustained_from=measured.started if measured else 0.0,
        sustained_to=measured.ended if measured else 0.0,
        versions=versions(),
        started=started,
        ended=time.time(),
        bandwidth=_rate(task.moved, timing.median / 1e3),
    )


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


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
            raise OutOfMemory(f"an allocation of {asked[1] if asked else 'unknown size'} failed") from e
        raise Failure(text.partition("\n")[0] or type(e).__name__) from e


def _deliver(result: Result) -> None:
    path = os.environ.get("GPUDECK_RESULT")
    if path:
        write(result, path)
    for line in summary(result):
        print(line)
    if not path:
        print(msgspec.json.encode(result).decode())
    sys.stdout.flush()


def _refused(status: int, message: str) -> int:
    print(" ".join(message.split()), file=sys.stderr)
    return status
