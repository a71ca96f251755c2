"""How the devices are, and how they were: facts of those that are asked about, and of what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.facts import Fact, phrases
from assistant.facts.devices import FIELDS_SPAN, device_facts, history_facts, label, subject
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.facts.selection import TOPICS
from assistant.facts.usage import alert_facts
from assistant.intents.period import Period, period
from assistant.intents.tool_call import ToolCall
from assistant.reports.material import read_snapshot
from assistant.tools.tool import ToolResult, names_with_values
from assistant.writing.template import devices
from assistant.writing.template.answer import of_device
from assistant.writing.template.sentences import given, listed, sentence, table
from scheduler.client import Client
from scheduler.protocol.snapshot import DeviceState, Snapshot

RECENT_S = 600.0
"""What is told of the past where no time is named: as long as the daemon keeps every reading."""
POINTS = 500
"""Buckets of a history: each has its lowest, mean and highest, so that no peak is lost."""
MOST_ALERTS = 10
_STATS = {"mean": "mean", "max": "highest", "min": "lowest"}


def device(daemon: Client, call: ToolCall) -> ToolResult:
    """A metric now, and its mean and highest of the last ten minutes; without one, the most important of them."""
    snapshot, metric = read_snapshot(daemon), call.text("metric")
    found, now = asked(snapshot, call.integer("gpu")), snapshot.time
    past = Period(now - RECENT_S, now)
    topic = "use" if metric == "processes" else metric
    about = (
        [field for field in TOPICS[topic][1] if field in _known()] if topic else list(FIELDS_SPAN)
    )
    facts = [*source_facts(snapshot), *span_facts(past)]
    for state in found:
        facts += device_facts(state, now, about)
        if spanned := [
            field for field in about if field not in ("mem_total", "mem_free", "power_limit")
        ]:
            facts += _past(daemon, state, past, spanned)

    def say(index: FactIndex) -> list[str]:
        if not index.devices():
            return [_missing(snapshot, call.integer("gpu"))]
        if not topic:
            return devices.chapter(index)
        return [of_device(index, subject(state.device), topic) for state in found]

    needed = (
        ["mem_used", "mem_free"]
        if topic == "memory"
        else TOPICS[topic][1][:1]
        if topic
        else about[:1]
    )
    return ToolResult(
        tuple(facts),
        say,
        names_with_values(
            facts, *(f"{subject(state.device)}.{field}" for state in found for field in needed)
        ),
    )


def history(daemon: Client, call: ToolCall) -> ToolResult:
    """A metric over a time: mean, highest and lowest, and how much of the time was read."""
    snapshot, field = read_snapshot(daemon), TOPICS[call.text("metric") or "temp"][1][0]
    past = period(call, snapshot.time) or Period(snapshot.time - RECENT_S, snapshot.time)
    found = asked(snapshot, call.integer("gpu"))
    facts = [*source_facts(snapshot), *span_facts(past)]
    for state in found:
        facts += device_facts(state, snapshot.time, ())
        facts += _past(daemon, state, past, (field,), lowest=True)
    stats = [call.text("stat")] if call.text("stat") else list(_STATS)

    def say(index: FactIndex) -> list[str]:
        if not index.devices():
            return [_missing(snapshot, call.integer("gpu"))]
        return [_over(index, subject(state.device), field, stats) for state in found]

    figures = [f"{subject(state.device)}.{field}.{stat}" for state in found for stat in stats]
    return ToolResult(tuple(facts), say, names_with_values(facts, "span.when", *figures))


def alerts(daemon: Client, call: ToolCall) -> ToolResult:
    """What is the matter now, and the newest of what was."""
    snapshot = read_snapshot(daemon)
    names = {state.device.id: label(state.device) for state in snapshot.devices}
    found = daemon.alerts(MOST_ALERTS)
    facts = alert_facts(found, names, snapshot.time)

    def say(index: FactIndex) -> list[str]:
        told = [
            [
                index.text(f"alert{a.id}.{what}") or "N/A"
                for what in ("about", "text", "raised", "cleared")
            ]
            for a in found
        ]
        return [
            table(("What", "Alert", "Raised", "Cleared"), told)
            or "There is no alert, and there was none."
        ]

    return ToolResult(tuple(facts), say, quotes=True)


def asked(snapshot: Snapshot, gpu: int | None) -> Sequence[DeviceState]:
    """The device with this index, or all."""
    return [
        state
        for state in snapshot.devices
        if gpu is None or (state.device.index == gpu and state.device.kind != "cpu")
    ]


def span_facts(past: Period) -> list[Fact]:
    """The stretch of time that is told about."""
    add = FactBuilder("span", "", "daemon", past.until)
    if past.since <= 0:
        return []
    add.value("when", "Time", past.since, "s", phrases.stretch(past.since, past.until))
    add.value(
        "length", "Length", past.until - past.since, "s", phrases.duration(past.until - past.since)
    )
    return add.facts


def source_facts(snapshot: Snapshot) -> list[Fact]:
    """Where the readings come from, where they are not the hardware's."""
    add = FactBuilder("deck", "", "daemon", snapshot.time)
    if snapshot.source.startswith("replay"):
        add.text("source", "Readings come from", f"REPLAY {snapshot.source.partition(' ')[2]}")
    return add.facts


def _past(
    daemon: Client, state: DeviceState, past: Period, fields: Sequence[str], lowest: bool = False
) -> list[Fact]:
    columns = daemon.history(state.device.id, tuple(fields), past.since, past.until, POINTS)
    return history_facts(state.device, columns, past.until, fields, lowest)


def _over(index: FactIndex, device: str, field: str, stats: Sequence[str]) -> str:
    fact = index.of(device)
    values = [given(f"{_STATS[stat]} {{}}", fact(f"{field}.{stat}")) for stat in stats]
    told = (
        ", ".join(filter(None, values))
        or f"no data, {index.why_absent(f'{device}.{field}.mean') or 'nothing was read'}"
    )
    when, covered = (
        given(" {}", index.text("span.when")),
        given("; there are readings {}", fact("covered")),
    )
    return sentence(
        f"**{devices.called(index, device)}** {devices.in_sentence(field)}{when}: {told}{covered}"
    )


def _known() -> set[str]:
    return {
        "temp",
        "power",
        "power_limit",
        "mem_used",
        "mem_total",
        "mem_free",
        "util",
        "tflops",
        "clock_sm",
        "fan",
    }


def _missing(snapshot: Snapshot, gpu: int | None) -> str:
    there = listed([label(state.device) for state in snapshot.devices])
    return (
        sentence(f"there is no GPU {gpu} here", given("; there is {}", there))
        if gpu is not None
        else "No device has been read yet."
    )
