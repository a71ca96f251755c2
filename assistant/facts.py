"""Every number that may be said: computed here from what the daemon tells, each with its unit, source and time.

Pure functions on values. "No data" is a fact too. Names are `subject.what`, the subject one of `gpu0`, `cpu`, `replay0`,
`job7`, `jobs`, `span` and `deck`. Text from jobs and processes is foreign: it is stored plain and said escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from accel import result as results
from assistant import phrases
from scheduler import jobs as j
from scheduler.devices.fields import FIELDS
from scheduler.devices.model import NA, Device
from scheduler.telemetry.snapshot import Columns, DeviceState, Idle, Snapshot

FIELDS_NOW = ("util", "mem_used", "mem_total", "tflops", "temp", "power", "power_limit")
_TITLES = {"tflops": "rate"}
FIELDS_SPAN = ("util", "mem_used", "tflops", "temp", "power")


class Fact(msgspec.Struct, frozen=True):
    """One thing that may be said."""

    name: str
    value: float | int | str | None
    """As computed, None where there is none."""
    unit: str
    said: str
    """The value as Markdown: rounded, with its unit; N/A with the reason where there is none."""
    source: str
    time: float
    """When it was so, seconds since the epoch."""
    text: str
    """The whole fact as a phrase that stands alone."""

    @property
    def subject(self) -> str:
        return self.name.split(".", 1)[0]


def label(device: Device) -> str:
    """How a device is called: GPU 0, CPU, REPLAY GPU 0."""
    return {"nvidia": f"GPU {device.index}", "cpu": "CPU", "replay": f"REPLAY GPU {device.index}"}[device.kind]


def subject(device: Device) -> str:
    return {"nvidia": f"gpu{device.index}", "cpu": "cpu", "replay": f"replay{device.index}"}[device.kind]


def gather(snapshot: Snapshot, jobs: Sequence[j.Job], histories: Mapping[str, Columns], since: float, until: float) -> tuple[Fact, ...]:
    """All facts about a snapshot, `jobs`, and each device's history between two times (by device id)."""
    facts = [*deck_facts(snapshot), *span_facts(since, until)]
    for state in snapshot.devices:
        facts += device_facts(state, snapshot.time)
        facts += history_facts(state.device, histories.get(state.device.id), until)
    facts += count_facts(jobs, snapshot.time)
    names = {state.device.id: label(state.device) for state in snapshot.devices}
    for job in jobs:
        facts += job_facts(job, snapshot.time, names)
    return tuple(facts)


def during(jobs: Sequence[j.Job], since: float, until: float) -> tuple[j.Job, ...]:
    """Those of `jobs` that wait or run, or ended between the two times."""
    return tuple(job for job in jobs if isinstance(job.state, j.Queued | j.Starting | j.Running) or since <= job.state.at <= until)


def deck_facts(snapshot: Snapshot) -> list[Fact]:
    """Where the readings come from, whether the queue is paused, what the user should know."""
    add = _Adder("deck", "", "daemon", snapshot.time)
    if not snapshot.devices:
        add.absent("devices", "Devices", "no device has been read yet")
    kind, _, file = snapshot.source.partition(" ")
    add.words("source", "Readings come from", f"{kind.upper()} {file}")
    if snapshot.paused:
        add.words("paused", "Queue", "paused, nothing new starts")
    for i, notice in enumerate(snapshot.notices):
        add.words(f"notice{i}", "Notice", notice)
    return add.facts


def span_facts(since: float, until: float) -> list[Fact]:
    """The stretch of time that is reported on."""
    add = _Adder("span", "", "daemon", until)
    add.said("when", "From", since, "s", phrases.stretch(since, until))
    add.said("length", "Length", until - since, "s", phrases.duration(until - since))
    return add.facts


