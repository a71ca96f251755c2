"""Answer queries about devices, from the snapshot and the history."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from gpudeck.assistant.facts.devices import largest_error, source, source_name, subject
from gpudeck.assistant.facts.phrases import plain
from gpudeck.assistant.facts.usage import ENERGY_FIELDS, energy_facts
from gpudeck.assistant.query.estimates import IDLE_UTIL
from gpudeck.assistant.query.find import named_jobs
from gpudeck.assistant.query.groups import PAST_S, by_time
from gpudeck.assistant.query.readings import POINTS, begun_late
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.query.rows import Column, Note, Row, Rows, Value
from gpudeck.assistant.query.shape import finite, shaped
from gpudeck.assistant.query.table import SUBJECTS
from gpudeck.assistant.query.usual import with_usual
from gpudeck.language.text import Message, Text, joined, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.busy_causes import JobWaits, Loaded, QuietHours, Settling
from gpudeck.scheduler.protocol.devices import NA
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.fields import UNCERTAINTY, with_uncertainty
from gpudeck.scheduler.protocol.jobs import Queued
from gpudeck.scheduler.protocol.snapshot import Busy, Columns, DeviceState, Idle, Snapshot, label
from gpudeck.scheduler.protocol.units import numbered

_NEAR_S = 300.0
"""A reading this far from a moment still stands for it."""
_USED = ("idle_time", "busy_time")
_DAY_S = 86400.0
_WEEK_S = 7 * _DAY_S
_HEALTH = ("ecc_uncorrected", "ecc_corrected", "rows_failure", "rows_pending", "xid_count",
           "nvlink_errors", "pcie_replays")  # fmt: skip
_FREE = (Settling, JobWaits, QuietHours)
"""Causes that keep only the assistant from a device."""
_OVER_TIME = {"mean": "mean", "max": "max", "min": "min", "sum": "mean"}


def devices(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return a row for each device that the query names. Raises NotFound if there is none."""
    states, notes = chosen(query, snapshot)
    states = _of_jobs(daemon, query, states)
    if snapshot.is_recorded:
        notes = (*notes, Note("replay", (snapshot.recording,)))
    if query.ahead:
        return _energy_ahead(daemon, query, states, notes, snapshot.time)
    if query.time is None and (length := _past_of(query)):
        span = Span(snapshot.time - length, snapshot.time)
        query, notes = msgspec.structs.replace(query, time=span), (*notes, Note("past", (length,)))
    measures = (query.measure,) if query.measure else SUBJECTS["devices"].headline
    if query.time is not None:
        if query.by in PAST_S:
            return by_time(daemon, query, query.time, states, notes, snapshot.time)
        if query.measure in _USED:
            return _used_time(daemon, query, query.time, states, notes)
        timed = [name for name in measures if SUBJECTS["devices"].measures[name].history]
        timed = ["energy"] if query.measure == "energy" else timed
        return shaped(query, _over_time(daemon, query, query.time, states, timed, notes))
    if "use" in measures and not query.states:
        notes = (*notes, *_why_busy(states))
    errors = [
        state.reading.values.get(UNCERTAINTY[name])
        for state in states
        for name in measures
        if state.reading is not None and name in UNCERTAINTY
    ]
    notes = (*notes, *uncertainty(errors))
    columns = tuple(Column(name, _unit(name)) for name in measures)
    rows = tuple(_now(state, measures, snapshot.time) for state in states)
    if query.states and len(states) > 1:
        wanted = "idle" in query.states
        rows = tuple(
            row for row, state in zip(rows, states, strict=True) if is_free(state) == wanted
        )
    made = shaped(
        query, Rows("devices", columns, rows, _source(states), snapshot.time, notes=notes)
    )
    usual = with_usual(daemon, query, made, states, snapshot)
    return msgspec.structs.replace(made, notes=(*made.notes, *usual))


def _past_of(query: Query) -> float:
    """Return the seconds that a question covers which names no time; 0: it is about now."""
    return PAST_S.get(query.by) or (_DAY_S if query.measure in ("energy", *_USED) else 0.0)


def _energy_ahead(
    daemon: Client, query: Query, states: Sequence[DeviceState], notes: tuple[Note, ...], now: float
) -> Rows:
    """Return the energy that devices will use if their power stays as it is, or as when idle."""
    powers = [state.reading.get("power") if state.reading else None for state in states]
    if query.states:
        powers = [_least_power(daemon, state, now) for state in states]
    rows = tuple(
        Row(
            subject(state.device),
            label(state.device),
            (power * query.ahead if isinstance(power, int | float) else None,),
        )
        for state, power in zip(states, powers, strict=True)
    )
    known = [power for power in powers if isinstance(power, int | float)]
    if known and query.states:
        late = [begun_late(daemon, s.device.id, "power", now - _WEEK_S, now) for s in states]
        since = min(filter(None, late), default=None) if all(late) else None
        notes = (*notes, Note("idle ahead", (math.fsum(known), query.ahead, since)))
    elif known:
        notes = (*notes, Note("ahead", (math.fsum(known), query.ahead)))
    found = Rows("devices", (Column("energy", "J"),), rows, _source(states), now, notes=notes)
    return shaped(query, found)


