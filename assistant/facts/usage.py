"""Compute the facts of reports: what jobs used, how long they waited, energy, timelines
and alerts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.facts.devices import source_name, subject
from gpudeck.assistant.facts.fact import QUEUE, Fact, FactBuilder
from gpudeck.language import numbers as units
from gpudeck.language.numbers import duration
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol import jobs as j
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.energy import POWER_FIELDS, joules_of_history
from gpudeck.scheduler.protocol.snapshot import Alert, Columns, full_label

_ADDED_UP = phrase("readings of its devices, added up by the daemon")
ENERGY_FIELDS = (*POWER_FIELDS, "energy")
"""The fields of a history that `energy_facts` reads."""
COUNTER_S = 1200.0
"""Seconds below which a card's energy counter is too coarse: it is read twice a minute."""
USED = {
    "energy": ("energy", "J"),
    "util": ("mean utilisation of its devices", "%"),
    "memory": ("most memory on one device", "B"),
}
"""The title and unit of each field of `jobs.Usage`."""


def used_facts(job: j.Job, now: float) -> list[Fact]:
    """Return what a job used of its devices, over all its attempts."""
    add = FactBuilder(f"job{job.id}", f"Job {job.id}", _ADDED_UP, now)
    usage = job.usage
    for field, (title, unit) in USED.items():
        if usage is None:
            add.absent(f"used.{field}", title, _unwatched(job))
        elif field in usage.absent:
            add.absent(f"used.{field}", title, usage.absent[field])
        elif field == "energy":
            add.value("used.energy", title, usage.energy, unit, units.energy(usage.energy))
        else:
            add.number(
                f"used.{field}", title, getattr(usage, field), unit, phrase("not a finite number")
            )
    if usage is not None:
        add.value("used.seconds", "watched for", usage.seconds, "s", duration(usage.seconds))
    return add.facts


def share_facts(job: j.Job, totals: Mapping[str, float], now: float) -> list[Fact]:
    """Return the largest share of its devices' memory that a job used.

    `totals` maps device ids to bytes, for devices that report them.
    """
    add = FactBuilder(f"job{job.id}", f"Job {job.id}", _ADDED_UP, now)
    usage, held = job.usage, () if isinstance(job.state, j.Queued) else job.state.devices
    known = [totals[device] for device in held if totals.get(device)]
    if usage is not None and "memory" not in usage.absent and known and len(known) == len(held):
        add.number(
            "used.share",
            "most of a device's memory",
            100 * usage.memory / min(known),
            "%",
            phrase("not a finite number"),
        )
    else:
        add.absent(
            "used.share",
            "most of a device's memory",
            phrase("its memory, or that of its devices, is not known"),
        )
    return add.facts


def _unwatched(job: j.Job) -> Text:
    if job.active:
        return phrase("it has not ended yet")
    if job.spec.gpus or job.spec.memory:
        return phrase("it was not sampled")
    return phrase("it held no device")


def when_facts(job: j.Job, now: float) -> list[Fact]:
    """Return when a job was submitted and started, and how long it waited."""
    add = FactBuilder(f"job{job.id}", f"Job {job.id}", QUEUE, now)
    add.value("submitted", "submitted", job.submitted, "s", phrases.moment(job.submitted, now))
    began = job.started
    if began is None:
        why = phrase("it has not started") if job.active else phrase("it never started")
        add.absent("started", "started", why)
        add.absent("waited", "waited", why)
        return add.facts
    add.value("started", "started", began, "s", phrases.moment(began, now))
    if job.tries:
        add.value("tries", "attempts before the last", job.tries, "", str(job.tries))
        add.absent(
            "waited",
            "waited",
            phrase("it had several attempts; its timeline tells when each began"),
        )
    else:
        add.value("waited", "waited", began - job.submitted, "s", duration(began - job.submitted))
    return add.facts


def timeline_facts(job: int, events: Sequence[j.Event], now: float) -> list[Fact]:
    """Return a job's timeline: the time, the kind and the text of each event."""
    add = FactBuilder(f"job{job}", f"Job {job}", phrase("the job's timeline"), now)
    for i, event in enumerate(events):
        add.value(f"event{i}.at", "event", event.time, "s", phrases.moment(event.time, now))
        what = Text(event.what)
        if event.text:
            what = phrase("{caption}: {value}", caption=what, value=event.text)
        add.text(f"event{i}.what", "event", what)
    return add.facts


