"""Answer queries about processes, alerts, the queue, bookings and settings."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from gpudeck.assistant.facts.fact import QUEUE
from gpudeck.assistant.facts.phrases import plain
from gpudeck.assistant.query.find import MAX_JOBS
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Column, Note, Row, Rows, Value
from gpudeck.assistant.query.shape import shaped
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.jobs import Queued
from gpudeck.scheduler.protocol.snapshot import Snapshot, label
from gpudeck.scheduler.protocol.user_limits import EVERYBODY

_SETTINGS = phrase("settings")
_MAX_ALERTS = 100
_TOLD_BOOKINGS = 3
"""The most bookings that are told where none is as the query says."""


def processes(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return a row for each process on the devices that the query names."""
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    chosen = {
        state.device.id
        for state in snapshot.devices
        if not query.devices or state.device.index in query.devices
    }
    if query.devices and not chosen:
        raise NotFound(phrase("there is no GPU {number} on this machine", number=query.devices[0]))
    measures = [query.measure, "user"] if query.measure not in ("", "user") else ["memory", "user"]
    found: list[Row] = []
    for detail in daemon.details():
        for process in detail.processes:
            if detail.device not in chosen or query.user not in ("", process.user):
                continue
            if query.text and not _is_called(query.text, process):
                continue
            values: dict[str, Value] = {
                "memory": process.memory,
                "util": process.sm,
                "user": process.user or None,
                "job": process.job,
            }
            name = plain(process.name.rpartition("/")[2] or process.name, 60)
            where = labels.get(detail.device, detail.device)
            found.append(
                Row(
                    f"process{process.pid}",
                    f"{name} (PID {process.pid}, {where})",
                    tuple(values[measure] for measure in measures),
                )
            )
    units = {"memory": "B", "util": "%"}
    columns = tuple(Column(measure, units.get(measure, "")) for measure in measures)
    notes = (Note("unseen", ()),) if snapshot.is_recorded and not found else ()
    source = phrase("NVML processes")
    rows = Rows("processes", columns, tuple(found), source, snapshot.time, notes=notes)
    if query.by == "user":
        rows = _by_user(rows)
    return shaped(query, rows)


def _is_called(text: str, process: Process) -> bool:
    """Return whether a text is the number of a process, or a part of its name."""
    return text == str(process.pid) or (
        not text.isdecimal() and text.casefold() in process.name.casefold()
    )


def _by_user(rows: Rows) -> Rows:
    sums: defaultdict[str, float] = defaultdict(float)
    for row in rows.rows:
        if isinstance(row.values[0], int | float):
            sums[str(row.values[1] or "?")] += row.values[0]
    return msgspec.structs.replace(
        rows,
        columns=rows.columns[:1],
        rows=tuple(Row(f"user {name}", name, (value,)) for name, value in sums.items()),
    )