def device_facts(state: DeviceState, now: float) -> list[Fact]:
    """One device as it is now."""
    device, reading = state.device, state.reading
    add = _Adder(subject(device), label(device), _source(device), reading.time if reading else now)
    add.words("name", "name", device.name)
    add.words("label", "called", label(device))
    if device.note:
        add.words("note", "note", device.note)
    if isinstance(state.use, Idle):
        add.said("use", "use", "idle", "", f"idle for {phrases.duration(now - state.use.since)}")
    else:
        add.words("use", "use", f"busy: {state.use.reason}")
    if state.holder is not None:
        add.said("holder", "held by", state.holder, "", f"job {state.holder}")
    for field in FIELDS_NOW:
        known = reading.get(field) if reading else NA("the device has not been read yet")
        title, unit = _TITLES.get(field) or FIELDS[field].label.lower(), FIELDS[field].unit
        if isinstance(known, NA) or not math.isfinite(known):
            add.absent(field, title, known.reason if isinstance(known, NA) else "the device reported no finite number")
        else:
            add.said(field, title, known, unit, phrases.quantity(known, unit))
    for i, process in enumerate(reading.processes if reading else ()):
        memory = f", {phrases.quantity(process.memory, 'B')}" if process.memory is not None else ""
        add.said(f"process{i}", "process", process.pid, "", f"{phrases.escaped(process.name, 80)} (pid {process.pid}{memory})")
    return add.facts


def history_facts(device: Device, history: Columns | None, now: float) -> list[Fact]:
    """Mean and highest value of each field over the span. Gaps in the history count as gaps, not as zeros."""
    add = _Adder(subject(device), label(device), _source(device) + ", history", now)
    if history and history.times:
        first, last = history.times[0], history.times[-1]
        add.said("covered", "readings cover", last - first, "s", phrases.stretch(first, last))
    else:
        add.absent("covered", "readings cover", "no data in this time")
    for field in FIELDS_SPAN:
        column = history.columns.get(field, []) if history else []
        values = [v for v in column if v is not None and math.isfinite(v)]
        title, unit = _TITLES.get(field) or FIELDS[field].label.lower(), FIELDS[field].unit
        for what, word in (("mean", "mean"), ("max", "highest")):
            if not values:
                add.absent(f"{field}.{what}", f"{word} {title}", "no data in this time")
            else:
                value = math.fsum(values) / len(values) if what == "mean" else max(values)
                add.said(f"{field}.{what}", f"{word} {title}", value, unit, phrases.quantity(value, unit))
    return add.facts


def count_facts(jobs: Sequence[j.Job], now: float) -> list[Fact]:
    """How many jobs there are in each state."""
    add = _Adder("jobs", "Jobs", "queue", now)
    if not jobs:
        add.absent("any", "jobs", "no job waited, ran or ended in this time")
    for status in ("running", "starting", "queued", "done", "failed", "cancelled", "lost"):
        if count := sum(job.status == status for job in jobs):
            add.said(status, status, count, "", str(count))
    return add.facts


def job_facts(job: j.Job, now: float, devices: Mapping[str, str]) -> list[Fact]:
    """One job: what it is, its state with reasons and times, its progress, its Result. `devices`: device id to label."""
    add = _Adder(f"job{job.id}", f"Job {job.id}", "queue", now)
    state = job.state
    add.words("name", "name", job.spec.name)
    if job.spec.workload:
        add.words("workload", "workload", job.spec.workload)
    add.words("state", "state", "stopping" if isinstance(state, j.Running) and state.stopping else job.status)
    if not isinstance(state, j.Queued) and state.devices:
        add.words("devices", "on", ", ".join(devices.get(d, d) for d in state.devices))
    _job_times(add, job, now)
    if isinstance(state, j.Queued | j.Failed | j.Lost):
        add.words("reason", "reason", state.reason)
    if isinstance(state, j.Failed) and state.code is not None:
        add.said("code", "exit status", state.code, "", str(state.code))
    if isinstance(state, j.Running) and state.progress is not None:
        _progress(add, state.progress, now - state.at)
    if job.result is not None:
        _result(add, job.result)
    return add.facts


