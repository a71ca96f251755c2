"""Values as a daemon tells them: a deck with a CPU or with replayed GPUs, and a job in every
state."""

from __future__ import annotations

import msgspec

from gpudeck.accel.result import Check, Result, Timing
from gpudeck.assistant.facts import Fact, gather
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Failed,
    Job,
    Lost,
    Progress,
    Running,
    Spec,
    State,
    queued,
)
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, Columns, DeviceState, Idle, Snapshot
from gpudeck.scheduler.protocol.wait_reasons import StartFailed

NOW = 1_763_000_000.0
CPU = Device("cpu", 0, "AMD EPYC 9654", "cpu", "CPU: no NVIDIA GPU found")
CPU_STATE = DeviceState(
    CPU,
    Reading(
        "cpu",
        NOW,
        {"util": 37.2, "mem_used": 3 * 2**30, "mem_total": 16 * 2**30, "tflops": 0.0871},
        {"temp": "no sensor", "power": "no counter"},
        processes=(Process(4321, "python3", "me", 2**30),),
    ),
    Busy(HeldByJobs((8,))),
    (8,),
)
RESULT = Result(
    "attention",
    "CPU: AMD EPYC 9654",
    "efficient",
    "chosen by auto",
    {"batch": 1, "heads": 4, "seq": 1024},
    "pass",
    (Check("out", 1.2e-7, 1e-5),),
    Timing(12.34, 12.3, 13.9, 15.0, 11.0, 16.0, 320),
    1e9,
    0.0873,
    0.0851,
    NOW - 60,
    NOW - 40,
    {},
    NOW - 70,
    NOW - 35,
)
HISTORY = {
    "cpu": Columns(
        [NOW - 300, NOW - 200, NOW],
        {"util": [3.0, None, 90.0], "mem_used": [2.0**30] * 3, "tflops": [None, None, 0.0871]},
    )
}


def job(number: int, state: State, name: str = "attention", **spec: object) -> Job:
    return Job(number, Spec(("x",), name, "/", gpus=1, **spec), NOW - 100, state)


DONE = job(
    7,
    Done(NOW - 80, NOW - 30, ("cpu",), msgspec.Raw(msgspec.json.encode(RESULT))),
    workload="attention",
)
JOBS = (
    job(9, queued(StartFailed("the CPU is held by job 8"), 0.0), "train_big"),
    job(8, Running("a", ("cpu",), NOW - 10, 1, 1, "b", Progress(3, 10, "timing"))),
    DONE,
    job(6, Failed(NOW - 80, NOW - 79, "it exited with status 3", 3), "bad.py"),
    job(5, Cancelled(NOW - 50), "unloved"),
    job(4, Lost(NOW - 90, NOW - 20, "its runner was killed"), "adrift"),
)


def snapshot(
    *devices: DeviceState, jobs: tuple[Job, ...] = JOBS, source: str = "cpu", **more: object
) -> Snapshot:
    return Snapshot(1, NOW, devices, jobs, Settings(), source, **more)


def replayed(index: int) -> DeviceState:
    device = Device(f"g{index}", index, "NVIDIA H100", "replay", "REPLAY of h100.trace.gz")
    values = {
        "util": 99.0,
        "temp": 71.0 + index,
        "power": 657.3,
        "tflops": 633.0,
        "mem_used": 4e10,
        "mem_total": 8.5e10,
        "power_limit": 700.0,
    }
    return DeviceState(device, Reading(device.id, NOW, values), Idle(NOW - 65))


CPU_FACTS: tuple[Fact, ...] = gather(snapshot(CPU_STATE), JOBS, HISTORY, NOW - 600, NOW)
REPLAY_FACTS: tuple[Fact, ...] = gather(
    snapshot(replayed(0), replayed(1), source=phrase("replay of {file}", file="h100.trace.gz")),
    (),
    {},
    NOW - 600,
    NOW,
)