def alerts(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return the alerts that last, or those of a time, newest first, or the rules of alerts."""
    if query.measure == "rules":
        return _rules(snapshot)
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    indices = {state.device.id: state.device.index for state in snapshot.devices}
    found = [
        alert
        for alert in daemon.alerts(_MAX_ALERTS)
        if (
            alert.cleared is None
            if query.time is None
            else alert.raised <= query.time.until
            and (alert.cleared is None or alert.cleared >= query.time.since)
        )
        and (not query.devices or indices.get(alert.device) in query.devices)
        and (not query.jobs or alert.job in query.jobs)
    ]
    rows = tuple(
        Row(
            f"alert{alert.id}",
            f"alert {alert.id}"
            + (f", {labels[alert.device]}" if alert.device in labels else "")
            + (f", job {alert.job}" if alert.job is not None else ""),
            (alert.text, alert.raised),
        )
        for alert in found
    )
    columns = (Column("text"), Column("raised", "moment"))
    span = query.time
    source = phrase("the daemon's alerts")
    return shaped(query, Rows("alerts", columns, rows, source, snapshot.time, span))


def _rules(snapshot: Snapshot) -> Rows:
    """Return the settings that say from where on alerts are raised."""
    values = msgspec.structs.asdict(snapshot.settings)
    rows = tuple(
        Row(f"setting {name}", name, (str(value),))
        for name, value in values.items()
        if name.startswith("alert_")
    )
    return Rows("alerts", (Column("rules"),), rows, _SETTINGS, snapshot.time)


def queue(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return how many jobs wait and run, in the queue and in each group."""
    active = daemon.jobs(MAX_JOBS, active=True)
    queued = sum(isinstance(job.state, Queued) for job in active)
    held = sum(isinstance(job.state, Queued) and job.spec.hold for job in active)
    rows = [
        Row(
            "queue",
            "queue",
            (
                max(queued, snapshot.waiting),
                len(active) - queued,
                "paused" if snapshot.paused else "open",
            ),
        )
    ]
    groups = daemon.groups()
    if query.group:
        if query.group not in {state.group.name for state in groups}:
            raise NotFound(
                phrase(
                    "there is no group {group}. See: {command}",
                    group=plain(query.group, 40),
                    command="gpudeck groups",
                )
            )
        rows = []
    rows += [
        Row(
            f"group {state.group.name}",
            f"group {plain(state.group.name, 60)}",
            (state.waiting, state.running, "paused" if state.group.paused else "open"),
        )
        for state in groups
        if query.group in ("", state.group.name)
    ]
    columns = (Column("waiting"), Column("running"), Column("state"))
    notes = [Note("held", (held,))] if held and not query.group else []
    notes += [Note("obstacle", ("queue paused", ""))] if snapshot.paused else []
    notes += [
        Note("obstacle", ("group paused", state.group.name))
        for state in groups
        if state.group.paused and query.group in ("", state.group.name)
    ]
    return Rows("queue", columns, tuple(rows), QUEUE, snapshot.time, notes=tuple(notes))


def limits(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return how much users may use: all limits that are set, or those of one user."""
    known = snapshot.settings.limits
    if query.user:
        found = known.get(query.user) or known.get(EVERYBODY)
        known = {query.user: found} if found is not None else {}
    rows = tuple(
        Row(f"user {name}", plain(name, 40),
            (one.gpus or "any", one.gpu_hours or "any"))
        for name, one in sorted(known.items())
    )  # fmt: skip
    columns = (Column("gpus"), Column("hours", "h"))
    return Rows("limits", columns, rows, _SETTINGS, snapshot.time)


def bookings(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return the bookings that are not over, in order of their begin."""
    indices = {state.device.id: state.device.index for state in snapshot.devices}
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    known = sorted(snapshot.settings.reservations.items(), key=lambda item: item[1].begin)
    known = [(number, booking) for number, booking in known if booking.end > snapshot.time]
    told = {
        number: (
            ", ".join(labels.get(gpu, gpu) for gpu in booking.gpus),
            (booking.holder, booking.begin, booking.end),
        )
        for number, booking in known
    }
    rows = tuple(
        Row(f"booking{number}", *told[number])
        for number, booking in known
        if (not query.devices or {indices.get(gpu) for gpu in booking.gpus} & {*query.devices})
        and (query.time is None or booking.begin <= query.time.until)
        and (query.time is None or booking.end >= query.time.since)
        and query.user.casefold() in str(booking.holder).casefold()
    )
    columns = (Column("holder"), Column("begin", "moment"), Column("end", "moment"))
    others = () if rows else list(told.values())[:_TOLD_BOOKINGS]
    notes = tuple(Note("other booking", (gpus, *values)) for gpus, values in others)
    return Rows("bookings", columns, rows, _SETTINGS, snapshot.time, query.time, notes=notes)


def machines(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return the other machines that are watched, with the number of their devices."""
    rows = tuple(
        Row(f"machine {host.name}", plain(host.name, 60), (
            host.problem if host.problem is not None else "connected",
            len(host.devices),
        ))
        for host in snapshot.hosts
    )  # fmt: skip
    columns = (Column("state"), Column("devices"))
    notes = () if rows else (Note("none", ("hosts",)),)
    return Rows("machines", columns, rows, phrase("hosts"), snapshot.time, notes=notes)


def settings(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return settings with their values: the one that is named, or all that differ from defaults.

    Secrets are left out: the web hook's URL may hold one.
    """
    values = msgspec.structs.asdict(snapshot.settings)
    values["webhook"] = "set" if values["webhook"] else ""
    if query.text and query.text not in values:
        raise NotFound(
            phrase(
                "no setting is called {name}. See: gpudeck query settings",
                name=plain(query.text, 40),
            )
        )
    names = [query.text] if query.text else sorted(values)
    rows = tuple(
        Row(f"setting {name}", name, (str(values[name]) if values[name] != "" else "not set",))
        for name in names
    )
    return Rows("settings", (Column("value"),), rows, _SETTINGS, snapshot.time)
