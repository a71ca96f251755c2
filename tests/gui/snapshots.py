"""Make snapshots of every kind of device, value and job state for tests and pictures."""

from __future__ import annotations

import math

import msgspec

from gpudeck.accel.result import Cell, Check, Result, Sensors, Timing
from gpudeck.scheduler.protocol.busy_causes import Loaded, OtherProcesses
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Failed,
    Job,
    Lost,
    Progress,
    Running,
    Spec,
    Starting,
    State,
    queued,
)
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, Columns, DeviceState, Idle, Snapshot
from gpudeck.scheduler.protocol.wait_reasons import StartFailed

NOW = 1_764_000_000.0
GIB = 2.0**30
TFLOPS_METHOD = "tensor-core busy share x SMs x 4096 x SM clock"


def gpu(index: int = 0, kind: str = "nvidia", note: str = "") -> Device:
    return Device(f"GPU-{index:08d}", index, "NVIDIA H100 80GB HBM3", kind, note)  # type: ignore[arg-type]


CPU = Device("cpu", 0, "AMD EPYC 9B14", "cpu", "CPU: no NVIDIA GPU found")
REPLAY_NOTE = "REPLAY of h100.trace.gz"


def gpu_reading(
    device: Device,
    time: float = NOW,
    busy: bool = True,
    temp: float | None = None,
    throttle: str = "none",
) -> Reading:
    """Return a reading of a busy or idle H100, with small waves that tell curves apart."""
    wave = math.sin(time / 17 + device.index)
    values = {
        "util": 92 + 6 * wave if busy else 0.0,
        "mem_used": (40 + 4 * device.index + 6 * wave if busy else 0.6) * GIB,
        "mem_total": 79.6 * GIB,
        "tflops": 560 + 60 * wave if busy else 0.0,
        "temp": temp if temp is not None else (60 + 6 * wave + device.index if busy else 33.0),
        "temp_limit": 87.0,
        "power": 610 + 60 * wave if busy else 71.0,
        "power_limit": 700.0,
    }
    return Reading(
        device.id, time, values, methods={"tflops": TFLOPS_METHOD}, texts={"throttle": throttle}
    )


def cpu_reading(time: float = NOW) -> Reading:
    absent = {
        "temp": "the kernel exposes no temperature sensor here",
        "power": "the kernel exposes no RAPL energy counter here",
        "tflops": "no job counts its operations now",
    }
    wave = math.sin(time / 11)
    return Reading(
        "cpu",
        time,
        {"util": 40 + 30 * wave, "mem_used": (11 + wave) * GIB, "mem_total": 31.3 * GIB},
        absent,
    )


def result(
    job: int = 1,
    tflops: float = 0.0852,
    verdict: str = "pass",
    workload: str = "attention",
    at: float = NOW,
) -> Result:
    return Result(
        workload=workload,
        device="CPU: AMD EPYC 9B14 (2 threads)",
        backend="flash",
        reason="auto: the fastest that takes float32 with 64 elements a head here",
        params={
            "batch": 1,
            "heads": 4,
            "seq": 1024,
            "head_dim": 64,
            "causal": False,
            "dtype": "float32",
        },
        verdict=verdict,
        checks=(Check("out", 3.2e-7, 1e-5), Check("lse", 1.1e-7, 1e-5)),
        timing=Timing(12.61, 12.61, 14.02, 15.77, 12.2, 16.1, 312),
        flops=1.07e9,
        tflops=tflops,
        sustained_tflops=tflops * 0.98,
        sustained_from=at - 5,
        sustained_to=at - 1,
        versions={"python": "3.11.7", "torch": "2.13.0+cpu"},
        started=at - 8,
        ended=at,
    )


H100 = "NVIDIA H100 80GB HBM3"
CONTENDERS = {"auto": 1.0, "flash": 0.52, "cudnn": 0.93, "hopper": 1.01, "triton": 0.8, "fa4": 0.97}


def grid(
    workload: str = "compare", contenders: tuple[str, ...] = tuple(CONTENDERS), at: float = NOW
) -> Result:
    """Return an invented grid of an H100; flash refuses the longest sequences of head size 256."""
    cells = tuple(
        cell(dim, causal, seq, direction, contender)
        for direction in ("forward", "backward")
        for dim in (64, 128, 256)
        for causal in (False, True)
        for seq in (512, 1024, 2048, 4096, 8192, 16384)
        for contender in contenders
    )
    best = max(cells, key=lambda c: c.tflops)
    return msgspec.structs.replace(
        result(1, best.tflops, workload=workload, at=at),
        device=H100,
        backend=best.backend,
        reason=f"the fastest of {len(cells)} cells",
        params={
            "seq": "512,1024,2048,4096,8192,16384",
            "head_dim": "64,128,256",
            "causal": "both",
            "dtype": "bfloat16",
        },
        timing=best.timing,
        flops=best.flops,
        cells=cells,
    )


def cell(dim: int, causal: bool, seq: int, direction: str, contender: str) -> Cell:
    made = Cell(
        16384 // seq, 2048 // dim, 2048 // dim, seq, dim, causal, "bfloat16", direction, contender
    )  # type: ignore[arg-type]
    if contender == "flash" and dim == 256 and seq > 8192:
        return msgspec.structs.replace(made, note="cannot do this: it is a made-up refusal")
    wave = 1 + 0.03 * math.sin(dim + seq + len(contender))
    peak = (
        {64: 560, 128: 680, 256: 730}[dim]
        * (0.72 if direction == "backward" else 1)
        * (seq / (seq + (700 if causal else 300)))
    )
    tflops = peak * CONTENDERS[contender] * wave
    flops = (
        4.0 * 16384 * seq * 2048 * (0.5 if causal else 1) * (2.5 if direction == "backward" else 1)
    )
    ms = flops / tflops / 1e9
    return msgspec.structs.replace(
        made,
        backend="hopper" if contender == "auto" else contender,
        timing=Timing(ms, ms, ms * 1.02, ms * 1.04, ms * 0.98, ms * 1.1, 400, ms * 0.985),
        flops=flops,
        moved=8.0 * 16384 * 2048 * (2 if direction == "backward" else 1),
        tflops=tflops,
        checks=(Check("out", 1.1e-3, 2.4e-3),),
        sensors=Sensors(1755.0, 640.0, 61.0, 640 / tflops),
    )


