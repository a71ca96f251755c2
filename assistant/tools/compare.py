"""Two jobs, a job and its earlier run of the same name, or two devices, side by side; the differences computed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from assistant.facts import Fact, phrases
from assistant.facts import named as by_name
from assistant.facts.devices import FIELDS_SPAN, device_facts, history_facts, label, subject
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.intents.period import Period
from assistant.intents.tool_call import ToolCall
from assistant.reports.material import read_snapshot
from assistant.tools.devices import POINTS, RECENT_S, asked, source_facts, span_facts
from assistant.tools.job_lookup import find_job
from assistant.tools.jobs import facts_of
from assistant.tools.tool import ToolResult, names_with_values, text_result
from assistant.writing.template import devices
from assistant.writing.template import jobs as words
from assistant.writing.template.sentences import sentence, table
from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.jobs import Job
from scheduler.protocol.search import ENDED, Search

_JOB = {
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
    "used.memory": "Most memory on a device",
    "used.util": "Mean utilisation",
}
_DEVICE = {
    f"{field}{suffix}": f"{title}, {when}"
    for field, title in devices.METRICS.items()
    for when, suffix in devices.WHEN.items()
}
_SAME = 0.005
"""Below this share two values are told as about the same."""


def compare(daemon: Client, call: ToolCall) -> ToolResult:
    """Raises NotFound, and UserError where what is to be compared was not said."""
    if call.integer("gpu") is not None:
        return _devices(daemon, call)
    named = call.job()
    if named is None:
        raise UserError("say what to compare: two jobs, or two GPUs, by their numbers")
    one = find_job(daemon, named)
    other = call.job("other")
    before = find_job(daemon, other) if other is not None else _earlier(daemon, one)
    if before is None:
        return text_result(
            f"Job {one.id} ({phrases.escaped(one.spec.name, 60)}) is the first of its name: there is no earlier run to compare with."
        )
    if before.id == one.id:
        raise UserError(f"that is job {one.id} twice: name two jobs")
    first, second = f"job{one.id}", f"job{before.id}"
    facts = [*facts_of(daemon, one), *facts_of(daemon, before)]
    facts += _differences(
        by_name(facts),
        first,
        second,
        f"job {before.id}",
        _JOB,
        "computed from the facts of both jobs",
        time.time(),
    )

    def say(index: FactIndex) -> list[str]:
        opening = sentence(words.called(index, first), " beside ", words.called(index, second))
        return [
            opening,
            _table(index, (first, words.title(first)), (second, words.title(second)), _JOB),
        ]

    return ToolResult(
        tuple(facts),
        say,
        names_with_values(facts, f"{first}.state", f"{second}.state", *_found(facts)),
    )


def _devices(daemon: Client, call: ToolCall) -> ToolResult:
    snapshot = read_snapshot(daemon)
    indices = call.integer("gpu"), call.integer("other")
    if indices[1] is None or indices[0] == indices[1]:
        raise UserError("name two GPUs to compare")
    found = [state for index in indices for state in asked(snapshot, index)]
    if len(found) != 2:
        raise NotFound(
            f"there are not both of GPU {indices[0]} and GPU {indices[1]} here. See: gpudeck status"
        )
    past = Period(snapshot.time - RECENT_S, snapshot.time)
    facts = [*source_facts(snapshot), *span_facts(past)]
    for state in found:
        columns = daemon.history(state.device.id, FIELDS_SPAN, past.since, past.until, POINTS)
        facts += [
            *device_facts(state, snapshot.time),
            *history_facts(state.device, columns, past.until),
        ]
    first, second = (subject(state.device) for state in found)
    than = label(found[1].device)
    facts += _differences(
        by_name(facts),
        first,
        second,
        than,
        _DEVICE,
        "computed from the readings of both devices",
        snapshot.time,
    )

    def say(index: FactIndex) -> list[str]:
        pair = [(device, devices.called(index, device)) for device in (first, second)]
        uses = [sentence(f"**{name}** ", devices.use(index, device)) for device, name in pair]
        return [*uses, _table(index, pair[0], pair[1], _DEVICE)]

    return ToolResult(tuple(facts), say, _found(facts))


def _earlier(daemon: Client, job: Job) -> Job | None:
    """The newest job before it that has its name and ended."""
    before: int | None = job.id
    while before is not None:
        found, before = daemon.find(Search(text=job.spec.name, outcomes=ENDED), 50, before)
        for other in found:
            if other.spec.name == job.spec.name:
                return daemon.job(other.id)
    return None


def _differences(
    facts: Mapping[str, Fact],
    first: str,
    second: str,
    than: str,
    rows: Mapping[str, str],
    source: str,
    now: float,
) -> list[Fact]:
    """For each quantity that both have: by how much the first is more than the second, which is called `than`."""
    add = FactBuilder("difference", "Difference of", source, now)
    for what, title in rows.items():
        one, other = (facts.get(f"{subject}.{what}") for subject in (first, second))
        if (
            one is None
            or other is None
            or not (isinstance(one.value, int | float) and isinstance(other.value, int | float))
        ):
            continue
        first_value, second_value = (
            phrases.as_said(value, one.unit) for value in (one.value, other.value)
        )
        said = (
            "the same"
            if one.said == other.said
            else _difference(first_value, second_value, one.unit, than)
        )
        if said is not None:
            add.value(what, title.lower(), first_value - second_value, one.unit, said)
    return add.facts


def _found(facts: Iterable[Fact]) -> tuple[str, ...]:
    """Names of the differences: an answer that lacks them compares nothing."""
    return tuple(fact.name for fact in facts if fact.subject == "difference")


def _difference(one: float, other: float, unit: str, than: str) -> str | None:
    """38 °C more than job 3, 12 % less than job 3, 2.43 times as much as job 3; None where there is no ratio."""
    more = f"{'more' if one > other else 'less'} than {than}"
    if unit in ("°C", "%"):  # no ratios: their zero is a convention, or they are ratios themselves
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


def _table(
    index: FactIndex, one: tuple[str, str], other: tuple[str, str], rows: Mapping[str, str]
) -> str:
    """What at least one of them has; N/A where the other lacks it."""
    told = []
    for what, title in rows.items():
        values = [index.text(f"{subject}.{what}") for subject in (one[0], other[0])]
        if any(values):
            told.append(
                (
                    title,
                    *(value or "N/A" for value in values),
                    index.text(f"difference.{what}") or "",
                )
            )
    return table(("", one[1], other[1], "Difference"), told)
