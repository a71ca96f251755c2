"""Every number that may be said: computed here from what the daemon tells, each with its unit, source and time.

Pure functions on values. "No data" is a fact too. Names are `subject.what`, the subject one of `gpu0`, `cpu`, `replay0`,
`job7`, `jobs`, `span` and `deck`. Text from jobs and processes is foreign: it is stored plain and said escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assistant.facts import phrases
from assistant.facts.devices import FIELDS_SPAN, device_facts, history_facts, label
from assistant.facts.fact import Fact, FactBuilder, named
from assistant.facts.jobs import count_facts, during, job_facts
from scheduler.protocol import jobs as j
from scheduler.protocol.snapshot import Columns, Snapshot

__all__ = ["FIELDS_SPAN", "Fact", "during", "gather", "history_facts", "job_facts", "named"]


def gather(
    snapshot: Snapshot,
    jobs: Sequence[j.Job],
    histories: Mapping[str, Columns],
    since: float,
    until: float,
) -> tuple[Fact, ...]:
    """All facts about a snapshot, `jobs`, and each device's history between two times (by device id)."""
    facts = [*_deck(snapshot), *_span(since, until)]
    for state in snapshot.devices:
        facts += device_facts(state, snapshot.time)
        facts += history_facts(state.device, histories.get(state.device.id), until)
    facts += count_facts(jobs, snapshot.time)
    names = {state.device.id: label(state.device) for state in snapshot.devices}
    for job in jobs:
        facts += job_facts(job, snapshot.time, names)
    return tuple(facts)


def _deck(snapshot: Snapshot) -> list[Fact]:
    """Where the readings come from, whether the queue is paused, what the user should know."""
    add = FactBuilder("deck", "", "daemon", snapshot.time)
    if not snapshot.devices:
        add.absent("devices", "Devices", "no device has been read yet")
    kind, _, file = snapshot.source.partition(" ")
    add.text("source", "Readings come from", f"{kind.upper()} {file}")
    if snapshot.paused:
        add.text("paused", "Queue", "paused, nothing new starts")
    for i, notice in enumerate(snapshot.notices):
        add.text(f"notice{i}", "Notice", notice)
    return add.facts


def _span(since: float, until: float) -> list[Fact]:
    """The stretch of time that is reported on."""
    add = FactBuilder("span", "", "daemon", until)
    add.value("when", "Time", since, "s", phrases.stretch(since, until))
    add.value("length", "Length", until - since, "s", phrases.duration(until - since))
    return add.facts
