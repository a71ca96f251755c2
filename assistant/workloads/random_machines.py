"""Draw random machines, and gather their facts with the code that gathers those of real ones.

They have devices, readings with gaps, and jobs in every state. The RAIN workload writes about
them.
"""

from __future__ import annotations

import math
from functools import cache
from random import Random

import msgspec

from gpudeck.accel.result import Check, Result, Timing
from gpudeck.assistant.facts import FIELDS_SPAN, Fact, gather, phrases
from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import jobs as j
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.busy_causes import Loaded
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, Columns, DeviceState, Idle, Snapshot
from gpudeck.scheduler.protocol.wait_reasons import StartFailed

NOW = 1_763_000_000.0
SPAN = 600.0
NAMES = (
    "attention",
    "train_big",
    "eval.py",
    "llama-ft",
    "sweep_3",
    "prep data",
    "gemm",
    "resnet50",
    "nightly",
    "bench",
)
_REASONS = (
    "exit code {}",
    "killed by signal {}",
    "exit code 1: CUDA out of memory",
    "ran longer than its limit of {} s",
)
_WAITS = (
    "GPU 0 is held by job {}",
    "the queue is paused",
    "job {} is ahead of it",
    "needs 2 GPUs; 1 free",
)
_ABSENT = ("no sensor", "not supported by this driver", "the probe is being replaced")
_KEPT = (".called", ".name", ".state", ".label", ".reason", ".verdict", ".backend")
_DISPUTED = (".temp", ".power", ".util", ".mem_used", ".tflops")
TRACE = paths.assets() / "h100.trace.gz"
"""A recording of an H100: idle, a matrix product, attention, a copy."""
_RANGES = {"util": 100.0, "temp": 95.0, "power": 700.0, "tflops": 800.0, "mem_used": 8e10}


def random_facts(
    random: Random, names: tuple[str, ...] = NAMES, recorded: bool | None = None, gaps: float = 0.15
) -> tuple[Fact, ...]:
    """Return the facts of one machine.

    Facts are missing in the share `gaps` of machines, and in a quarter another source contradicts
    some.
    """
    snapshot, jobs, histories = random_machine(random, names, recorded)
    return _worn(random, gather(snapshot, jobs, histories, NOW - SPAN, NOW), gaps)


def random_machine(
    random: Random, names: tuple[str, ...] = NAMES, recorded: bool | None = None
) -> tuple[Snapshot, tuple[j.Job, ...], dict[str, Columns]]:
    """Return the snapshot, the jobs, and the histories by device of a random machine.

    It has up to eight devices and twelve jobs; some values are missing or not finite.

    Args:
        random: The source of randomness.
        names: Names of jobs.
        recorded: Use the recorded machine at a random moment; None for some of the time.
    """
    recorded = random.random() < 0.3 if recorded is None else recorded
    devices, histories = _recorded(random) if recorded else _random(random)
    numbers = random.sample(
        range(1, 9999), random.choice((0, 1, 1, 1, 2, 2, 3, 4, random.randint(5, 12)))
    )
    jobs = tuple(
        _job(random, number, random.choice(names), devices)
        for number in sorted(numbers, reverse=True)
    )
    source = f"replay {TRACE.name}" if recorded else random.choice(("nvml", "cpu"))
    notices = ("the disk is nearly full",) if random.random() < 0.05 else ()
    return (
        Snapshot(1, NOW, devices, jobs, Settings(), source, notices, paused=random.random() < 0.15),
        jobs,
        histories,
    )


def _random(random: Random) -> tuple[tuple[DeviceState, ...], dict[str, Columns]]:
    devices = tuple(
        _device(random, i) for i in range(random.choice((0, 1, 1, 1, 2, 3, random.randint(4, 8))))
    )
    return devices, {
        state.device.id: _history(random) for state in devices if random.random() < 0.8
    }


def _recorded(random: Random) -> tuple[tuple[DeviceState, ...], dict[str, Columns]]:
    """Return the recorded H100, shown as the app shows it."""
    moments = _trace()
    at = random.randrange(len(moments))
    past = moments[max(0, at - random.choice((0, 10, 60, 370))) : at + 1]
    source = ReplaySource(
        TRACE, random.choice((1, 1, 2)), NOW - (moments[at].time - moments[0].time)
    )
    readings = {reading.device: reading for reading in source.read(NOW)}
    devices = tuple(
        DeviceState(device, readings.get(device.id), _use(random)) for device in source.devices()
    )
    columns = {
        field: [
            moment.readings[0].values.get(field) if moment.readings else None for moment in past
        ]
        for field in FIELDS_SPAN
    }
    times = [NOW - (past[-1].time - moment.time) for moment in past]
    return devices, {device.device.id: Columns(times, columns) for device in devices}


