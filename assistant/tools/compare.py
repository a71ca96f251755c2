"""Tool that compares two jobs, a job with its earlier run, or two devices."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from assistant.facts import Fact, phrases
from assistant.facts import named as by_name
from assistant.facts.devices import FIELDS_SPAN, device_facts, history_facts, label, subject
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.intents.period import Period
from assistant.intents.tool_call import ToolCall
from assistant.reports.material import read_snapshot
from assistant.tools.devices import POINTS, RECENT_S, source_facts, span_facts
from assistant.tools.jobs import facts_of
from assistant.tools.lookup import find_job, named_devices
from assistant.tools.tool import ToolContext, ToolResult, Tools, names_with_values, text_result
from assistant.writing.template import devices
from assistant.writing.template import jobs as words
from assistant.writing.template.sentences import sentence, table
from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.fields import with_uncertainty
from scheduler.protocol.jobs import Job
from scheduler.protocol.search import ENDED, Search

_JOB_ROWS = {
    "state": "State",
    "duration": "Took",
    "waited": "Waited",
    "tflops": "Rate",
    "median": "Median of one call",
    "p95": "P95 of one call",
    "bandwidth": "Memory bandwidth",
    "backend": "Backend",
    "verdict": "Verdict",
    "used.energy": "Energy",
    "used.memory": "Peak memory on a device",
    "used.util": "Avg utilisation",
}
_DEVICE_ROWS = {
    f"{field}{suffix}": f"{title}, {when}"
    for field, title in devices.METRICS.items()
    for when, suffix in devices.WHEN.items()
}
_SAME = 0.005
"""The share below which two values count as about the same."""


class Pair(NamedTuple):
    """Name the two subjects of a comparison and the quantities to compare."""

    first: str
    second: str
    second_label: str
    """What differences call the second one, such as `job 3`."""
    rows: Mapping[str, str]
    """Titles of the quantities by the ends of their facts' names."""


def compare(context: ToolContext, call: ToolCall) -> ToolResult:
    """Compare two jobs or two GPUs. Raises NotFound, and UserError if one of the two is missing."""
    daemon = context.daemon
    if call.integer("gpu") is not None:
        return _compare_devices(daemon, call)
    named, other = call.job(), call.job("other")
    if named is None:
        raise UserError("name two jobs or two GPUs to compare, by their numbers")
    one = find_job(daemon, named)
    before = find_job(daemon, other) if other is not None else _earlier_run(daemon, one)
    if before is None:
        name = phrases.escaped(one.spec.name, 60)
        return text_result(
            f"Job {one.id} ({name}) is the first of its name: there is no earlier run to compare."
        )
    if before.id == one.id:
        raise UserError(f"both are job {one.id}: name two jobs")
    pair = Pair(f"job{one.id}", f"job{before.id}", f"job {before.id}", _JOB_ROWS)
    facts = [*facts_of(daemon, one), *facts_of(daemon, before)]
    facts += difference_facts(facts, pair, "computed from the facts of both jobs", time.time())

    def render(index: FactIndex) -> list[str]:
        names = [words.called(index, job) for job in (pair.first, pair.second)]
        titles = (words.title(pair.first), words.title(pair.second))
        return [sentence(names[0], " beside ", names[1]), _table(index, pair, titles)]

    states = names_with_values(facts, f"{pair.first}.state", f"{pair.second}.state")
    return ToolResult(tuple(facts), render, (*states, *_difference_names(facts)))


def _compare_devices(daemon: Client, call: ToolCall) -> ToolResult:
    snapshot = read_snapshot(daemon)
    one, other = call.integer("gpu"), call.integer("other")
    if other is None or one == other:
        raise UserError("name two GPUs to compare")
    found = [state for index in (one, other) for state in named_devices(snapshot, index)]
    if len(found) != 2:
        raise NotFound(
            f"this machine does not have both GPU {one} and GPU {other}. See: gpudeck status"
        )
    past = Period(snapshot.time - RECENT_S, snapshot.time)
    facts = [*source_facts(snapshot), *span_facts(past)]
    for state in found:
        asked = with_uncertainty(FIELDS_SPAN)
        columns = daemon.history(state.device.id, asked, past.since, past.until, POINTS)
        facts += device_facts(state, snapshot.time)
        facts += history_facts(state.device, columns, past.until)
    first, second = (subject(state.device) for state in found)
    pair = Pair(first, second, label(found[1].device), _DEVICE_ROWS)
    source = "computed from the readings of both devices"
    facts += difference_facts(facts, pair, source, snapshot.time)

    def render(index: FactIndex) -> list[str]:
        names = (devices.called(index, first), devices.called(index, second))
        uses = [
            sentence(f"**{name}** ", devices.use(index, device))
            for device, name in zip((first, second), names, strict=True)
        ]
        return [*uses, _table(index, pair, names)]

    return ToolResult(tuple(facts), render, _difference_names(facts))


def _earlier_run(daemon: Client, job: Job) -> Job | None:
    """Return the newest job before it that has its name and has ended."""
    before: int | None = job.id
    while before is not None:
        found, before = daemon.find(Search(text=job.spec.name, outcomes=ENDED), 50, before)
        for other in found:
            if other.spec.name == job.spec.name:
                return daemon.job(other.id)
    return None


def difference_facts(facts: Sequence[Fact], pair: Pair, source: str, now: float) -> list[Fact]:
    """Return, for each quantity that both have, how much more the first one is than the second."""
    known = by_name(facts)
    add = FactBuilder("difference", "Difference of", source, now)
    for what, title in pair.rows.items():
        one, other = known.get(f"{pair.first}.{what}"), known.get(f"{pair.second}.{what}")
        if one is None or other is None:
            continue
        if not isinstance(one.value, int | float) or not isinstance(other.value, int | float):
            continue
        first, second = phrases.as_said(one.value, one.unit), phrases.as_said(other.value, one.unit)
        words: str | None = "the same"
        if one.said != other.said:
            words = _difference(first, second, one.unit, pair.second_label)
        if words is not None:
            add.value(what, title.lower(), first - second, one.unit, words)
    return add.facts


def _difference_names(facts: Sequence[Fact]) -> tuple[str, ...]:
    """Return the names of the differences: an answer without them compares nothing."""
    return tuple(fact.name for fact in facts if fact.subject == "difference")


def _difference(one: float, other: float, unit: str, than: str) -> str | None:
    """Return for example `38 °C more than job 3` or `2.43 times as much as job 3`.

    Returns None if there is no ratio.
    """
    more = f"{'more' if one > other else 'less'} than {than}"
    if unit in ("°C", "%"):  # no ratio: 0 °C is a convention, and a percentage is a ratio itself
        points = "percentage points" if unit == "%" else unit
        return f"{abs(one - other):.0f} {points} {more}"
    if other == 0:
        return None
    share = (one - other) / abs(other)
    if abs(share) < _SAME:
        return "about the same"
    if share >= 1:
        return f"{phrases.significant(1 + share)} times as much as {than}"
    return f"{phrases.quantity(100 * abs(share), '%')} {more}"


def _table(index: FactIndex, pair: Pair, titles: tuple[str, str]) -> str:
    """Return a table of what at least one of them has, with N/A where the other lacks it."""
    rows = []
    for what, title in pair.rows.items():
        values = [index.text(f"{subject}.{what}") for subject in (pair.first, pair.second)]
        if any(values):
            difference = index.text(f"difference.{what}") or ""
            rows.append((title, *(value or "N/A" for value in values), difference))
    return table(("", *titles, "Difference"), rows)


TOOLS: Tools = {("answer", "compare"): compare}
