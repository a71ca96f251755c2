"""Tool about energy: of a job, of a device, or of the jobs in a span of time, the largest first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from assistant.facts import Fact
from assistant.facts.devices import device_facts, subject
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.facts.usage import energy_facts, used_facts
from assistant.intents.period import Period, period
from assistant.intents.tool_call import ToolCall
from assistant.reports.material import read_snapshot
from assistant.tools.devices import POINTS, source_facts, span_facts
from assistant.tools.jobs import facts_of
from assistant.tools.lookup import MAX_JOBS, find_job, named_devices
from assistant.tools.tool import ToolContext, ToolResult, Tools, names_with_values
from assistant.writing.template import devices
from assistant.writing.template import jobs as words
from assistant.writing.template.sentences import given, paragraph, sentence, table
from scheduler.client import Client
from scheduler.protocol import units
from scheduler.protocol.jobs import Ended, Job
from scheduler.protocol.search import ENDED, Search
from scheduler.protocol.snapshot import DeviceState

_WEEK_S = 7 * 86400.0
_RANKED = 5
_REASONS = 3


def energy(context: ToolContext, call: ToolCall) -> ToolResult:
    """Answer how much energy a job, a device, or everything in a span of time (a week) used."""
    daemon = context.daemon
    named, gpu = call.job(), call.integer("gpu")
    if named is not None:
        return _of_job(daemon, find_job(daemon, named))
    snapshot = read_snapshot(daemon)
    past = period(call, snapshot.time) or Period(snapshot.time - _WEEK_S, snapshot.time)
    found = named_devices(snapshot, gpu)
    facts = [*source_facts(snapshot), *span_facts(past)]
    for state in found:
        facts += _device_facts(daemon, state, past, snapshot.time)
    names = [subject(state.device) for state in found]
    if gpu is None:
        return _of_jobs(daemon, past, snapshot.time, facts, names)
    return ToolResult(
        tuple(facts),
        lambda index: [_device(index, name) for name in names] or ["There is no such device."],
        names_with_values(facts, *(f"{name}.energy" for name in names)),
    )


def _device_facts(daemon: Client, state: DeviceState, past: Period, now: float) -> list[Fact]:
    fields = ("power", "energy")
    history = daemon.history(state.device.id, fields, past.since, past.until, POINTS)
    return [*device_facts(state, now, ()), *energy_facts(state.device, history, past.until)]


def _of_jobs(
    daemon: Client, past: Period, now: float, facts: list[Fact], device_names: list[str]
) -> ToolResult:
    """Answer for the jobs that ended in a span of time, and for the devices."""
    search = Search(outcomes=ENDED, since=past.since, until=past.until)
    found, more = daemon.find(search, MAX_JOBS)
    ended = [job for job in found if isinstance(job.state, Ended) and job.state.at <= past.until]
    ranked = sorted((job for job in ended if _is_known(job)), key=lambda job: -_joules(job))
    for job in ranked[:_RANKED]:
        facts += [*facts_of(daemon, job)[:2], *used_facts(job, now)]
    facts += _total_facts(ended, ranked, past.until, partly=more is not None)
    names = [f"job{job.id}" for job in ranked[:_RANKED]]

    def row(index: FactIndex, name: str) -> tuple[str, str, str]:
        fact = index.of(name)
        return (words.title(name), fact("name") or "", fact("used.energy") or "N/A")

    def render(index: FactIndex) -> list[str]:
        best, ranking = "", ""
        if names:
            name, used = words.called(index, names[0]), row(index, names[0])[2]
            best = sentence("of the jobs, **", name, "** used the most energy: ", used)
        if len(names) > 1:
            ranking = table(("Job", "Name", "Energy"), [row(index, name) for name in names])
        return [
            sentence(given("time: {}", index.text("span.when"))),
            best,
            _summary(index),
            ranking,
            *(_device(index, name) for name in device_names),
        ]

    required = ("jobs.ended", "jobs.energy", *(f"{name}.used.energy" for name in names[:1]))
    return ToolResult(tuple(facts), render, names_with_values(facts, *required))


def _of_job(daemon: Client, job: Job) -> ToolResult:
    name = f"job{job.id}"
    at = job.state.at if isinstance(job.state, Ended) else job.submitted
    facts = tuple(dict.fromkeys([*facts_of(daemon, job)[:2], *used_facts(job, at)]))

    def render(index: FactIndex) -> list[str]:
        reason = index.why_absent(f"{name}.used.energy") or "no data"
        used = given(" used {}", index.text(f"{name}.used.energy"))
        used = used or f": its energy is not known, {reason}"
        return [sentence("**", words.called(index, name), "**", used)]

    required = names_with_values(facts, f"{name}.used.energy", f"{name}.name")
    return ToolResult(facts, render, required)


def _total_facts(
    jobs: Sequence[Job], ranked: Sequence[Job], until: float, partly: bool
) -> list[Fact]:
    """Return what all jobs used together, and why some are not included."""
    source = "readings of their devices, added up by the daemon"
    add = FactBuilder("jobs", "Jobs", source, until)
    count = f"{'at least ' if partly else ''}{len(jobs)}"
    add.value("ended", "that ended", len(jobs), "", count)
    if ranked:
        joules, title = math.fsum(map(_joules, ranked)), "energy of those whose energy is known"
        add.value("energy", title, joules, "J", units.energy(joules))
    reasons = Counter(
        job.usage.absent["energy"] if job.usage is not None else "it held no device"
        for job in jobs
        if not _is_known(job)
    )
    for i, (reason, number) in enumerate(reasons.most_common(_REASONS)):
        add.text(f"unknown{i}", "whose energy is not known", f"{number}, because {reason}")
    return add.facts


def _summary(index: FactIndex) -> str:
    fact = index.of("jobs")
    total = sentence(
        given("jobs that ended: {}", fact("ended")),
        given("; those whose energy is known used {}", fact("energy")),
    )
    none = "" if fact("energy") or fact("ended") == "0" else "The energy of none of them is known."
    unknown = sentence(given("not known for {}", "; for ".join(index.texts("jobs.unknown"))))
    return paragraph(total, none, unknown)


def _device(index: FactIndex, device: str) -> str:
    reason = index.why_absent(f"{device}.energy") or "nothing was read"
    used = given(" used {} in this time", index.text(f"{device}.energy"))
    return sentence(f"**{devices.called(index, device)}**", used or f": no data, {reason}")


def _is_known(job: Job) -> bool:
    return job.usage is not None and "energy" not in job.usage.absent


def _joules(job: Job) -> float:
    return job.usage.energy if job.usage is not None else 0.0


TOOLS: Tools = {("answer", "energy"): energy}