def _used_time(
    daemon: Client,
    query: Query,
    span: Span,
    states: Sequence[DeviceState],
    notes: tuple[Note, ...],
) -> Rows:
    """Return for how long devices did nothing, or something, as far as readings tell."""
    rows = []
    for state in states:
        history = daemon.history(state.device.id, ("util",), span.since, span.until, POINTS)
        read = list(zip(history.times, history.columns.get("util", []), strict=False))
        value = _seconds_of(read, idle=query.measure == "idle_time")
        rows.append(Row(subject(state.device), label(state.device), (value,), ("no data",)))
    found = Rows("devices", (Column(query.measure, "s"),), tuple(rows), _source(states), span.until,
                 span, notes=notes)  # fmt: skip
    return shaped(query, found)


def _seconds_of(read: Sequence[tuple[float, float | None]], *, idle: bool) -> float | None:
    """Return for how long a device was idle, or else busy; None if nothing was read.

    Half of the time between two readings counts as the one, half as the other; a gap as nothing.
    """
    if all(load is None for _, load in read):
        return None
    seconds = 0.0
    for (since, first), (until, last) in pairwise(read):
        if first is not None and last is not None:
            same = ((load <= IDLE_UTIL) == idle for load in (first, last))
            seconds += (until - since) * sum(same) / 2
    return seconds


def _least_power(daemon: Client, state: DeviceState, now: float) -> float | None:
    """Return the lowest power of the last week, which a device has when it is idle."""
    history = daemon.history(state.device.id, ("power",), now - _WEEK_S, now, POINTS)
    known = [value for value in history.columns.get("power", []) if value is not None]
    return min(filter(finite, known), default=None)


def chosen(query: Query, snapshot: Snapshot) -> tuple[list[DeviceState], tuple[Note, ...]]:
    """Return the devices of a query, with notes of those that are not there. Raises NotFound."""
    found = list(snapshot.devices)
    present = ", ".join(label(state.device) for state in found) or "no device"
    found = [state for state in found if state.device.index not in query.exclude]
    if query.model:
        found = [state for state in found if _is_called(query.model, state)]
        if not found:
            raise NotFound(
                phrase(
                    "no GPU of this machine is called {name}; it has {devices}",
                    name=plain(query.model, 40),
                    devices=present,
                )
            )
    if query.text == "cpu":
        found = [state for state in found if state.device.kind == "cpu"]
        if not found:
            raise NotFound(
                phrase("the CPU is not among the devices, which are: {devices}", devices=present)
            )
    if query.devices:
        found = [s for s in found if s.device.kind != "cpu" and s.device.index in query.devices]
        missing = sorted(set(query.devices) - {state.device.index for state in found})
        if not found:
            named = joined(f"GPU {index}" for index in missing)
            raise NotFound(
                phrase(
                    "there is no {gpu} on this machine; it has {devices}",
                    gpu=named,
                    devices=present,
                )
            )
        return found, tuple(Note("no device", (index,)) for index in missing)
    return found, ()


def _of_jobs(daemon: Client, query: Query, states: list[DeviceState]) -> list[DeviceState]:
    """Return the devices that the jobs of a query hold or held; all where they never had any.

    Raises NotFound if a job does not exist.
    """
    found = named_jobs(daemon, query.jobs, several=True)
    held = {one for job in found if not isinstance(job.state, Queued) for one in job.state.devices}
    return [state for state in states if state.device.id in held] or states


def _is_called(words: str, state: DeviceState) -> bool:
    """Return whether the name of a device, its model or its machine has all words."""
    name = f"{state.device.name} {label(state.device)}".casefold()
    return all(word in name for word in words.casefold().split())


def is_free(state: DeviceState) -> bool:
    """Return whether nobody uses the device, also while the assistant still waits for it."""
    return isinstance(state.use, Idle) or isinstance(state.use.cause, _FREE)


def _why_busy(states: Sequence[DeviceState]) -> tuple[Note, ...]:
    return tuple(
        Note("busy", (label(state.device), state.use.reason, isinstance(state.use.cause, Loaded)))
        for state in states
        if isinstance(state.use, Busy) and not is_free(state)
    )


def uncertainty(errors: Sequence[float | None]) -> tuple[Note, ...]:
    """Return a note if values come from hardware counters, with their largest uncertainty."""
    known = [error for error in errors if error]
    return (Note("uncertain", (max(known),)),) if known else ()


def _now(state: DeviceState, measures: Sequence[str], now: float) -> Row:
    pairs = [_value(state, name, now) for name in measures]
    return Row(
        subject(state.device),
        label(state.device),
        tuple(value for value, _ in pairs),
        tuple(why for _, why in pairs),
    )