@cache
def _trace() -> tuple[trace.Moment, ...]:
    return tuple(trace.read(TRACE)[1])


def _worn(random: Random, facts: tuple[Fact, ...], gaps: float) -> tuple[Fact, ...]:
    """Remove some facts, or contradict some by another source, from time to time."""
    if random.random() < gaps:
        there = random.uniform(0.6, 0.95)
        facts = tuple(
            fact for fact in facts if random.random() < there or fact.name.endswith(_KEPT)
        )
    if random.random() < 0.25:
        known = [fact for fact in facts if fact.value is not None and fact.name.endswith(_DISPUTED)]
        for fact in random.sample(known, min(len(known), random.choice((1, 1, 2)))):
            said = phrases.quantity(random.uniform(1, 90), fact.unit)
            text = f"{fact.text.rpartition(': ')[0]}: {said}"
            facts += (
                msgspec.structs.replace(
                    fact, said=said, text=text, source="another sensor", time=fact.time - 1
                ),
            )
    return facts


def _use(random: Random) -> Idle | Busy:
    return (
        Idle(NOW - random.uniform(1, 5000))
        if random.random() < 0.5
        else Busy(Loaded(random.randint(6, 100)))
    )


def _device(random: Random, index: int) -> DeviceState:
    device = Device(
        f"g{index}",
        index,
        random.choice(("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090")),
        "nvidia",
    )
    use = _use(random)
    if random.random() < 0.05:
        return DeviceState(device, None, use)
    values: dict[str, float] = {"mem_total": 8.5e10, "power_limit": 700.0}
    absent: dict[str, str] = {}
    for field, most in _RANGES.items():
        if random.random() < 0.15:
            absent[field] = random.choice(_ABSENT)
        else:
            values[field] = math.nan if random.random() < 0.03 else random.uniform(0, most)
    if random.random() > 0.05 and math.isfinite(values.get("mem_used", math.nan)):
        values["mem_free"] = values["mem_total"] - values["mem_used"]
    return DeviceState(device, Reading(device.id, NOW, values, absent), use)


def _history(random: Random) -> Columns:
    times = [NOW - SPAN + 10 * i for i in range(random.choice((0, 1, 8)))]
    columns = {
        field: [None if random.random() < 0.2 else random.uniform(0, _RANGES[field]) for _ in times]
        for field in FIELDS_SPAN
    }
    return Columns(times, columns)


def _job(random: Random, number: int, name: str, devices: tuple[DeviceState, ...]) -> j.Job:
    began = NOW - random.uniform(100, 500)
    ended = began + random.uniform(1, 90)
    at = tuple(state.device.id for state in devices[:1])
    reason = random.choice(_REASONS).format(random.randint(1, 255))
    progress = j.Progress(
        random.uniform(0, 10),
        random.choice((10.0, 10.0, 0.0)),
        random.choice(("", "timing", "epoch 3")),
    )
    state: j.State = random.choice(
        (
            j.queued(StartFailed(random.choice(_WAITS).format(random.randint(1, 999))), 0.0),
            j.Running("a", at, began, 1, 1, "b", progress),
            j.Done(began, ended, at),
            j.Done(began, ended, at, _result(random, began, ended)),
            j.Done(began, ended, at, msgspec.Raw(b'{"not": "a result"}')),
            j.Failed(began, ended, reason, random.randint(1, 255)),
            j.Cancelled(ended, began),
            j.Lost(began, ended, "its runner was killed"),
        )
    )
    workload = (
        random.choice(("attention", "gemm"))
        if isinstance(state, j.Done) and state.result != j.NO_RESULT
        else None
    )
    return j.Job(number, j.Spec(("x",), name, "/", gpus=1, workload=workload), began - 30, state)


def _result(random: Random, began: float, ended: float) -> msgspec.Raw:
    median = random.uniform(0.01, 50)
    count = 0 if random.random() < 0.1 else random.randint(3, 9999)
    verdict = "fail" if not count or random.random() < 0.2 else "pass"
    timing = Timing(
        median, median * 1.01, median * 1.1, median * 1.2, median * 0.9, median * 1.3, count
    )
    speed = random.uniform(0.01, 900)
    result = Result(
        "attention",
        "NVIDIA H100 80GB HBM3",
        random.choice(("flash", "cudnn", "efficient", "math")),
        "chosen by auto",
        {"heads": 16, "seq": random.choice((512, 2048, 16384))},
        verdict,
        (Check("out", random.uniform(0, 1e-3), 1e-3),),
        timing,
        1e12,
        speed,
        speed * 0.95,
        began,
        ended,
        {},
        began,
        ended,
    )
    return msgspec.Raw(msgspec.json.encode(result))
