"""Compute the facts about jobs: what they are, their states, and their Results.

Their names and words are foreign text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpudeck.accel import result as results
from gpudeck.accel.workloads import catalog
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.facts.fact import QUEUE, Fact, FactBuilder
from gpudeck.language.numbers import duration
from gpudeck.language.rendering import render
from gpudeck.language.text import Number, Text, Value, phrase
from gpudeck.scheduler.protocol import jobs as j
from gpudeck.scheduler.protocol.wait_texts import explain

_COUNTED = ("running", "starting", "queued", "done", "failed", "cancelled", "lost")
_NOT_INPUTS = ("backend", "backends", "seconds", "power", "trials", "seed")
"""Parameters that describe how a measurement was made, not its inputs."""
_PROGRESS = ("waiting", "running", "reason", "progress", "doing", "left")


def during(jobs: Sequence[j.Job], since: float, until: float) -> tuple[j.Job, ...]:
    """Return the jobs that wait or run, or ended between the two times."""
    return tuple(
        job for job in jobs if isinstance(job.state, j.Active) or since <= job.state.at <= until
    )


def count_facts(jobs: Sequence[j.Job], now: float) -> list[Fact]:
    """Return how many jobs ran to an end, and how many are in each state."""
    add = FactBuilder("jobs", "Jobs", QUEUE, now)
    if not jobs:
        add.absent("any", "jobs", phrase("no job waited, ran or ended in this time"))
    if ran := sum(isinstance(job.state, j.Ended) and job.state.started is not None for job in jobs):
        add.value("ran", "that ran", ran, "", str(ran))
    for status in _COUNTED:
        if count := sum(job.status == status for job in jobs):
            add.value(status, status, count, "", str(count))
    return add.facts


def job_facts(job: j.Job, now: float, devices: Mapping[str, str]) -> list[Fact]:
    """Return the facts about one job: its state with reasons and times, its progress, its Result.

    `devices` maps device ids to labels.
    """
    add = FactBuilder(f"job{job.id}", f"Job {job.id}", QUEUE, now)
    state = job.state
    add.value("called", "called", job.id, "", f"Job {job.id}")
    add.text("name", "name", job.spec.name)
    if job.spec.workload:
        add.text("workload", "workload", job.spec.workload)
    add.text("state", "state", Text(_state_of(job)))
    if not isinstance(state, j.Queued) and state.devices:
        add.text("devices", "on", ", ".join(devices.get(d, d) for d in state.devices))
    _times(add, job, now)
    if isinstance(state, j.Queued):
        add.text("reason", "reason", explain(state.wait, now))
    if isinstance(state, j.Failed | j.Lost):
        add.text("reason", "reason", state.reason)
    if isinstance(state, j.Running) and state.unreadable is not None:
        add.text("reason", "reason", explain(state.unreadable, now))
    if isinstance(state, j.Failed) and state.code is not None:
        add.value("code", "exit status", state.code, "", str(state.code))
    if isinstance(state, j.Running) and state.progress is not None:
        _progress(add, state.progress, now - state.at)
    if job.result is not None:
        _result(add, job.result)
    return add.facts


def _state_of(job: j.Job) -> str:
    if isinstance(job.state, j.Running) and job.state.stopping:
        return "stopping"
    suspension = j.suspension_of(job)
    return job.status if suspension is None else suspension.phase


def without_progress(facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts about a job that has not ended without those that change as it goes on."""
    return [fact for fact in facts if fact.name.partition(".")[2] not in _PROGRESS]


def _times(add: FactBuilder, job: j.Job, now: float) -> None:
    state = job.state
    if isinstance(state, j.Queued):
        add.value(
            "waiting",
            "waiting for",
            now - job.submitted,
            "s",
            duration(now - job.submitted),
        )
    elif isinstance(state, j.Starting | j.Running):
        add.value("running", "running for", now - state.at, "s", duration(now - state.at))
    else:
        add.value("ended", "ended", state.at, "s", phrases.moment(state.at, now))
        if state.started is not None:
            add.value(
                "duration",
                "took",
                state.at - state.started,
                "s",
                duration(state.at - state.started),
            )


def _progress(add: FactBuilder, progress: j.Progress, elapsed: float) -> None:
    if not progress.total > 0:
        return
    share = progress.done / progress.total
    add.value("progress", "progress", 100 * share, "%", phrases.quantity(100 * share, "%"))
    if progress.note:
        add.text("doing", "doing", progress.note)
    if 0 < share < 1:
        left = elapsed * (1 - share) / share
        add.value("left", "about left", left, "s", duration(left))


def _result(add: FactBuilder, data: bytes) -> None:
    add.source = phrase("the job's Result")
    try:
        result = results.read(data)
    except msgspec.MsgspecError:
        add.absent("result", "result", phrase("the job left a file that is not a Result"))
        return
    add.text("verdict", "verdict", result.verdict)
    add.text("device", "measured on", result.device)
    add.text("backend", "backend", result.backend)
    add.text("choice", "backend chosen because", result.reason)
    if inputs := _inputs(result):
        add.text("inputs", "inputs", inputs)
    _measured(add, result)
    for i, check in enumerate(result.checks):
        text = _checked(check)
        add.value(f"check{i}", "check", check.error, "", phrases.escaped(render(text)), text)
    if result.versions:
        add.text(
            "versions",
            "versions",
            ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        )


def _inputs(result: results.Result) -> str:
    """Return `heads 16, sequence 16384, data type bfloat16, not causal`, with the workload form's
    labels.
    """
    parts = []
    for name, param in catalog.told(result.workload, result.params).items():
        value = result.params[name]
        title = name.replace("_", " ") if param is None else param.label
        title = title if title[:2].isupper() or "/" in title else title[:1].lower() + title[1:]
        if name not in _NOT_INPUTS:
            parts.append(
                (title if value else f"not {title}")
                if isinstance(value, bool)
                else f"{title} {value}"
            )
    return ", ".join(parts)


def _measured(add: FactBuilder, result: results.Result) -> None:
    timing = result.timing
    if not timing.count:
        why = phrase("nothing was timed, because a check failed")
        add.absent("median", "median of one call", why)
        return
    numbers = [
        ("median", "median of one call", timing.median, "ms"),
        ("p95", "P95 of one call", timing.p95, "ms"),
        ("p99", "P99 of one call", timing.p99, "ms"),
        ("calls", "calls measured", timing.count, ""),
    ]
    if result.flops:
        numbers += [
            ("tflops", "rate", result.tflops, "TFLOP/s"),
            ("sustained", "sustained rate", result.sustained_tflops, "TFLOP/s"),
        ]
    if result.bandwidth:
        numbers += [("bandwidth", "memory bandwidth", result.bandwidth, "B/s")]
    for name, title, value, unit in numbers:
        add.number(name, title, value, unit, phrase("not a finite number in the Result"))


def _short(value: float) -> Number:
    plain = value == 0 or 1e-3 <= abs(value) < 1e6
    return Number(value, ".2g" if plain else ".1e")


def _checked(check: results.Check) -> Text:
    shown: dict[str, Value] = {"sub": check.name, "used": _short(check.error)}
    if check.passed and check.bound == 0:
        return phrase("{sub}: {used}, as it must be", **shown)
    shown["less"] = _short(check.bound)
    if check.passed:
        return phrase("{sub}: {used}, within the {less} allowed", **shown)
    return phrase("{sub}: {used}, ABOVE the {less} allowed", **shown)