def _value(state: DeviceState, name: str, now: float) -> tuple[Value, Message]:
    """Return the value of a measure, or None and why there is none."""
    device, reading = state.device, state.reading
    match name:
        case "name":
            return device.name, ""
        case "use":
            return ("idle" if is_free(state) else "busy"), ""
        case "holder":
            return (numbered(state.holders) if state.holders else "nobody"), ""
        case "driver":
            driver = device.facts.get("driver")
            return (driver, "") if driver else (None, "not reported by this device")
        case "uptime":
            booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            return (None, "not reported by this device") if device.host else (booted, "")
    if reading is None:
        return None, "the device has not been read yet"
    if name == "health":
        return _health(state), ""
    if name == "flops_per_watt":
        rate, power = reading.values.get("tflops"), reading.values.get("power")
        if rate is None or not power:
            return None, "not reported by this device"
        return rate * 1e3 / power, ""
    if name in ("throttle", "xid") and name in reading.texts:
        found = reading.texts[name]
        return ("none" if found == "idle" else found), ""  # a GPU without work is not slowed down
    value = reading.get(name)
    return (None, value.reason) if isinstance(value, NA) else (value, "")


def _health(state: DeviceState) -> str:
    """Return the counters that are not zero, or `no errors`; what is not reported is left out."""
    assert state.reading is not None
    fields = SUBJECTS["devices"].measures
    found = [
        f"{fields[name].title} {value:.0f}"
        for name in _HEALTH
        if (value := state.reading.values.get(name))
    ]
    if xid := state.reading.texts.get("xid"):
        found.append(xid)
    known = any(name in state.reading.values for name in _HEALTH)
    return "; ".join(found) or ("no errors" if known else "not reported by this device")


def _over_time(
    daemon: Client,
    query: Query,
    span: Span,
    states: Sequence[DeviceState],
    measures: Sequence[str],
    notes: tuple[Note, ...],
) -> Rows:
    """Return a value over the span for each device and measure, or one at a moment."""
    how = _OVER_TIME.get(query.aggregate, "")
    columns: list[Column] = []
    for name in measures:
        unit = _unit(name)
        if name == "energy" or span.point or how or len(measures) > 1:
            columns.append(Column(name, unit))
        else:
            columns += [Column(f"{name}.{each}", unit) for each in ("mean", "max", "min")]
    if query.when:
        columns.append(Column("at", "moment"))
    rows: list[Row] = []
    errors: list[float | None] = []
    for state in states:
        values: list[Value] = []
        for name in measures:
            fields = ENERGY_FIELDS if name == "energy" else (name,)
            window = (span.since - _NEAR_S, span.since + _NEAR_S) if span.point else (
                span.since, span.until)  # fmt: skip
            history = daemon.history(state.device.id, with_uncertainty(fields), *window, POINTS)
            errors.append(largest_error(history, name))
            values += _summary(state, history, name, span, how, query)
        missing = tuple("" if value is not None else "no data" for value in values)
        rows.append(Row(subject(state.device), label(state.device), tuple(values), missing))
    read_from = (
        phrase("{source} readings, history", source=source_name(states[0].device))
        if states
        else _source(states)
    )
    notes = (*notes, *uncertainty(errors))
    return Rows("devices", tuple(columns), tuple(rows), read_from, span.until, span, notes=notes)


def _summary(
    state: DeviceState, history: Columns, name: str, span: Span, how: str, query: Query
) -> list[Value]:
    if name == "energy":
        return [energy_facts(state.device, history, span.until)[0].value]
    column = history.columns.get(name, [])
    known = [(at, v) for at, v in zip(history.times, column, strict=False) if finite(v)]
    if span.point:
        near = min(known, key=lambda pair: abs(pair[0] - span.since), default=None)
        return [None if near is None or near[1] is None else near[1]]
    several = not query.measure or query.aggregate
    if not known:
        return [None] * ((1 if several else 3) + query.when)
    means = [value for _, value in known if value is not None]
    high = history.high.get(name) or column
    low = history.low.get(name) or column
    top = max((i for i, v in enumerate(high) if finite(v)), key=lambda i: high[i] or 0.0)
    bottom = min((i for i, v in enumerate(low) if finite(v)), key=lambda i: low[i] or 0.0)
    found: dict[str, Value] = {
        "mean": math.fsum(means) / len(means),
        "max": high[top],
        "min": low[bottom],
    }
    at = history.times[bottom if how == "min" else top]
    values = [found[how or "mean"]] if several else [found[each] for each in ("mean", "max", "min")]
    return [*values, at] if query.when else values


def _unit(name: str) -> str:
    return SUBJECTS["devices"].measures[name].unit


def _source(states: Sequence[DeviceState]) -> Text:
    return source(states[0].device) if states else phrase("daemon")
