"""Situations that people described in sentences: machines, jobs, alerts and histories, as facts.

`data/sentences.jsonl` holds true and false sentences about each. All times are in UTC.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpudeck.accel.result import Check, Result, Timing
from gpudeck.assistant.facts import Fact, gather, history_facts, usage
from gpudeck.scheduler.protocol import jobs as j
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs, Loaded
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert, Busy, Columns, DeviceState, Idle, Snapshot
from gpudeck.scheduler.protocol.wait_reasons import (
    AfterJobs,
    End,
    Held,
    HeldBy,
    Needs,
    NoRoom,
    NotBefore,
    RetryLater,
    StartFailed,
    UsedBy,
)

NOW = 1_763_000_000.0
"""13 November 2025, 02:13:20 UTC."""
_H100 = "NVIDIA H100 80GB HBM3"
GIB = 2.0**30


def _gpu(
    index: int,
    use: Idle | Busy,
    *,
    util: float,
    temp: float,
    power: float,
    used: float,
    tflops: float | None = None,
    processes: tuple[Process, ...] = (),
    holders: tuple[int, ...] = (),
    absent: dict[str, str] | None = None,
) -> DeviceState:
    values = {
        "util": util,
        "temp": temp,
        "power": power,
        "power_limit": 700.0,
        "mem_used": used * GIB,
        "mem_total": 80.0 * GIB,
        "mem_free": (80.0 - used) * GIB,
    }
    if tflops is not None:
        values["tflops"] = tflops
    missing = {} if tflops is not None else {"tflops": "the counters are not readable"}
    values = {field: value for field, value in values.items() if field not in (absent or {})}
    reading = Reading(f"g{index}", NOW, values, missing | (absent or {}), processes=processes)
    return DeviceState(Device(f"g{index}", index, _H100, "nvidia"), reading, use, holders)


def _job(number: int, name: str, state: j.State, submitted: float, **more: object) -> j.Job:
    spec = j.Spec(("x",), name, "/", gpus=1, workload=more.pop("workload", None))
    return j.Job(number, spec, NOW - submitted, state, **more)


def _running(
    devices: tuple[int, ...], since: float, progress: j.Progress | None = None
) -> j.Running:
    return j.Running("a", tuple(f"g{i}" for i in devices), NOW - since, 1, 1, "b", progress)


def _result(
    backend: str, median: float, rate: float, *, seq: int = 16384, verdict: str = "pass"
) -> msgspec.Raw:
    error = 4e-4 if verdict == "pass" else 0.03
    timing = Timing(
        median, median * 1.02, median * 1.1, median * 1.2, median * 0.9, median * 1.3, 320
    )
    result = Result(
        "attention",
        _H100,
        backend,
        "chosen by auto",
        {"heads": 16, "seq": seq},
        verdict,
        (Check("out", error, 1e-3),),
        timing,
        1e12,
        rate,
        rate * 0.95,
        NOW - 200,
        NOW - 190,
        {},
        NOW - 200,
        NOW - 190,
    )
    return msgspec.Raw(msgspec.json.encode(result))


def _history(seconds: float, **columns: list[float | None]) -> Columns:
    count = len(next(iter(columns.values())))
    times = [NOW - seconds + seconds * i / (count - 1) for i in range(count)]
    return Columns(times, columns)


def _snapshot(
    *devices: DeviceState, jobs: tuple[j.Job, ...] = (), source: str = "nvml", paused: bool = False
) -> Snapshot:
    return Snapshot(1, NOW, devices, jobs, Settings(), source, (), paused=paused)


def _gathered(
    devices: tuple[DeviceState, ...],
    jobs: tuple[j.Job, ...],
    histories: dict[str, Columns],
    span: float = 600.0,
    paused: bool = False,
    source: str = "nvml",
) -> tuple[Fact, ...]:
    machine = _snapshot(*devices, jobs=jobs, source=source, paused=paused)
    return gather(machine, jobs, histories, NOW - span, NOW)


def _alerts(*alerts: Alert) -> list[Fact]:
    return usage.alert_facts(alerts, {f"g{i}": f"GPU {i}" for i in range(8)}, NOW)


def one_done() -> tuple[Fact, ...]:
    """One idle GPU, one finished measurement, no alerts."""
    done = j.Done(NOW - 250, NOW - 190, ("g0",), _result("flash", 2.31, 640.0))
    job = _job(12, "attention", done, 260, workload="attention")
    gpu = _gpu(0, Idle(NOW - 190), util=0, temp=34, power=71, used=0.6, tflops=0.0)
    history = _history(
        600,
        util=[0, 0, 97, 99, 0, 0, 0],
        temp=[33, 33, 58, 66, 41, 36, 34],
        power=[70, 70, 612, 668, 120, 75, 71],
        mem_used=[0.6 * GIB] * 2 + [21.0 * GIB] * 2 + [0.6 * GIB] * 3,
        tflops=[0, 0, 630, 642, 0, 0, 0],
    )
    return (*_gathered((gpu,), (job,), {"g0": history}), *_alerts())


def one_busy() -> tuple[Fact, ...]:
    """One busy GPU, a running, a queued and a failed job."""
    jobs = (
        _job(9, "eval.py", j.queued(StartFailed("GPU 0 is held by job 8"), 0.0), 140),
        _job(8, "llama-ft", _running((0,), 23, j.Progress(7, 10, "epoch 3")), 40),
        _job(6, "prep", j.Failed(NOW - 320, NOW - 302, "it exited with status 3", 3), 330),
    )
    gpu = _gpu(
        0, Busy(HeldByJobs((8,))), util=93, temp=71, power=641, used=52.4, tflops=588, holders=(8,),
        processes=(Process(4321, "python3", "me", int(52.0 * GIB)),),
    )  # fmt: skip
    history = _history(
        600,
        util=[2, 0, 15, 40, 91, 93],
        temp=[38, 37, 44, 55, 68, 71],
        power=[80, 78, 210, 350, 630, 641],
        mem_used=[1.0 * GIB] * 3 + [12.0 * GIB, 52.4 * GIB, 52.4 * GIB],
        tflops=[0, 0, 20, 110, 570, 588],
    )
    return _gathered((gpu,), jobs, {"g0": history})


def eight() -> tuple[Fact, ...]:
    """Eight GPUs, three running jobs, two queued ones, one that failed, two alerts."""
    jobs = (
        _job(45, "tokenise", j.queued(StartFailed("needs 4 GPUs; 3 free"), 0.0), 900),
        _job(44, "vit_probe", j.queued(StartFailed("job 45 is before it"), 0.0), 610),
        _job(43, "qwen-dpo", _running((0, 1), 3600, j.Progress(40, 100, "step 400")), 3700),
        _job(42, "resnet", _running((2,), 480, j.Progress(9, 10, "epoch 9")), 500),
        _job(41, "gemm", _running((3, 4), 120), 130),
        _job(40, "nightly", j.Failed(NOW - 500, NOW - 410, "CUDA out of memory", 1), 520),
    )
    rows = (
        (97, 74, 655, 70.1, 601, (43,)),
        (95, 81, 662, 69.8, 590, (43,)),
        (61, 63, 402, 31.5, 210, (42,)),
        (99, 69, 690, 12.2, 702, (41,)),
        (98, 70, 688, 12.3, 695, (41,)),
        (0, 35, 72, 0.5, 0, ()),
        (0, 33, 69, 0.5, 0, ()),
        (3, 36, 88, 1.9, 1, ()),
    )
    gpus, histories = [], {}
    for i, (util, temp, power, used, rate, held) in enumerate(rows):
        use = Busy(HeldByJobs(held)) if held else Idle(NOW - 1000 - i * 100)
        gpus.append(
            _gpu(
                i, use, util=util, temp=temp, power=power, used=used, tflops=rate, holders=held,
            )
        )  # fmt: skip
        histories[f"g{i}"] = _history(
            3600,
            util=[util * f for f in (0.5, 0.9, 1.0)],
            temp=[temp - 4, temp - 1, temp + 1],
            power=[power * f for f in (0.8, 0.95, 1.02)],
            mem_used=[used * GIB] * 3,
            tflops=[rate * f for f in (0.5, 0.9, 1.0)],
        )
    alerts = _alerts(
        Alert(
            3, "too hot", "g1", None, "GPU 1 is over 82 °C, peak 83 °C",
            NOW - 700, NOW - 640, NOW - 400,
        ),
        Alert(
            4, "memory nearly full", "g0", None, "GPU 0 has 88 % of its memory in use",
            NOW - 200, NOW - 140, None,
        ),
    )  # fmt: skip
    return (*_gathered(tuple(gpus), jobs, histories, 3600), *alerts)


def empty() -> tuple[Fact, ...]:
    """One idle GPU, no jobs, no history."""
    gpu = _gpu(0, Idle(NOW - 7500), util=0, temp=31, power=68, used=0.4, tflops=0)
    return (*_gathered((gpu,), (), {}), *_alerts())


def cpu_only() -> tuple[Fact, ...]:
    """A CPU without sensors, one running, one queued and one finished job."""
    device = Device("cpu", 0, "AMD EPYC 9654", "cpu", "CPU: no NVIDIA GPU found")
    state = DeviceState(
        device,
        Reading(
            "cpu",
            NOW,
            {"util": 37.2, "mem_used": 3 * GIB, "mem_total": 16 * GIB, "tflops": 0.0871},
            {"temp": "no sensor", "power": "no counter"},
            processes=(Process(4321, "python3", "me", 2**30),),
        ),
        Busy(HeldByJobs((3,))),
        (3,),
    )
    running = j.Running("a", ("cpu",), NOW - 90, 1, 1, "b", j.Progress(1, 4, "fold 1"))
    jobs = (
        _job(4, "score", j.queued(StartFailed("the CPU is held by job 3"), 0.0), 75),
        _job(3, "cross-val", running, 95),
        _job(2, "convert", j.Done(NOW - 400, NOW - 130, ("cpu",)), 401),
    )
    history = _history(
        600, util=[3, 50, None, 88, 37.2], mem_used=[1 * GIB, 2 * GIB] + [3 * GIB] * 3
    )
    return _gathered((state,), jobs, {"cpu": history}, source="cpu")


def paused() -> tuple[Fact, ...]:
    """A paused queue with two waiting jobs, two idle GPUs."""
    jobs = (
        _job(17, "bench", j.queued(StartFailed("the queue is paused"), 0.0), 300),
        _job(16, "make figures", j.queued(StartFailed("the queue is paused"), 0.0), 1500),
    )
    gpus = (
        _gpu(0, Idle(NOW - 1600), util=0, temp=30, power=66, used=0.5, tflops=0),
        _gpu(1, Idle(NOW - 1800), util=1, temp=32, power=70, used=4.5, tflops=0),
    )
    flat = _history(600, util=[0, 2, 1], temp=[30, 31, 31], power=[66, 67, 66])
    return (*_gathered(gpus, jobs, {"g0": flat, "g1": flat}, paused=True), *_alerts())


def failures() -> tuple[Fact, ...]:
    """Jobs that failed, were lost and were cancelled, an alert about one of them, a busy GPU."""
    jobs = (
        _job(64, "sweep_4", j.Failed(NOW - 90, NOW - 60, "it exited with status 137", 137), 95),
        _job(63, "sweep_3", j.Failed(NOW - 300, NOW - 299, "it exited with status 2", 2), 305),
        _job(62, "adrift", j.Lost(NOW - 500, NOW - 310, "its runner was killed"), 505),
        _job(61, "unloved", j.Cancelled(NOW - 420), 430),
        _job(60, "warmup", j.Done(NOW - 560, NOW - 520, ("g0",)), 565),
    )
    gpu = _gpu(
        0, Busy(Loaded(48)), util=48, temp=59, power=377, used=24.0, tflops=None,
        processes=(Process(991, "blender", "ann", int(23.1 * GIB)),),
    )  # fmt: skip
    history = _history(
        600, util=[80, 75, 60, 48], temp=[66, 64, 61, 59], power=[500, 470, 410, 377]
    )
    alerts = _alerts(
        Alert(
            8, "job failed", "", 64, "Job 64 failed: it exited with status 137", NOW - 60, NOW - 60
        )
    )
    return (*_gathered((gpu,), jobs, {"g0": history}), *alerts)


def job_report() -> tuple[Fact, ...]:
    """A report on one job: what it used, when it waited and ran, and its timeline."""
    job = _job(
        30, "vision-base", j.Done(NOW - 5400, NOW - 600, ("g2",)), 6000,
        usage=j.Usage(4790.0, 61.0 * GIB, 2.6e6, 88.0),
    )  # fmt: skip
    gpu = _gpu(2, Idle(NOW - 600), util=0, temp=38, power=74, used=0.5, tflops=0)
    history = _history(
        4800,
        util=[85, 92, 90, 85],
        temp=[60, 72, 73, 71],
        power=[480, 560, 570, 550],
        mem_used=[40 * GIB, 61 * GIB, 61 * GIB, 61 * GIB],
        tflops=[400, 470, 480, 450],
    )
    events = (
        j.Event(NOW - 6000, "submitted"),
        j.Event(NOW - 5400, "started", "on GPU 2"),
        j.Event(NOW - 600, "done"),
    )
    machine = _snapshot(gpu, jobs=(job,))
    facts = gather(machine, (job,), {"g2": history}, NOW - 5400, NOW)
    return (
        *facts,
        *usage.when_facts(job, NOW),
        *usage.used_facts(job, NOW),
        *usage.share_facts(job, {"g2": 80 * GIB}, NOW),
        *usage.timeline_facts(30, events, NOW),
        *usage.energy_facts(gpu.device, history, NOW),
        *_alerts(),
    )


def two_results() -> tuple[Fact, ...]:
    """Three measurements, of which one failed its check."""
    jobs = (
        _job(
            23,
            "attn-math",
            j.Done(
                NOW - 80, NOW - 40, ("g0",),
                _result("math", 41.7, 35.4, seq=2048, verdict="fail"),
            ),
            90,
            workload="attention",
        ),
        _job(
            22, "attn-cudnn", j.Done(NOW - 150, NOW - 100, ("g0",), _result("cudnn", 2.52, 587.0)),
            160, workload="attention",
        ),
        _job(
            21, "attn-flash", j.Done(NOW - 230, NOW - 170, ("g0",), _result("flash", 2.29, 646.0)),
            240, workload="attention",
        ),
    )  # fmt: skip
    gpu = _gpu(0, Idle(NOW - 40), util=0, temp=47, power=96, used=0.6, tflops=0)
    history = _history(600, util=[0, 98, 97, 12, 0], temp=[35, 62, 64, 55, 47])
    return _gathered((gpu,), jobs, {"g0": history})


def two_gpus() -> tuple[Fact, ...]:
    """Two GPUs with lowest values and energy, one held by a job, one used by a stranger."""
    jobs = (_job(5, "whisper", _running((1,), 840, j.Progress(21, 60, "shard 21")), 850),)
    gpus = (
        _gpu(
            0, Busy(Loaded(22)), util=22, temp=52, power=240, used=9.0, tflops=41,
            processes=(Process(700, "Xorg", "root", int(0.3 * GIB)),),
        ),
        _gpu(
            1, Busy(HeldByJobs((5,))), util=77, temp=67, power=533, used=44.0, tflops=402,
            holders=(5,),
        ),
    )  # fmt: skip
    histories = {
        "g0": _history(
            1800, util=[10, 55, 31, 22], temp=[48, 58, 55, 52], power=[180, 360, 300, 240],
            mem_used=[9 * GIB] * 4, tflops=[12, 130, 66, 41],
        ),
        "g1": _history(
            1800, util=[0, 60, 79, 77], temp=[36, 60, 68, 67], power=[75, 470, 540, 533],
            mem_used=[0.5 * GIB, 44 * GIB, 44 * GIB, 44 * GIB], tflops=[0, 350, 410, 402],
        ),
    }  # fmt: skip
    facts = [*_gathered(gpus, jobs, histories, 1800)]
    for gpu in gpus:
        history = histories[gpu.device.id]
        lowest = history_facts(gpu.device, history, NOW, lowest=True)
        facts += [fact for fact in lowest if fact.name.endswith(".min")]
        facts += usage.energy_facts(gpu.device, history, NOW)
    return tuple(facts)


def gaps() -> tuple[Fact, ...]:
    """Two GPUs of which one reports little, a starting and a done job."""
    gpus = (
        _gpu(
            0, Idle(NOW - 45), util=0, temp=44, power=0, used=2.0, tflops=None,
            absent={"power": "not supported by this driver"},
        ),
        DeviceState(
            Device("g1", 1, "NVIDIA GeForce RTX 4090", "nvidia"), None, Busy(Loaded(12))
        ),
    )  # fmt: skip
    jobs = (
        _job(102, "probe", j.Starting("a", ("g0",), NOW - 2), 8),
        _job(
            101, "import", j.Done(NOW - 9000, NOW - 300, ("g0",), msgspec.Raw(b'{"not": 1}')), 9100
        ),
    )
    history = _history(600, util=[100, 100, 0], temp=[70, 69, 44])
    return _gathered(gpus, jobs, {"g0": history})


def hot() -> tuple[Fact, ...]:
    """One hot GPU with two alerts, of which one has cleared, and a job that runs."""
    jobs = (
        _job(78, "diffusion", _running((0,), 7200, j.Progress(3, 4, "epoch 30")), 7300),
        _job(77, "render", j.Done(NOW - 9000, NOW - 7230, ("g0",)), 9010),
        _job(76, "render", j.Done(NOW - 12000, NOW - 9020, ("g0",)), 12010),
    )
    gpu = _gpu(
        0, Busy(HeldByJobs((78,))), util=100, temp=88, power=699, used=77.2, tflops=512,
        holders=(78,), processes=(Process(555, "python", "bob", int(76.8 * GIB)),),
    )  # fmt: skip
    history = _history(
        7200, util=[99, 100, 100], temp=[80, 86, 89], power=[690, 698, 700],
        mem_used=[77.2 * GIB] * 3, tflops=[560, 530, 512],
    )  # fmt: skip
    alerts = _alerts(
        Alert(
            11, "too hot", "g0", None, "GPU 0 is over 84 °C, peak 88 °C",
            NOW - 400, NOW - 340, None,
        ),
        Alert(
            10, "throttled", "g0", None,
            "GPU 0 has been throttled for 1 min: too hot (software)",
            NOW - 3000, NOW - 2940, NOW - 2400,
        ),
    )  # fmt: skip
    return (*_gathered((gpu,), jobs, {"g0": history}, 14400), *alerts)


def four() -> tuple[Fact, ...]:
    """Four GPUs, a job on two of them, a stranger on one, three waiting jobs, one that failed."""
    notebook = Process(2210, "jupyter", "eve", int(14.0 * GIB))
    end = End(NOW + 6000)
    room = NoRoom(
        Needs(2),
        (
            HeldBy("GPU 0", 210, "pretrain", end),
            HeldBy("GPU 1", 210, "pretrain", end),
            UsedBy("GPU 2", notebook, 0),
        ),
        free=1,
    )
    jobs = (
        _job(214, "finetune", j.queued(room, 0.0), 1320),
        _job(213, "evaluate", j.queued(AfterJobs((210,), "pretrain", end), 0.0), 5400),
        _job(212, "export", j.queued(Held(212), 0.0), 2700),
        _job(211, "tokenize", j.Done(NOW - 2300, NOW - 1400, ("g3",)), 2310),
        _job(210, "pretrain", _running((0, 1), 6000, j.Progress(50, 100, "step 5000")), 6010),
        _job(209, "lint", j.Failed(NOW - 6500, NOW - 6460, "it exited with status 1", 1), 6510),
    )
    rows = ((92, 66, 612, 61.5, 540, (210,)), (91, 72, 604, 61.0, 531, (210,)))
    gpus = [
        _gpu(
            i, Busy(HeldByJobs(held)), util=util, temp=temp, power=power, used=used, tflops=rate,
            holders=held,
        )
        for i, (util, temp, power, used, rate, held) in enumerate(rows)
    ]  # fmt: skip
    gpus += [
        _gpu(
            2, Busy(Loaded(17)), util=17, temp=45, power=130, used=14.6, tflops=12,
            processes=(notebook,),
        ),
        _gpu(3, Idle(NOW - 720), util=0, temp=37, power=75, used=0.5, tflops=0),
    ]  # fmt: skip
    histories = {
        f"g{i}": _history(
            7200,
            util=[util * f for f in (0.5, 1.0, 1.0)],
            temp=[temp - 6, temp + 2, temp],
            power=[power * f for f in (0.7, 1.0, 1.0)],
        )
        for i, (util, temp, power) in enumerate(
            ((92, 66, 612), (91, 72, 604), (17, 45, 130), (40, 50, 190))
        )
    }
    alerts = _alerts(
        Alert(
            21, "too hot", "g1", None, "GPU 1 is over 82 °C, peak 84 °C",
            NOW - 4000, NOW - 3940, NOW - 3400,
        ),
    )  # fmt: skip
    return (*_gathered(tuple(gpus), jobs, histories, 7200), *alerts)


def night() -> tuple[Fact, ...]:
    """One idle GPU after a night with jobs that ended, one of them early, and two that wait."""
    jobs = (
        _job(305, "upload", j.queued(RetryLater(1, NOW + 240), 0.0), 1800),
        _job(304, "retrain", j.queued(NotBefore(NOW + 2800), 0.0), 3600),
        _job(303, "distill", j.Failed(NOW - 4000, NOW - 3200, "CUDA out of memory", 1), 4100),
        _job(302, "embed", j.Done(NOW - 14000, NOW - 5000, ("g0",)), 26000),
        _job(301, "crawl-filter", j.Done(NOW - 25000, NOW - 14200, ("g0",)), 27000),
    )
    gpu = _gpu(0, Idle(NOW - 3180), util=0, temp=36, power=73, used=0.5, tflops=0)
    history = _history(
        28800,
        util=[5, 96, 94, 88, 90, 0],
        temp=[40, 74, 76, 71, 72, 36],
        power=[90, 640, 655, 560, 570, 73],
        mem_used=[0.5 * GIB, 40 * GIB, 40 * GIB, 58 * GIB, 79 * GIB, 0.5 * GIB],
        tflops=[0, 500, 495, 410, 420, 0],
    )
    return (
        *_gathered((gpu,), jobs, {"g0": history}, 28800),
        *usage.energy_facts(gpu.device, history, NOW),
        *_alerts(),
    )


SITUATIONS: dict[str, Callable[[], tuple[Fact, ...]]] = {
    make.__name__: make
    for make in (
        one_done, one_busy, eight, empty, cpu_only, paused, failures, job_report, two_results,
        two_gpus, gaps, hot, four, night,
    )
}  # fmt: skip
