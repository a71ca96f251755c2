"""Compute the facts about a device: how it is now, and how it was over a span of time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.facts.fact import Fact, FactBuilder
from gpudeck.language.numbers import duration
from gpudeck.language.rendering import render
from gpudeck.language.text import Message, Number, Text, phrase
from gpudeck.scheduler.protocol.busy_causes import JobWaits, QuietHours, Settling, left_of
from gpudeck.scheduler.protocol.devices import NA, Device
from gpudeck.scheduler.protocol.fields import FIELDS, UNCERTAINTY
from gpudeck.scheduler.protocol.snapshot import Busy, Columns, DeviceState, Idle, full_label
from gpudeck.scheduler.protocol.units import numbered

FIELDS_NOW = ("util", "mem_used", "mem_total", "mem_free", "tflops", "temp", "power", "power_limit")
FIELDS_SPAN = ("util", "mem_used", "tflops", "temp", "power")
_TITLES = {"tflops": "rate"}
IDLE = "idle"
"""The value of the fact `use` of an idle device."""
UNUSED = "not in use"
"""The begin of the fact `use` of a device that nobody uses, but that is not idle yet."""


def subject(device: Device) -> str:
    """Return the subject of a device's facts: gpu0, cpu, replay0."""
    if device.kind == "cpu":
        return "cpu"
    return f"{'replay' if device.kind == 'replay' else 'gpu'}{device.number}"


def identity_facts(state: DeviceState, now: float) -> list[Fact]:
    """Return the facts about one device that do not change: its names and its note."""
    return _identity(state, now).facts


def _identity(state: DeviceState, now: float) -> FactBuilder:
    device, reading = state.device, state.reading
    add = FactBuilder(
        subject(device), full_label(device), source(device), reading.time if reading else now
    )
    add.text("name", "name", device.name)
    add.text("label", "called", full_label(device))
    if device.note:
        add.text("note", "note", device.note)
    return add


def _use(use: Busy) -> Text:
    """Return why a device is not idle; one that nobody uses is not called busy."""
    match use.cause:
        case Settling() as cause:
            return phrase("not in use, free in {amount}", amount=left_of(cause))
        case JobWaits() | QuietHours():
            return phrase("not in use: {sub}", sub=use.reason)
        case _:
            return phrase("busy: {sub}", sub=use.reason)


def device_facts(state: DeviceState, now: float, fields: Sequence[str] = FIELDS_NOW) -> list[Fact]:
    """Return the facts about one device as it is now."""
    reading, add = state.reading, _identity(state, now)
    read_from = add.source
    if isinstance(state.use, Idle):
        idle = phrase("idle for {span}", span=duration(now - state.use.since))
        add.value("use", "use", IDLE, "", render(idle), idle)
    else:
        add.text("use", "use", _use(state.use))
    if state.holders:
        add.text("holder", "held by", numbered(state.holders))
    for field in fields:
        known = reading.get(field) if reading else NA("the device has not been read yet")
        values = reading.values if reading else {}
        _state_error(add, read_from, values.get(UNCERTAINTY.get(field, "")))
        if isinstance(known, NA):
            add.absent(field, _title(field), known.reason)
        else:
            add.number(
                field,
                _title(field),
                known,
                FIELDS[field].unit,
                phrase("the device reported no finite number"),
            )
    _state_error(add, read_from, None)
    for i, process in enumerate(reading.processes if reading else ()):
        memory = f", {phrases.quantity(process.memory, 'B')}" if process.memory is not None else ""
        add.value(
            f"process{i}",
            "process",
            process.pid,
            "",
            f"{phrases.escaped(process.name, 80)} (pid {process.pid}{memory})",
        )
    return add.facts


def history_facts(
    device: Device,
    history: Columns | None,
    now: float,
    fields: Sequence[str] = FIELDS_SPAN,
    lowest: bool = False,
) -> list[Fact]:
    """Return mean and highest value of each field over the span, and the lowest one if `lowest`.

    Gaps in the history count as gaps, not as zeros.
    """
    read_from = phrase("{source} readings, history", source=source_name(device))
    add = FactBuilder(subject(device), full_label(device), read_from, now)
    if history and history.times:
        first, last = history.times[0], history.times[-1]
        add.value("covered", "readings cover", last - first, "s", phrases.stretch(first, last, now))
    else:
        add.absent("covered", "readings cover", phrase("nothing was read in this time"))
    for field in fields:
        _state_error(add, read_from, largest_error(history, field))
        column = history.columns.get(field, []) if history else []
        values = [v for v in column if v is not None and math.isfinite(v)]
        high, low = (
            [v for v in of.get(field, ()) if v is not None and math.isfinite(v)]
            for of in ((history.high, history.low) if history else ({}, {}))
        )
        found = (
            {
                "mean": math.fsum(values) / len(values),
                "max": max(values + high),
                "min": min(values + low),
            }
            if values
            else {}
        )
        for what, word in _WHATS[: 3 if lowest else 2]:
            if what in found:
                add.number(
                    f"{field}.{what}",
                    f"{word} {_title(field)}",
                    found[what],
                    FIELDS[field].unit,
                    phrase("too large to add up"),
                )
            else:
                add.absent(
                    f"{field}.{what}",
                    f"{word} {_title(field)}",
                    phrase("nothing was read in this time"),
                )
    return add.facts


def largest_error(history: Columns | None, field: str) -> float | None:
    """Return how far any of the field's readings may be off in percent, or None if none says."""
    if history is None or field not in UNCERTAINTY:
        return None
    error = UNCERTAINTY[field]
    parts = (history.columns, history.high)
    stated = [v for part in parts for v in part.get(error, ()) if v is not None]
    return max(filter(math.isfinite, stated), default=None)


def _state_error(add: FactBuilder, read_from: Message, error: float | None) -> None:
    """Let the next facts say how far they may be off.

    The text of a fact is what the model was trained on, so the error stands with the source.
    """
    add.error = error
    add.source = read_from
    if error:
        add.source = phrase(
            "{source}, hardware counters ±{n} %", source=read_from, n=Number(error, ".0f")
        )


_WHATS = (("mean", "mean"), ("max", "highest"), ("min", "lowest"))


def _title(field: str) -> str:
    return _TITLES.get(field) or FIELDS[field].label.lower()


def source_name(device: Device) -> str:
    """Return the name of what a device is read by."""
    return "NVML" if device.kind == "nvidia" else device.kind.upper()


def source(device: Device) -> Text:
    """Return the source of a device's readings."""
    return phrase("{source} readings", source=source_name(device))