def alert_facts(alerts: Sequence[Alert], devices: Mapping[str, str], now: float) -> list[Fact]:
    """Return the facts about alerts, one alert after another. `devices` maps device ids
    to labels.
    """
    found, source = [], phrase("the daemon's alerts")
    for alert in alerts:
        add = FactBuilder(f"alert{alert.id}", f"Alert {alert.id}", source, now)
        add.text("rule", "rule", Text(alert.rule))
        add.text("about", "about", devices.get(alert.device, alert.device) or _subject_of(alert))
        add.text("text", "text", alert.text)
        add.value("raised", "raised", alert.raised, "s", phrases.moment(alert.raised, now))
        if alert.cleared is None:
            add.text("cleared", "cleared", phrase("lasts"))
        else:
            add.value("cleared", "cleared", alert.cleared, "s", phrases.moment(alert.cleared, now))
        found += add.facts
    return found


def _subject_of(alert: Alert) -> Text:
    return phrase("machine") if alert.job is None else phrase("Job {number}", number=alert.job)


def energy_facts(device: Device, history: Columns | None, now: float) -> list[Fact]:
    """Return the energy that a device used over the span.

    Over a long span its own counter is used, otherwise its power times the time it was read.
    """
    add = FactBuilder(subject(device), full_label(device), "", now)
    power = None if history is None else joules_of_history(history)
    counted = _counted(history) if power is None or _seconds(history) >= COUNTER_S else None
    name = source_name(device)
    if counted is not None:
        add.source = phrase("{source} readings of its energy counter, history", source=name)
    else:
        add.source = phrase("{source} readings of its power, added up, history", source=name)
    joules = counted if counted is not None else power
    if joules is None:
        read = history is not None and any(v is not None for v in history.columns.get("power", ()))
        add.absent(
            "energy",
            "energy",
            phrase("too little was read in this time")
            if read
            else phrase("neither energy nor power was read in this time"),
        )
    else:
        add.value("energy", "energy", joules, "J", units.energy(joules))
    return add.facts


TOTALS = {
    "util.mean": ("mean utilisation", "mean", "%"),
    "util.max": ("highest utilisation", "max", "%"),
    "mem_used.mean": ("mean memory used", "sum", "B"),
    "tflops.mean": ("mean rate", "sum", "TFLOP/s"),
    "temp.max": ("highest temperature", "max", "°C"),
    "power.mean": ("mean power", "sum", "W"),
    "energy": ("energy", "sum", "J"),
}
"""What is told of all GPUs: the fact of each, a title, how they are put together, the unit."""


def total_facts(facts: Sequence[Fact], now: float) -> list[Fact]:
    """Return totals over all GPUs that have a value."""
    add = FactBuilder("gpus", "All GPUs", phrase("the GPUs' values, put together"), now)
    for name, (title, how, unit) in TOTALS.items():
        found = {
            fact.subject: fact.value
            for fact in facts
            if fact.name == f"{fact.subject}.{name}" and fact.subject.startswith(("gpu", "replay"))
        }
        values = [value for value in found.values() if isinstance(value, int | float)]
        if len(values) < 2:
            continue
        total = max(values) if how == "max" else math.fsum(values)
        total = total / len(values) if how == "mean" else total
        said = units.energy(total) if unit == "J" else phrases.quantity(total, unit)
        add.value(name, title, total, unit, said)
    return add.facts


def _seconds(history: Columns | None) -> float:
    return history.times[-1] - history.times[0] if history is not None and history.times else 0.0


def _counted(history: Columns | None) -> float | None:
    """Return the joules between the counter's first and last reading.

    None if it has no counter, or if the counter was reset meanwhile.
    """
    if history is None:
        return None
    low = [v for v in history.low.get("energy", ()) if v is not None and math.isfinite(v)]
    high = [v for v in history.high.get("energy", ()) if v is not None and math.isfinite(v)]
    rose = all(a <= b for a, b in zip(high, low[1:], strict=False))
    return high[-1] - low[0] if low and rose else None
