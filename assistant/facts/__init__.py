"""Compute every number that a text may mention, each with its unit, source and time.

These are pure functions of what the daemon reports. "No data" is a fact as well. A fact's name is
`subject.what`; subjects are `gpu0`, `cpu`, `replay0`, `job7`, `jobs`, `span` and `deck`. Text from
jobs and processes is foreign: it is stored plain and rendered escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.facts.devices import (
    FIELDS_SPAN,
    device_facts,
    history_facts,
    identity_facts,
)
from gpudeck.assistant.facts.fact import Fact, FactBuilder, named
from gpudeck.assistant.facts.jobs import count_facts, during, job_facts, without_progress
from gpudeck.language.numbers import duration
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import jobs as j
from gpudeck.scheduler.protocol.snapshot import Columns, Snapshot, full_label

__all__ = [
    "FIELDS_SPAN",
    "NOW_S",
    "Fact",
    "during",
    "gather",
    "history_facts",
    "job_facts",
    "named",
]


NOW_S = 10.0
"""Seconds within which the end of a span counts as now."""


def gather(
    snapshot: Snapshot,
    jobs: Sequence[j.Job],
    histories: Mapping[str, Columns],
    since: float,
    until: float,
) -> tuple[Fact, ...]:
    """Return all facts about a snapshot, jobs, and each device's history between two times.

    If the span ended before the snapshot, nothing that was read at the time of the snapshot is
    included: of devices only their names, of jobs that have not ended only their state.

    Args:
        snapshot: The state of the machine.
        jobs: The jobs to describe.
        histories: The histories by device id.
        since, until: The ends of the span, seconds since the epoch.
    """
    present = until >= snapshot.time - NOW_S
    facts = [*_deck(snapshot, present), *_span(since, until)]
    for state in snapshot.devices:
        facts += (device_facts if present else identity_facts)(state, snapshot.time)
        facts += history_facts(state.device, histories.get(state.device.id), until)
    facts += count_facts(jobs, snapshot.time)
    names = {state.device.id: full_label(state.device) for state in snapshot.devices}
    for job in jobs:
        found = job_facts(job, snapshot.time, names)
        facts += found if present or not job.active else without_progress(found)
    return tuple(facts)


def _deck(snapshot: Snapshot, present: bool) -> list[Fact]:
    """Return the source of the readings and, of the present, a paused queue and notices."""
    add = FactBuilder("deck", "", phrase("daemon"), snapshot.time)
    if not snapshot.devices:
        add.absent("devices", "Devices", phrase("no device has been read yet"))
    source = snapshot.source
    add.text("source", "Readings come from", source.upper() if isinstance(source, str) else source)
    if not present:
        return add.facts
    if snapshot.paused:
        add.text("paused", "Queue", phrase("paused, nothing new starts"))
    for i, notice in enumerate(snapshot.notices):
        add.text(f"notice{i}", "Notice", notice)
    return add.facts


def _span(since: float, until: float) -> list[Fact]:
    """Return the span of time that is reported on."""
    add = FactBuilder("span", "", phrase("daemon"), until)
    add.value("when", "Time", since, "s", phrases.stretch(since, until))
    add.value("length", "Length", until - since, "s", duration(until - since))
    return add.facts
