"""Read what a report is made of from the daemon, at one moment, so that all parts agree."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from gpudeck.assistant.facts import FIELDS_SPAN, NOW_S, Fact, gather, phrases, usage
from gpudeck.assistant.query.execute import read_snapshot
from gpudeck.assistant.query.readings import begun_late
from gpudeck.assistant.reports.report import Kind
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.failures import Failure, recognized
from gpudeck.scheduler.protocol.fields import with_uncertainty
from gpudeck.scheduler.protocol.jobs import Ended, Event, Failed, Job, Lost, Queued
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.protocol.snapshot import Alert, Columns, Snapshot, full_label
from gpudeck.scheduler.telemetry.history_table import LAST, TIERS

POINTS = 240
"""Buckets of a chart, about as many as its width can show. Equal widths make their mean one over
time.
"""
LOG_BYTES = 8 * 1024
"""Bytes of the end of a job's log."""
MOST_JOBS = 500
MOST_ALERTS = 200
MOST_FAILURES = 5
"""Failed jobs whose logs are quoted."""
_FIELDS = with_uncertainty(tuple(dict.fromkeys((*FIELDS_SPAN, *usage.ENERGY_FIELDS))))


@dataclass(frozen=True)
class Material:
    """Hold what the daemon reported."""

    kind: Kind
    since: float
    until: float
    snapshot: Snapshot
    """The snapshot, with only the devices that the report is about."""
    jobs: tuple[Job, ...]
    """Newest first."""
    histories: dict[str, Columns]
    """By device id."""
    alerts: tuple[Alert, ...] = ()
    """Newest first."""
    events: tuple[Event, ...] = ()
    """The timeline, of one job only."""
    log: bytes = b""
    """The end of the output, of one job only."""
    facts: tuple[Fact, ...] = ()
    """The facts that the prose is written from."""
    failures: tuple[tuple[int, Failure], ...] = ()
    """What the logs of failed jobs show, the newest first."""
    begun: float | None = None
    """When the readings begin, where they do not cover the beginning of the time."""


def of_job(daemon: Client, number: int) -> Material:
    """Read one job, and the devices it ran on meanwhile. Raises NotFound."""
    job, snapshot = daemon.job(number), read_snapshot(daemon)
    state = job.state
    since = job.started or job.submitted
    until = state.at if isinstance(state, Ended) else snapshot.time
    ran_on = () if isinstance(state, Queued) else state.devices
    devices = tuple(s for s in snapshot.devices if not ran_on or s.device.id in ran_on)
    snapshot = msgspec.structs.replace(snapshot, devices=devices)
    alerts = tuple(
        alert
        for alert in _alerts(daemon, since, until)
        if alert.job == number or alert.device in ran_on
    )
    found = Material(
        "job",
        since,
        until,
        snapshot,
        (job,),
        {},
        alerts,
        daemon.timeline(number),
        daemon.log(number, -LOG_BYTES, LOG_BYTES),
        failures=_failures(daemon, (job,)),
    )
    return _with_histories(daemon, found)


def of_span(
    daemon: Client, since: float, kind: Kind = "span", until: float | None = None
) -> Material:
    """Read everything that waited, ran or ended between two times, as long as readings are kept.

    Args:
        daemon: A client of the daemon.
        since, until: Seconds since the epoch; None for now.
        kind: The kind of the report.
    """
    snapshot = read_snapshot(daemon)
    until = snapshot.time if until is None or until > snapshot.time - NOW_S else until
    since = min(max(since, until - TIERS[LAST].keep), until)
    jobs, _ = daemon.find(Search(since=since, until=until), MOST_JOBS)
    alerts, failures = _alerts(daemon, since, until), _failures(daemon, jobs)
    begun = None
    if snapshot.devices:
        begun = begun_late(daemon, snapshot.devices[0].device.id, "util", since, until)
    found = Material(kind, since, until, snapshot, jobs, {}, alerts, failures=failures, begun=begun)
    return _with_histories(daemon, found)


def extra_facts(material: Material) -> tuple[Fact, ...]:
    """Return the facts of the tables that the prose does not need."""
    now, names = (
        material.snapshot.time,
        {s.device.id: full_label(s.device) for s in material.snapshot.devices},
    )
    totals = {
        s.device.id: s.reading.values["mem_total"]
        for s in material.snapshot.devices
        if s.reading and "mem_total" in s.reading.values
    }
    found: list[Fact] = []
    for job in material.jobs:
        found += [
            *usage.when_facts(job, now),
            *usage.used_facts(job, now),
            *usage.share_facts(job, totals, now),
        ]
    if material.kind == "job":
        found += usage.timeline_facts(material.jobs[0].id, material.events, now)
    for state in material.snapshot.devices:
        found += usage.energy_facts(state.device, material.histories.get(state.device.id), now)
    if len(material.snapshot.devices) > 1:
        found += usage.total_facts((*material.facts, *found), now)
    return (*found, *usage.alert_facts(material.alerts, names, now))


def _failures(daemon: Client, jobs: tuple[Job, ...]) -> tuple[tuple[int, Failure], ...]:
    """Return what the logs of the newest failed jobs show."""
    found = []
    for job in [job for job in jobs if isinstance(job.state, Failed | Lost)][:MOST_FAILURES]:
        log = daemon.log(job.id, -LOG_BYTES, LOG_BYTES)
        if (failure := recognized(phrases.log_lines(log))) is not None:
            found.append((job.id, failure))
    return tuple(found)


def _alerts(daemon: Client, since: float, until: float) -> tuple[Alert, ...]:
    """Return the alerts that were raised or lasted between the two times."""
    return tuple(
        a
        for a in daemon.alerts(MOST_ALERTS)
        if a.raised <= until and (a.cleared is None or a.cleared >= since)
    )


def _with_histories(daemon: Client, found: Material) -> Material:
    """Return the material with the devices' history and the facts."""
    devices = found.snapshot.devices
    histories = {
        s.device.id: daemon.history(s.device.id, _FIELDS, found.since, found.until, POINTS)
        for s in devices
    }
    facts = gather(found.snapshot, found.jobs, histories, found.since, found.until)
    return replace(found, histories=histories, facts=facts)
