"""Measure what each of the probe's calls of NVML costs, in CPU time and wall time.

    python -m tests.benchmarks.nvml_calls [--hz 2] [--out DIR]

Needs a machine with an NVIDIA GPU, which should be idle, so that no call waits. The rows go to
results/nvml_calls.csv, with the total at the pace of the fields. The rest of the probe's work
(Python, JSON, waking up) is the difference to results/probe_cost.csv.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pynvml as nv

from gpudeck.scheduler.devices.nvidia.clocks import SmClock, Throttle
from gpudeck.scheduler.devices.nvidia.errors import optional
from gpudeck.scheduler.devices.nvidia.events import XidEvents
from gpudeck.scheduler.devices.nvidia.gpm import MIN_INTERVAL_S, GpmSampler
from gpudeck.scheduler.devices.nvidia.gpu_processes import GpuProcesses
from gpudeck.scheduler.devices.nvidia.links import NvLinks
from gpudeck.scheduler.devices.nvidia.mig import MigInstances
from gpudeck.scheduler.devices.nvidia.queries import QUERIES, SLOW_S
from gpudeck.scheduler.devices.probe import RENEWED_S
from tests.benchmarks.gpu_probe import need_gpu
from tests.benchmarks.rows import RESULTS, context, write

REPEATS = 30


class Question(NamedTuple):
    """Describe a call of the probe, and how often it is made in a second."""

    name: str
    ask: Callable[[], object]
    hz: float


def questions(handle: Any, hz: float) -> list[Question]:
    """Return all calls that `gpudeck.scheduler.devices.nvidia.gpu.Gpu` makes for a reading of one
    GPU."""
    found = [
        Question(" ".join(c.fields), lambda c=c: optional(c.call, handle), _pace(c.period_s, hz))
        for c in QUERIES
    ]
    links, clock, throttle, users, mig = (
        NvLinks(handle),
        SmClock(handle),
        Throttle(handle),
        GpuProcesses(handle),
        MigInstances(handle),
    )
    events = XidEvents({nv.nvmlDeviceGetUUID(handle): handle})
    found += [
        Question("SM clock", clock.sample, max(hz, 1 / RENEWED_S)),
        Question("throttle", lambda: throttle.read(time.time(), {}, {}), hz),
        Question("processes", users.current, hz),
        Question("Xid events", events.collect, hz),
        Question("number of GPUs", nv.nvmlDeviceGetCount, hz),
        Question("MIG instances", mig.changed, 1 / SLOW_S),
        Question(
            "NVLink, all links",
            lambda: links.read(time.monotonic() + 1e6, {}, {}, True),
            1 / SLOW_S,
        ),
    ]
    if (gpm := optional(GpmSampler, handle)) is None:
        return found
    return [
        *found,
        Question("GPM", gpm.read, hz),
        Question("GPM, with what is read slowly", lambda: _slowly(gpm), 1 / SLOW_S),
    ]


def _slowly(gpm: GpmSampler) -> None:
    gpm._slow_at = 0.0
    gpm.read()


def _pace(period_s: float, hz: float) -> float:
    return 1 / period_s if period_s else hz


def cost(question: Question) -> dict[str, object]:
    """Return means over REPEATS calls, with pauses as in the probe, without the first call."""
    cpu, wall = [], []
    for _ in range(REPEATS + 1):
        time.sleep(MIN_INTERVAL_S if question.name.startswith("GPM") else 0.005)
        before, start = time.thread_time(), time.perf_counter()
        question.ask()
        cpu.append(1e6 * (time.thread_time() - before))
        wall.append(1e6 * (time.perf_counter() - start))
    cpu_us, wall_us = sum(cpu[1:]) / REPEATS, sum(wall[1:]) / REPEATS
    share = 100 * 1e-6 * cpu_us * question.hz
    row = {
        "question": question.name,
        "per_second": round(question.hz, 4),
        "cpu_us": round(cpu_us, 1),
        "wall_us": round(wall_us, 1),
    }
    return {**row, "percent_of_a_core": round(share, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.nvml_calls")
    parser.add_argument("--hz", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    need_gpu()
    nv.nvmlInit()
    handle = nv.nvmlDeviceGetHandleByIndex(0)
    where = context(str(nv.nvmlDeviceGetName(handle)), ["nvidia-ml-py"]) | {
        "driver": str(nv.nvmlSystemGetDriverVersion())
    }
    rows = sorted(
        (cost(q) for q in questions(handle, arguments.hz)),
        key=lambda row: -float(str(row["percent_of_a_core"])),
    )
    for row in rows:
        print(
            "{percent_of_a_core:8} % {cpu_us:9} us of CPU {wall_us:9} us "
            "{per_second:8} a second  {question}".format(**row)
        )
    print(sum(float(str(row["percent_of_a_core"])) for row in rows), "% of a core together")
    print(write("nvml_calls", [row | where for row in rows], arguments.out))


if __name__ == "__main__":
    main()