def _job_times(add: _Adder, job: j.Job, now: float) -> None:
    state = job.state
    if isinstance(state, j.Queued):
        began, ended = None, None
        add.said("waiting", "waiting for", now - job.submitted, "s", phrases.duration(now - job.submitted))
    elif isinstance(state, j.Starting | j.Running):
        began, ended = state.at, None
        add.said("running", "running for", now - began, "s", phrases.duration(now - began))
    else:
        began, ended = state.started, state.at
    if ended is not None:
        add.said("ended", "ended", ended, "s", phrases.moment(ended))
        if began is not None:
            add.said("duration", "took", ended - began, "s", phrases.duration(ended - began))


def _progress(add: _Adder, progress: j.Progress, elapsed: float) -> None:
    if not progress.total > 0:
        return
    share = progress.done / progress.total
    add.said("progress", "progress", 100 * share, "%", phrases.quantity(100 * share, "%"))
    if progress.note:
        add.words("doing", "doing", progress.note)
    if 0 < share < 1:
        left = elapsed * (1 - share) / share
        add.said("left", "about left", left, "s", phrases.duration(left))


def _result(add: _Adder, data: bytes) -> None:
    add.source = "the job's Result"
    try:
        result = results.read(data)
    except msgspec.MsgspecError:
        add.absent("result", "result", "the job left a file that is not a Result")
        return
    add.words("verdict", "verdict", result.verdict)
    add.words("device", "measured on", result.device)
    add.words("backend", "backend", result.backend)
    add.words("choice", "backend chosen because", result.reason)
    shape = ", ".join(f"{name} {value}" for name, value in result.params.items() if name not in ("backend", "seconds"))
    if shape:
        add.words("shape", "inputs", shape)
    _measured(add, result)
    for i, check in enumerate(result.checks):
        verb = "within" if check.passed else "ABOVE"
        error, bound = (f"{x:.2e}" for x in (check.error, check.bound))
        add.said(f"check{i}", "check", check.error, "", f"{phrases.escaped(check.name, 60)}: error {error}, {verb} the bound {bound}")


def _measured(add: _Adder, result: results.Result) -> None:
    timing = result.timing
    if not timing.count:
        add.absent("median", "median of one call", "nothing was timed, because a check failed")
        return
    numbers = [("median", "median of one call", timing.median, "ms"), ("p95", "P95 of one call", timing.p95, "ms")]
    numbers += [("p99", "P99 of one call", timing.p99, "ms"), ("calls", "calls measured", timing.count, "")]
    if result.flops:
        numbers += [("tflops", "rate", result.tflops, "TFLOP/s"), ("sustained", "sustained rate", result.sustained_tflops, "TFLOP/s")]
    if result.bandwidth:
        numbers += [("bandwidth", "memory bandwidth", result.bandwidth, "B/s")]
    for name, title, value, unit in numbers:
        if math.isfinite(value):
            add.said(name, title, value, unit, phrases.quantity(value, unit))
        else:
            add.absent(name, title, "not a finite number in the Result")


def _source(device: Device) -> str:
    return f"{'NVML' if device.kind == 'nvidia' else device.kind.upper()} readings"


class _Adder:
    """Builds the facts about one subject."""

    def __init__(self, subject: str, title: str, source: str, time: float) -> None:
        self.facts: list[Fact] = []
        self.source = source
        self._subject, self._title, self._time = subject, title, time

    def said(self, name: str, title: str, value: float | int | str | None, unit: str, said: str) -> None:
        text = f"{self._title} {title}: {said}".strip()
        self.facts.append(Fact(f"{self._subject}.{name}", value, unit, said, self.source, self._time, text[0].upper() + text[1:]))

    def words(self, name: str, title: str, words: str) -> None:
        """Words, perhaps foreign."""
        self.said(name, title, phrases.plain(words), "", phrases.escaped(words))

    def absent(self, name: str, title: str, reason: str) -> None:
        self.said(name, title, None, "", f"N/A ({phrases.escaped(reason)})")


def named(facts: Iterable[Fact]) -> dict[str, Fact]:
    """Facts by name; where two bear the same name the newer one counts (see `assistant.writer` for contradictions)."""
    found: dict[str, Fact] = {}
    for fact in facts:
        if fact.name not in found or fact.time >= found[fact.name].time:
            found[fact.name] = fact
    return found
