"""Add up rows of jobs by what they have in common, and values of devices by days or by hours."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise

import msgspec

from gpudeck.assistant.query.readings import KEPT_S
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.query.rows import Column, Note, Row, Rows, Value
from gpudeck.assistant.query.shape import combined, finite, shaped
from gpudeck.assistant.query.table import SUBJECTS
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.energy import POWER_FIELDS, watts
from gpudeck.scheduler.protocol.snapshot import DeviceState

HELPERS = {"user": "user", "name": "name", "group": "group", "day": "submitted",
           "hour": "submitted"}  # fmt: skip
"""The measures of jobs by which they are grouped."""
_MEANS = frozenset({"waited", "util", "tflops", "loss", "progress", "estimate"})
"""Measures of jobs of which a sum says nothing."""
PAST_S = {"day": 14 * 86400.0, "hour": 7 * 86400.0}
"""The seconds of readings that are added up where no time is asked for."""
_HOUR_S = 3600.0
_POINT_S = 300.0
"""Seconds between two values of the history that are looked at, at most."""
_ONE_BY_ONE_S = 2 * 86400.0
"""In a longer time, hours are those of the day."""


def grouped(query: Query, found: Rows) -> Rows:
    """Return a row for each group of rows, the count of their jobs or one value of their first
    column."""
    values: defaultdict[str, list[Value]] = defaultdict(list)
    for row in found.rows:
        values[_group_of(query.by, row)].append(row.values[0] if query.measure else 1)
    how = "mean" if query.measure in _MEANS or query.aggregate == "mean" else "sum"
    how = "max" if query.measure == "memory" else how
    rows = tuple(
        Row(f"{query.by} {name}", name, (combined(how, each),)) for name, each in values.items()
    )
    columns = found.columns[:1] if query.measure else (Column("Jobs"),)
    found = msgspec.structs.replace(found, columns=columns, rows=rows)
    ranks = "" if query.aggregate in ("mean", "count") else query.aggregate
    made = shaped(msgspec.structs.replace(query, aggregate=ranks), found)
    total = combined("sum", [row.values[0] for row in rows]) if how == "sum" else None
    return made if made.total is not None else msgspec.structs.replace(made, total=total)


def _group_of(by: str, row: Row) -> str:
    helper = row.values[-1]
    if by in ("day", "hour") and isinstance(helper, int | float):
        return _bucket(by, helper, helper if by == "hour" else 0.0)
    return str(helper or "–")


def by_time(
    daemon: Client,
    query: Query,
    span: Span,
    states: Sequence[DeviceState],
    notes: tuple[Note, ...],
    now: float,
) -> Rows:
    """Return a row for each day or hour: the energy of all devices, or the mean of their values."""
    name = query.measure if query.measure not in ("", "use") else "util"
    span = Span(max(span.since, now - KEPT_S), span.until)
    begin = datetime.fromtimestamp(span.since).replace(minute=0, second=0, microsecond=0)
    since, until = begin.timestamp(), max(span.until, begin.timestamp() + _HOUR_S)
    points = math.ceil((until - since) / _POINT_S)
    asked = Span(span.since, min(span.until, now))
    long = until - since if query.by == "hour" else 0.0
    found: defaultdict[str, list[float]] = defaultdict(list)
    days: defaultdict[str, set[str]] = defaultdict(set)
    for state in states:
        fields = POWER_FIELDS if name == "energy" else (name,)
        history = daemon.history(state.device.id, fields, since, until, points)
        peaks = query.aggregate == "max" and not query.extreme
        column = (
            watts(history)
            if name == "energy"
            else (history.high if peaks else history.columns).get(name, [])
        )
        read = zip(history.times, column, strict=False)
        for at, value in _joules(read, asked) if name == "energy" else read:
            if value is not None and finite(value):
                bucket = _bucket(query.by, at, long)
                found[bucket].append(value)
                days[bucket].add(_bucket("day", at, 0.0))
    how = "sum" if name == "energy" else "max" if query.aggregate == "max" else "mean"
    how = "mean" if query.extreme and how == "max" else how
    rows = []
    for bucket, values in sorted(found.items()):
        told = combined(how, values)
        if how == "sum" and isinstance(told, int | float):
            told /= len(days[bucket]) if query.by == "hour" else 1
        rows.append(Row(f"{query.by} {bucket}", bucket, (told,)))
    columns = (Column(name, SUBJECTS["devices"].measures[name].unit),)
    made = Rows("devices", columns, tuple(rows), phrase("the history of readings"), until,
                Span(since, until), notes=notes)  # fmt: skip
    return shaped(query, made) if query.extreme or query.limit or query.order else made


def _joules(
    powers: Iterable[tuple[float, float | None]], span: Span
) -> Iterator[tuple[float, float]]:
    """Yield the energy between each two readings of the power within a span, hour by hour, with the
    time of its beginning. A gap counts as nothing.
    """
    for (since, first), (until, last) in pairwise(powers):
        if first is None or last is None or not finite(first + last):
            continue
        at, end = max(since, span.since), min(until, span.until)
        while at < end:
            whole = datetime.fromtimestamp(at).replace(minute=0, second=0, microsecond=0)
            stop = min(end, whole.timestamp() + _HOUR_S)
            yield at, (first + last) / 2 * (stop - at)
            at = stop


def _bucket(by: str, at: float, long: float) -> str:
    """Return the day of a moment, or its hour: that of the day where a long time is told."""
    local = datetime.fromtimestamp(at)
    if by == "day":
        return f"{local:%Y-%m-%d}"
    return f"{local:%H:00}" if long > _ONE_BY_ONE_S else f"{local:%Y-%m-%d %H:00}"
