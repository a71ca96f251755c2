"""Invent the world of the pictures from the recorded H100 and from measured results.

What a picture says in one place is true in all others: the jobs ran when the recording shows load,
their rates are the recorded ones, the alerts were raised where the temperature crossed the
threshold, and the processes hold the memory that is in use. The grid of backends is the measured
one of tests/benchmarks/results.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from gpudeck.accel.lessons.records import explain_rates
from gpudeck.accel.result import PASS, Cell, Check, Result, Sensors, Timing, verdict_of
from gpudeck.app.assistant.message_tree import Curve
from gpudeck.app.assistant.requests import FinishedAnswer
from gpudeck.app.assistant.session_files import Summary
from gpudeck.language.text import Listed, Text, phrase
from gpudeck.scheduler.protocol.devices import Detail, Process, Reading
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Event,
    Failed,
    Job,
    Lost,
    Progress,
    Queued,
    Running,
    Spec,
    State,
    Usage,
    queued,
)
from gpudeck.scheduler.protocol.past_processes import PastProcess, Use
from gpudeck.scheduler.protocol.schedule import Landing
from gpudeck.scheduler.protocol.snapshot import Alert, Columns
from gpudeck.scheduler.protocol.wait_reasons import Behind, ReplayShown
from gpudeck.scheduler.protocol.wait_texts import render
from tests.gui.snapshots import GIB, H100, NOW, raw

MEASURED = Path(__file__).parents[1] / "benchmarks/results/attention_grid_2026-11-22_h100.csv"
WARN_BELOW = 29.0
"""°C below the slow-down temperature at which alerts are raised: the recording becomes 64 °C warm,
and slows down at 89 °C."""
_RAISE_S = 10.0
_HELD = 2
"""The most devices with jobs; the others are used by nobody that the queue knows."""
_FIRST_JOB, _SHORTEST = 181, 6.0
_USERS = ("ada", "ben", "mara")
_VERSIONS = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "cuda": "13.0"}
_FLOP = 4.0 * 2 * 16 * 8192 * 8192 * 128
"""Floating-point operations of the attention that the jobs run: 2 sequences of 8192 tokens."""


@dataclass(frozen=True)
class Load:
    """A stretch of time in which a device did one thing."""

    device: str
    start: float
    end: float
    kind: str
    """gemm, attention or copy."""
    tflops: float
    """The median of the readings."""
    watts: float
    """The mean of the readings."""
    celsius: float
    """The mean of the readings."""
    cut: bool
    """The readings end while it lasts."""


def loads(readings: Sequence[Reading]) -> list[Load]:
    """Return what one device did, given its readings in order."""
    found: list[Load] = []
    run: list[Reading] = []
    for reading in [*readings, None]:
        gap = reading is not None and bool(run) and reading.time - run[-1].time > 20
        if run and (reading is None or gap or _kind(reading) != _kind(run[0])):
            last = run[-1].time
            if _kind(run[0]) and last - run[0].time >= _SHORTEST and last < NOW - 2:
                rates = [r.values.get("tflops", 0.0) for r in run]
                found.append(
                    Load(
                        run[0].device, run[0].time, last, _kind(run[0]),
                        sorted(rates)[len(rates) // 2],
                        sum(r.values["power"] for r in run) / len(run),
                        sum(r.values["temp"] for r in run) / len(run), gap,
                    )
                )  # fmt: skip
            run = []
        if reading is not None:
            run.append(reading)
    return found


def wave(before: int) -> float:
    """Return the share of its present load that a process had some readings before."""
    return 1 - 0.2 * math.sin(before / 4) ** 2 * math.cos(before / 9) ** 2


def _kind(reading: Reading) -> str:
    if reading.values.get("util", 0.0) < 50:
        return ""
    rate = reading.values.get("tflops", 0.0)
    return "gemm" if rate > 645 else "attention" if rate > 300 else "copy"


def jobs(history: dict[str, list[Reading]]) -> list[Job]:
    """Return the jobs that caused the load of the first devices, oldest first."""
    first = [*history][:_HELD]
    busy = sorted((one for d in first for one in loads(history[d])), key=lambda one: one.start)
    made = [compared(_FIRST_JOB - 9, first[0]), *earlier(first[0])]
    for at, one in enumerate(busy):
        made.append(_job(_FIRST_JOB + at, at, one))
    return made


def compared(number: int, device: str) -> Job:
    """Return the job that measured all backends, before the history begins."""
    spec = _spec("compare", "compare", {"seq": "512 to 16384", "dtype": "bfloat16"})
    began, ended = NOW - 90_660, NOW - 90_000  # before the last 24 hours
    result = msgspec.structs.replace(grid(), started=began, ended=ended)
    return Job(number, spec, began - 4, Done(began, ended, (device,), raw(result)))


def earlier(device: str) -> list[Job]:
    """Return attention jobs of the morning with measured rates."""
    wanted = ("hopper", "cudnn", "triton", "fa4", "flash", "hopper", "fa4", "triton")
    cells = [c for c in grid().cells if c.head_dim == 128 and c.direction == "forward"]
    found = []
    for at, backend in enumerate(wanted):
        mine = [c for c in cells if c.contender == backend and c.seq > 512]
        cell = mine[at % len(mine)]
        began = NOW - 9000 + 700 * at
        params: dict[str, str | int | float | bool] = {
            "batch": cell.batch, "heads": cell.heads, "seq": cell.seq, "head_dim": cell.head_dim,
            "causal": cell.causal, "dtype": cell.dtype,
        }  # fmt: skip
        result = Result(
            "attention", H100, cell.backend, phrase("named by the user"), params, PASS, cell.checks,
            cell.timing, cell.flops, cell.tflops, cell.tflops * 0.99, began + 3, began + 14,
            _VERSIONS, began, began + 14,
        )  # fmt: skip
        spec = _spec("attention", "attention", {"seq": str(cell.seq), "backend": backend}, at)
        state = Done(began, began + 14, (device,), raw(result))
        found.append(Job(_FIRST_JOB - len(wanted) + at, spec, began - 1, state))
    return found


def _job(number: int, at: int, one: Load) -> Job:
    """Return the job of a load; a few of them went wrong."""
    spec = _spec_of(at, one)
    devices = (one.device,)
    state: State = Done(one.start, one.end, devices)
    if spec.workload:
        wrong = one.kind == "attention" and at % 5 == 4
        state = Done(one.start, one.end, devices, raw(_result(one, wrong)))
    elif at % 4 == 2:
        quote = "FileNotFoundError: shard-0007.bin"
        reason = phrase("{reason}: {quote}", reason=phrase("exit code {n}", n=1), quote=quote)
        state = Failed(one.start, one.end, reason, 1, devices, quote=quote)
    elif at % 4 == 3:
        state = Cancelled(one.end, one.start, devices)
    seconds = one.end - one.start
    usage = Usage(seconds, 4.7 * GIB, one.watts * seconds, 97.0 - 40 * (at % 3 == 2))
    if one.cut:
        state = Lost(one.start, one.end, "the machine was restarted while it ran", devices)
    return Job(number, spec, one.start - 2 - at % 3, state, usage=usage)


def _spec_of(at: int, one: Load) -> Spec:
    if one.kind == "attention":
        return _spec("attention", "attention", {"seq": "8192", "dtype": "bfloat16"}, at)
    if one.kind == "gemm" and at % 2:
        return _spec("gemm", "gemm", {"size": "8192", "dtype": "bfloat16"}, at)
    if one.kind == "gemm":
        return _spec("finetune-llama", None, {}, at, "python finetune.py --config llama-8b.yaml")
    return _spec("shuffle-shards", None, {}, at, "python shuffle.py --out /data/shards")


def _spec(
    name: str, workload: str | None, params: dict[str, str], at: int = 0, command: str = ""
) -> Spec:
    user = _USERS[at % len(_USERS)]
    argv = command.split() or [
        "python", "-P", "-m", f"gpudeck.accel.workloads.{workload}",
        *(f"--{key}={value}" for key, value in params.items()),
    ]  # fmt: skip
    folder = f"/home/{user}/llama" if command else f"/home/{user}"
    return Spec(tuple(argv), name, folder, {"USER": user}, 1, workload, params)


def _result(one: Load, wrong: bool) -> Result:
    """Return the Result of a workload at the recorded rate."""
    attention = one.kind == "attention"
    flops = _FLOP if attention else 2.0 * 8192**3
    ms = flops / one.tflops / 1e9
    calls = round((one.end - one.start - 3) * 1e3 / ms)
    params: dict[str, str | int | float | bool] = {"size": 8192, "dtype": "bfloat16"}
    if attention:
        params = {"batch": 2, "heads": 16, "seq": 8192, "head_dim": 128, "causal": False}
        params["dtype"] = "bfloat16"
    error = 3.1e-2 if wrong else 1.1e-3
    timing = Timing(ms, ms, ms * 1.03, ms * 1.05, ms * 0.98, ms * 1.08, calls)
    reason = explain_rates((H100,), {"hopper": 606.0, "cudnn": 594.0}, ("hopper", "cudnn"), True)
    cell = Cell(
        2, 16, 16, 8192, 128, False, "bfloat16", "forward", "auto", "hopper", "measured fastest",
        timing, flops, 4.0 * 2 * 16 * 8192 * 128 * 2, one.tflops, (Check("out", error, 2.4e-3),),
    )  # fmt: skip
    return Result(
        workload=one.kind,
        device=H100,
        backend="hopper" if attention else "cublas",
        reason=phrase("auto: {sub}", sub=reason) if attention else phrase("named by the user"),
        params=params,
        verdict=verdict_of([Text("out is off by 3.1e-02, allowed 2.4e-03")] if wrong else []),
        checks=(Check("out", error, 2.4e-3),),
        timing=timing,
        cells=(cell,) if attention else (),
        flops=flops,
        tflops=one.tflops,
        sustained_tflops=one.tflops * 0.99,
        sustained_from=one.start + 3,
        sustained_to=one.end,
        versions=_VERSIONS,
        started=one.start,
        ended=one.end,
        sensors=Sensors(1602.0, one.watts, one.celsius, one.watts / one.tflops),
    )


def active(number: int) -> tuple[Job, ...]:
    """Return jobs that run or wait while a recording is shown, which runs no GPU jobs."""
    text = "python tokenize.py --input /data/web --output /data/tokens"
    cpu = msgspec.structs.replace(_spec("tokenize", None, {}, 0, text), gpus=0)
    progress = Progress(62, 100, "shard 62 of 100", 0.0, NOW - 1)
    run = Job(number, cpu, NOW - 312, Running("a", (), NOW - 310, 4712, 99, "boot", progress))
    waits = Queued(render(ReplayShown(), NOW), wait=ReplayShown())
    sweep = [
        Job(
            number + 1 + at,
            msgspec.structs.replace(
                _spec("sweep-lr", None, {}, 1, "python sweep.py"), index=at, group="sweep"
            ),
            NOW - 200,
            waits,
        )
        for at in range(4)
    ]
    evaluate = _spec("evaluate", None, {}, 2, "python evaluate.py --suite mmlu")
    after = msgspec.structs.replace(evaluate, after=(number + 4,))
    return (run, *sweep, Job(number + 5, after, NOW - 90, waits))


def busy_queue(devices: Sequence[str], number: int) -> tuple[tuple[Job, ...], list[Landing]]:
    """Return jobs that ran, run and wait on eight devices, newest first, and where they start."""
    minute, first = 60.0, number

    def spec(name: str, gpus: int) -> Spec:
        return msgspec.structs.replace(_spec(name, None, {}, 0, f"python {name}.py"), gpus=gpus)

    def runs(name: str, since: float, done: float, *held: int) -> Job:
        nonlocal number
        number += 1
        progress = Progress(done, 100, f"step {done * 120:.0f}", 0.0, NOW) if done else None
        at = tuple(devices[i] for i in held)
        state = Running("a", at, NOW - since * minute, 4712, 99, "boot", progress)
        return Job(number, spec(name, len(held)), NOW - since * minute - 20, state)

    def waits(name: str, gpus: int) -> Job:
        nonlocal number
        number += 1
        return Job(number, spec(name, gpus), NOW - 300, queued(Behind(first + 4), NOW))

    def over(name: str, start: float, end: float, held: int, error: str = "") -> Job:
        nonlocal number
        number += 1
        span, on = (NOW - start * minute, NOW - end * minute), (devices[held],)
        state = Failed(*span, error, 1, on) if error else Done(*span, on)
        return Job(number, spec(name, 1), span[0] - 20, state)

    ended = [
        over("evaluate", 33, 23, 4), over("debug", 19, 16, 7, "exit code 1"),
        over("tokenize", 15, 3, 7),
    ]  # fmt: skip
    running = [
        runs("pretrain-1b", 50, 62, 0, 1, 2, 3), runs("finetune-llama", 22, 35, 4),
        runs("evaluate", 9, 90, 5), runs("notebook", 31, 0, 6),
    ]  # fmt: skip
    waiting = [waits("distill", 2), waits("sweep-lr", 1), waits("sweep-lr", 1), waits("ablate", 4)]
    places = ((0, 31, 61, (0, 1)), (1, 1, 26, (5,)), (2, 26, 51, (5,)), (3, 61, None, (0, 1, 2, 3)))
    landings = [
        Landing(
            waiting[at].id,
            tuple(devices[i] for i in held),
            NOW + start * minute,
            None if end is None else NOW + end * minute,
        )
        for at, start, end, held in places
    ]
    return tuple(reversed([*ended, *running, *waiting])), landings


def events(job: Job) -> list[Event]:
    """Return the timeline of a job."""
    state = job.state
    found = [Event(job.submitted, "submitted", "")]
    started = getattr(state, "started", None)
    if started is not None:
        text = phrase("attempt {n} on {devices}", n=1, devices=Listed(("GPU 0",)))
        found.append(Event(started, "started", text))
        found.append(Event(state.at, job.status, ""))  # type: ignore[union-attr]
    return found


def log(job: Job) -> str:
    """Return what a job printed."""
    if job.spec.workload is None:
        name = job.spec.name
        if name.startswith("finetune"):
            lines = [f"step={at * 20} loss={2.9 - 0.4 * math.log1p(at):.3f} lr={2e-5 * at / 12:.2e}"
                     for at in range(12)]  # fmt: skip
        else:
            lines = [f"shard {at} of 12: 1,204 sequences" for at in range(1, 8)]
        if isinstance(job.state, Failed):
            folder = job.spec.cwd
            lines += [
                "Traceback (most recent call last):",
                f'  File "{folder}/{name.partition("-")[0]}.py", line 61, in <module>',
                "    shard = open(path, 'rb')",
                job.state.quote,
            ]
        return "\n".join([f"[{name}] 12 shards", *lines, ""])
    state = job.state
    rate = msgspec.json.decode(state.result)["tflops"] if isinstance(state, Done) else 0.0
    steps = [f"timing  {at:3d} %   {rate * (1 + 0.004 * math.sin(at)):6.1f} TFLOP/s"
             for at in range(10, 101, 10)]  # fmt: skip
    head = [
        f"device   {H100}",
        f"params   {', '.join(f'{k} {v}' for k, v in job.spec.params.items())}",
        "check    out: within 2.4e-03",
        "warm-up  3.0 s",
    ]
    return "\n".join([*head, *steps, "result written", ""])


def alerts(history: dict[str, list[Reading]]) -> list[Alert]:
    """Return an alert for each time that a device was warm for long, oldest first."""
    found = []
    for at, (device, readings) in enumerate(islice(history.items(), 8)):
        for start, end, peak in _warm(readings):
            open_still = end > NOW - 5
            warm = end == readings[-1].time
            shown = {"device": f"GPU {at}", "degrees": 89 - WARN_BELOW, "peak": round(peak)}
            text = phrase("{device} was over {degrees} °C, peak {peak} °C", **shown)
            if warm:
                text = phrase("{device} is over {degrees} °C, peak {peak} °C", **shown)
            elif open_still:
                text = phrase("{sub}; clears soon", sub=text)
            found.append((start, end, device, text, open_still, open_still and not warm))
    found.sort(key=lambda row: row[:3])
    return [
        Alert(
            number, "too hot", device, None, text, start, start + _RAISE_S,
            None if still else end, acknowledged=number % 3 == 0 and not still, clearing=calm,
        )
        for number, (start, end, device, text, still, calm) in enumerate(found, 1)
    ]  # fmt: skip


def _warm(readings: Sequence[Reading]) -> Iterator[tuple[float, float, float]]:
    """Yield begin, end and peak of each time above the threshold."""
    run: list[Reading] = []
    for reading in [*readings, None]:
        warm = reading is not None and reading.values["temp"] >= 89 - WARN_BELOW
        gap = reading is not None and bool(run) and reading.time - run[-1].time > 20
        if warm and not gap and reading is not None:
            run.append(reading)
        elif run:
            if run[-1].time - run[0].time >= _RAISE_S:
                peak = max(r.values["temp"] for r in run)
                yield run[0].time, run[-1].time, peak
            run = [reading] if warm and reading is not None else []


def inspected(newest: dict[str, Reading]) -> tuple[Detail, ...]:
    """Return the processes that hold the memory which is in use now."""
    found = []
    commands = {
        "gemm": ("finetune.py --config llama-8b.yaml", "ada", "llama-trainer"),
        "attention": ("-m gpudeck.accel.workloads.attention --seq=8192", "ben", ""),
        "copy": ("shuffle.py --out /data/shards", "mara", "data-prep"),
    }
    for at, (device, reading) in enumerate(newest.items()):
        left = reading.values["mem_used"]
        processes = []
        if at == 0:
            draws = Process(812, "Xorg", "root", 0.1 * GIB, None, False, NOW - 90000, 12,
                            "/usr/lib/xorg/Xorg :0", "", "graphics", 1.0)  # fmt: skip
            processes.append(draws)
            left -= 0.1 * GIB
        if kind := _kind(reading):
            command, user, container = commands[kind]
            if kind == "attention" and at:  # GPU 0 runs the job, the others what people started
                command, user, container = ("train.py --fsdp", _USERS[at % 3], "llama-trainer")
            processes.append(
                Process(4711 + 8 * at, "python", user, left, None, False, NOW - 40 - 7 * at, 900,
                        f"python {command}", container, "compute", 92.0 - at % 5)
            )  # fmt: skip
        found.append(Detail(device, NOW, (), tuple(processes)))
    return tuple(found)


def past_processes(devices: Sequence[str], made: Sequence[Job]) -> tuple[PastProcess, ...]:
    """Return the processes of the jobs of the last day, the newest first."""
    found = []
    for job in reversed(made):
        state = job.state
        if not isinstance(state, Done | Failed) or state.started < NOW - 86400:
            continue
        use = Use(
            state.devices[0], 4000 + 3 * job.id, job.id, job.spec.argv[0],
            job.spec.env.get("USER", "ada"), job.id,
        )  # fmt: skip
        load = 96.0 - job.id % 7
        memory = (1.2 + job.id % 5 * 0.9) * GIB
        found.append(PastProcess(use, state.started, state.at, memory, load))
    return tuple(found)


def whole_use(past: PastProcess) -> Columns:
    """Return how a process that has ended used its device: it grew at first, and never rested."""
    span = past.last - past.first
    times = [past.first + span * (at + 0.5) / 20 for at in range(20)]
    memory: list[float | None] = [(past.memory or 0.0) * min(0.6 + at / 8, 1) for at in range(20)]
    load: list[float | None] = [(past.load or 0.0) * wave(at) for at in range(20)]
    return Columns(times, {"mem_used": memory, "util": load})


def process_history(since: float) -> Columns:
    """Return how a process used its device since a moment: it grows, and rests in between."""
    times = [since + (NOW - since) * (at + 0.5) / 240 for at in range(240)]
    rests = [at % 80 > 66 for at in range(240)]
    memory: list[float | None] = [(0.9 + 0.4 * min(at / 60, 1)) * GIB for at in range(240)]
    load: list[float | None] = [3.0 if rest else 92 * wave(at) for at, rest in enumerate(rests)]
    return Columns(times, {"mem_used": memory, "util": load})


def answer(job: Job, readings: Sequence[Reading]) -> FinishedAnswer:
    """Return what the assistant says about a job, with the curves of its device."""
    state = job.state
    assert isinstance(state, Done)
    rate = msgspec.json.decode(state.result)["tflops"]
    around = [r for r in readings if state.started - 5 <= r.time <= state.at + 5]
    run = [r for r in around if state.started <= r.time <= state.at]
    peak = max(r.values["temp"] for r in run)
    power = sum(r.values["power"] for r in run) / len(run)
    times = tuple(r.time for r in around)
    done = f"done, {rate:.0f} TFLOP/s"
    hottest, mean = f"{peak:.0f} °C at most", f"{power:.0f} W on average"
    curves = (
        Curve("GPU 0 temperature", "°C", times, tuple(r.values["temp"] for r in around)),
        Curve("GPU 0 power", "W", times, tuple(r.values["power"] for r in around)),
    )
    facts = (
        (f"Job {job.id}: {done}", done, "store, 16:00:00"),
        (f"GPU 0 temperature: {hottest}", hottest, "history, 16:00:00"),
        (f"GPU 0 power: {mean}", mean, "history, 16:00:00"),
    )
    text = (
        f"Job {job.id} (attention) is **done**: it ran for {state.at - state.started:.0f} s at"
        f" {rate:.0f} TFLOP/s and passed its check.\n\nMeanwhile GPU 0 drew {power:.0f} W on"
        f" average and was {peak:.0f} °C warm at most.\n"
    )
    return FinishedAnswer(text, "template", facts, curves=curves, seconds=0.2)


def overview(made: Sequence[Job], raised: Sequence[Alert]) -> FinishedAnswer:
    """Return what the assistant says about the last ten minutes."""
    ended = [j for j in made if getattr(j.state, "at", 0.0) > NOW - 600]
    done, failed, lost = (
        [j for j in ended if isinstance(j.state, kind)] for kind in (Done, Failed, Lost)
    )
    recent = [a for a in raised if (a.cleared or NOW) > NOW - 600]
    lines = [f"- {len(done)} are done."]
    if failed:
        named = ", ".join(f"job {j.id} ({j.spec.name})" for j in failed)
        lines.append(f"- {len(failed)} failed: {named}.")
    cancelled = [j for j in ended if isinstance(j.state, Cancelled)]
    if cancelled:
        lines.append(f"- {len(cancelled)} {'was' if len(cancelled) == 1 else 'were'} cancelled.")
    if lost:
        lines.append(f"- Job {lost[0].id} was lost: the daemon was down from 15:54 to 15:55.")
    text = f"In the last 10 minutes **{len(ended)} jobs** ended:\n\n" + "\n".join(lines)
    still = sum(a.cleared is None for a in recent)
    text += f"\n\nThe temperature raised {len(recent)} alerts; {still} still active.\n"
    facts = (
        (f"Jobs ended: {len(ended)}", str(len(ended)), "store, 16:00:00"),
        (f"Alerts: {len(recent)}", str(len(recent)), "store, 16:00:00"),
    )
    return FinishedAnswer(text, "template", facts, seconds=0.1)


def lab_history(busy: bool) -> tuple[list[float], dict[str, list[float | None]]]:
    """Return ten minutes of an A6000 that trains or does nothing, up to its present values."""
    times = [NOW - 600 + float(at) for at in range(601)]
    wave = [math.sin(at / 18) * math.sin(at / 62) if busy else 0.0 for at in range(601)]
    fade = [1 - math.exp(-at / 80) for at in range(601)]
    columns: dict[str, list[float | None]] = {
        "util": [87.0 + 9 * w if busy else 0.0 for w in wave],
        "mem_used": [(31.4 if busy else 0.6) * GIB for _ in times],
        "temp": [(52 + 19 * f + w) if busy else 34.0 for f, w in zip(fade, wave, strict=True)],
        "power": [(284 + 12 * w) if busy else 22.0 for w in wave],
    }
    return times, columns


SESSIONS = tuple(
    Summary(f"s{at}", title, NOW - age)
    for at, (title, age) in enumerate(
        (
            ("Why does sweep-lr wait?", 3400),
            ("What happened last night?", 27_000),
            ("Which job used the most energy?", 93_000),
            ("Compare the last two attention runs", 101_000),
            ("Brief of the week", 190_000),
        )
    )
)


def grid() -> Result:
    """Return the measured grid of an H100: all backends, both directions, four lengths."""
    with MEASURED.open() as file:
        cells = tuple(_cell(line) for line in csv.DictReader(file))
    best = max(cells, key=lambda cell: cell.tflops)
    seqs = sorted({cell.seq for cell in cells})
    return Result(
        workload="compare",
        device=H100,
        backend=best.backend,
        reason=phrase(
            "the fastest of {n} cells: {rest}",
            n=len(cells),
            rest=Text("forward, head size 256, sequence 16384"),
        ),
        params={
            "seq": ",".join(map(str, seqs)),
            "head_dim": "64,128,256",
            "causal": "both",
            "dtype": "bfloat16",
        },
        verdict=PASS,
        checks=best.checks,
        timing=best.timing,
        flops=best.flops,
        tflops=best.tflops,
        sustained_tflops=best.tflops,
        sustained_from=NOW - 1900,
        sustained_to=NOW - 1240,
        versions=_VERSIONS,
        started=NOW - 1900,
        ended=NOW - 1240,
        cells=cells,
    )


def _cell(line: dict[str, str]) -> Cell:
    def number(name: str) -> float:
        return float(line[name] or 0.0)

    timed = bool(line["tflops"])
    median = number("median_ms")
    timing = Timing(
        median, median, number("p95_ms"), number("p99_ms"), number("p5_ms"), number("p99_ms"),
        int(number("calls")), number("p5_ms"),
    )  # fmt: skip
    made = Cell(
        int(line["batch"]), int(line["heads"]), int(line["kv_heads"]), int(line["seq"]),
        int(line["head_dim"]), line["causal"] == "yes", line["dtype"], line["direction"],  # type: ignore[arg-type]
        line["contender"], line["backend"], line["note"],
    )  # fmt: skip
    if not timed:
        return made
    return msgspec.structs.replace(
        made,
        timing=timing,
        flops=number("flop"),
        moved=number("bytes"),
        tflops=number("tflops"),
        checks=(Check("out", number("worst_error_of_allowed") * 2.4e-3, 2.4e-3),),
        sensors=Sensors(number("sm_mhz") or None, None, number("celsius") or None),
    )
