"""Tools about devices: their state now, a metric over time, and alerts."""

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
from assistant.tools.lookup import named_devices
from assistant.tools.tool import ToolContext, ToolResult, Tools, names_with_values
from assistant.writing.template import devices
from assistant.writing.template.answer import of_device
from assistant.writing.template.sentences import given, listed, sentence, table
from scheduler.client import Client
from scheduler.protocol.fields import with_uncertainty
from scheduler.protocol.snapshot import DeviceState, Snapshot

RECENT_S = 600.0
"""The span of an answer if the request names no time: as long as the daemon keeps every reading."""
POINTS = 500
"""Buckets of a history. Each has its lowest, mean and highest value, so no peak is lost."""
_MAX_ALERTS = 10
_STATS = {"mean": "mean", "max": "highest", "min": "lowest"}
_LIMITS = {"mem_total", "mem_free", "power_limit"}
"""Fields without a history."""
_FIELDS = {"temp", "power", "mem_used", "util", "tflops", "clock_sm", "fan"} | _LIMITS


def device(context: ToolContext, call: ToolCall) -> ToolResult:
    """Answer with a metric now and over the last ten minutes, or with the most important ones."""
    snapshot, metric = read_snapshot(context.daemon), call.text("metric")
    found, now = named_devices(snapshot, call.integer("gpu")), snapshot.time
    past = Period(now - RECENT_S, now)
    topic = "use" if metric == "processes" else metric
    fields = list(FIELDS_SPAN)
    if topic:
        fields = [field for field in TOPICS[topic][1] if field in _FIELDS]
    with_history = [field for field in fields if field not in _LIMITS]
    facts = [*source_facts(snapshot), *span_facts(past)]
    for state in found:
        facts += device_facts(state, now, fields)
        if with_history:
            facts += _history_facts(context.daemon, state, past, with_history)

    def render(index: FactIndex) -> list[str]:
        if not index.devices():
            return [_missing(snapshot, call.integer("gpu"))]
        if not topic:
            return devices.chapter(index)
        return [of_device(index, subject(state.device), topic) for state in found]

    required = TOPICS[topic][1][:1] if topic else fields[:1]
    if topic == "memory":
        required = ("mem_used", "mem_free")
    names = (f"{subject(state.device)}.{field}" for state in found for field in required)
    return ToolResult(tuple(facts), render, names_with_values(facts, *names))


def history(context: ToolContext, call: ToolCall) -> ToolResult:
    """Answer with the mean, highest and lowest of a metric, and how much of the time was read."""
    snapshot, field = read_snapshot(context.daemon), TOPICS[call.text("metric") or "temp"][1][0]
    past = period(call, snapshot.time) or Period(snapshot.time - RECENT_S, snapshot.time)
    found = named_devices(snapshot, call.integer("gpu"))
    facts = [*source_facts(snapshot), *span_facts(past)]
    for state in found:
        facts += device_facts(state, snapshot.time, ())
        facts += _history_facts(context.daemon, state, past, (field,), lowest=True)
    stats = [call.text("stat")] if call.text("stat") else list(_STATS)

    def render(index: FactIndex) -> list[str]:
        if not index.devices():
            return [_missing(snapshot, call.integer("gpu"))]
        return [_history_line(index, subject(state.device), field, stats) for state in found]

    figures = [f"{subject(state.device)}.{field}.{stat}" for state in found for stat in stats]
    return ToolResult(tuple(facts), render, names_with_values(facts, "span.when", *figures))


def alerts(context: ToolContext, call: ToolCall) -> ToolResult:
    """Answer with the alerts of now, and the newest of the past."""
    snapshot = read_snapshot(context.daemon)
    names = {state.device.id: label(state.device) for state in snapshot.devices}
    found = context.daemon.alerts(_MAX_ALERTS)

    def row(index: FactIndex, alert: int) -> list[str]:
        columns = ("about", "text", "raised", "cleared")
        return [index.text(f"alert{alert}.{column}") or "N/A" for column in columns]

    def render(index: FactIndex) -> list[str]:
        rows = [row(index, alert.id) for alert in found]
        shown = table(("What", "Alert", "Raised", "Cleared"), rows)
        return [shown or "There are no alerts, now or in the past."]

    facts = alert_facts(found, names, snapshot.time)
    return ToolResult(tuple(facts), render, verbatim=True)


def span_facts(past: Period) -> list[Fact]:
    """Return the facts about the span of time that an answer covers."""
    if past.since <= 0:
        return []
    add, seconds = FactBuilder("span", "", "daemon", past.until), past.until - past.since
    add.value("when", "Time", past.since, "s", phrases.stretch(past.since, past.until))
    add.value("length", "Length", seconds, "s", phrases.duration(seconds))
    return add.facts


def source_facts(snapshot: Snapshot) -> list[Fact]:
    """Return the fact that readings are replayed; none if they are the hardware's."""
    add = FactBuilder("deck", "", "daemon", snapshot.time)
    if snapshot.source.startswith("replay"):
        add.text("source", "Readings come from", f"REPLAY {snapshot.source.partition(' ')[2]}")
    return add.facts


def _history_facts(
    daemon: Client, state: DeviceState, past: Period, fields: Sequence[str], lowest: bool = False
) -> list[Fact]:
    asked = with_uncertainty(fields)
    columns = daemon.history(state.device.id, asked, past.since, past.until, POINTS)
    return history_facts(state.device, columns, past.until, fields, lowest)


def _history_line(index: FactIndex, device: str, field: str, stats: Sequence[str]) -> str:
    fact = index.of(device)
    values = [given(f"{_STATS[stat]} {{}}", fact(f"{field}.{stat}")) for stat in stats]
    missing = index.why_absent(f"{device}.{field}.mean") or "nothing was read"
    figures = ", ".join(filter(None, values)) or f"no data, {missing}"
    when = given(" {}", index.text("span.when"))
    covered = given("; there are readings {}", fact("covered"))
    metric = devices.in_sentence(field)
    return sentence(f"**{devices.called(index, device)}** {metric}{when}: {figures}{covered}")


def _missing(snapshot: Snapshot, gpu: int | None) -> str:
    if gpu is None:
        return "No device has been read yet."
    present = listed([label(state.device) for state in snapshot.devices])
    return sentence(f"there is no GPU {gpu} on this machine", given("; it has {}", present))


TOOLS: Tools = {
    ("answer", "device"): device,
    ("answer", "history"): history,
    ("answer", "alerts"): alerts,
}