def ceilings(number: int = 20, dtype: str = "bfloat16") -> tuple[Job, ...]:
    """Return the jobs that measured the ceilings of the roofline."""
    gemm = msgspec.structs.replace(
        result(number, 712.0, workload="gemm"), device=H100, params={"size": 8192, "dtype": dtype}
    )
    copy = msgspec.structs.replace(
        result(number + 1, 0.0, workload="copy"),
        device=H100,
        params={"mib": 2048},
        bandwidth=2.9e12,
    )
    return tuple(
        job(number + i, Done(NOW - 60, NOW - 50, (gpu(0).id,), raw(r)), r.workload, r.workload)
        for i, r in enumerate((gemm, copy))
    )


def raw(made: Result) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(made))


def job(
    number: int, state: State, name: str = "attention", workload: str | None = "attention"
) -> Job:
    argv = (
        ("python", "-P", "-m", "gpudeck.accel.workloads.attention", "--seq=1024")
        if workload
        else ("python", "train.py", "--epochs=3")
    )
    spec = Spec(
        argv,
        name,
        "/home/ada/models/small",
        {"PATH": "/usr/bin"},
        1,
        workload,
        {"seq": "1024"} if workload else {},
    )
    return Job(number, spec, NOW - 400 + number, state)


def jobs(device: str) -> tuple[Job, ...]:
    """Return a job in every state, newest first."""
    progress = Progress(42, 100, "timing", 3e12, NOW - 0.4)
    return (
        job(9, queued(StartFailed("GPU 0 is held by job 8"), 0.0)),
        job(8, Running("a8", (device,), NOW - 21, 4711, 99, "boot", progress)),
        job(7, Starting("a7", (device,), NOW - 0.2), "warm-up", None),
        job(6, Done(NOW - 90, NOW - 72, (device,), raw(result(6, 0.0852)))),
        job(
            5,
            Done(
                NOW - 120,
                NOW - 101,
                (device,),
                raw(result(5, 0.0791, "fail: out is off by 3.1e-02, allowed 1.0e-05")),
            ),
        ),
        job(
            4,
            Failed(NOW - 160, NOW - 150, "exited with status 1: CUDA out of memory", 1, (device,)),
            "train",
            None,
        ),
        job(3, Cancelled(NOW - 170, NOW - 200, (device,)), "train", None),
        job(
            2,
            Lost(NOW - 260, NOW - 250, "the machine went down while it ran", (device,)),
            "nightly",
            None,
        ),
        job(1, Done(NOW - 300, NOW - 280, (device,), raw(result(1, 0.0834)))),
    )


def snapshot(
    states: tuple[DeviceState, ...],
    jobs: tuple[Job, ...] = (),
    time: float = NOW,
    settings: Settings | None = None,
    **rest: object,
) -> Snapshot:
    made = {"seq": 1, "source": "nvml", **rest}
    return Snapshot(time=time, devices=states, jobs=jobs, settings=settings or Settings(), **made)  # type: ignore[arg-type]


def cpu_snapshot(time: float = NOW, with_jobs: bool = True, **rest: object) -> Snapshot:
    state = DeviceState(CPU, cpu_reading(time), Busy(Loaded(68.0)), (8,) if with_jobs else ())
    return snapshot((state,), jobs("cpu") if with_jobs else (), time, **{"source": "cpu", **rest})  # type: ignore[arg-type]


def gpu_snapshot(
    count: int = 1, time: float = NOW, replay: bool = False, **rest: object
) -> Snapshot:
    """Return `count` GPUs; job 8 holds the first, the others are busy and idle in turn."""
    states = []
    for index in range(count):
        device = gpu(index, "replay" if replay else "nvidia", REPLAY_NOTE if replay else "")
        busy = index % 3 != 2
        use = Busy(OtherProcesses(1)) if busy else Idle(time - 100)
        states.append(
            DeviceState(device, gpu_reading(device, time, busy), use, (8,) if index == 0 else ())
        )
    rest = {"source": "replay h100.trace.gz" if replay else "nvml", **rest}
    return snapshot(tuple(states), jobs(gpu(0).id), time, **rest)  # type: ignore[arg-type]


def history(
    made: Snapshot, seconds: float = 600, hz: float = 2.0, gap: tuple[float, float] | None = None
) -> dict[str, Columns]:
    """Return ten minutes of the devices before the snapshot.

    Args:
        gap: Seconds before the snapshot between which there are no readings.
    """
    found = {}
    times = [made.time - seconds + i / hz for i in range(int(seconds * hz))]
    if gap:
        times = [t for t in times if not gap[0] <= made.time - t <= gap[1]]
    for state in made.devices:
        read = [
            cpu_reading(t)
            if state.device.kind == "cpu"
            else gpu_reading(state.device, t, int(t // 60) % 4 != 0)
            for t in times
        ]
        found[state.device.id] = Columns(
            times, {field: [r.values.get(field) for r in read] for field in HEADLINE}
        )
    return found
