"""What used how much energy: a job, a device, or the jobs of a time, the one that used most first."""

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
from assistant.tools.devices import POINTS, asked, source_facts, span_facts
from assistant.tools.job_lookup import MOST, find_job
from assistant.tools.jobs import facts_of
from assistant.tools.tool import ToolResult, names_with_values
from assistant.writing.template import devices
from assistant.writing.template import jobs as words
from assistant.writing.template.sentences import given, paragraph, sentence, table
from scheduler.client import Client
from scheduler.protocol import units
from scheduler.protocol.jobs import Ended, Job
from scheduler.protocol.search import ENDED, Search

WEEK_S = 7 * 86400.0
_RANKED = 5
_REASONS = 3


def energy(daemon: Client, call: ToolCall) -> ToolResult:
    """Of the job or the device that is named; else of all jobs that ended in the time (a week), and of the devices in it."""
    if call.job() is not None:
        return _of_job(daemon, find_job(daemon, call.job() or "last"))
    snapshot = read_snapshot(daemon)
    past = period(call, snapshot.time) or Period(snapshot.time - WEEK_S, snapshot.time)
    found = asked(snapshot, call.integer("gpu"))
    facts = [*source_facts(snapshot), *span_facts(past)]
    for state in found:
        history = daemon.history(
            state.device.id, ("power", "energy"), past.since, past.until, POINTS
        )
        facts += [
            *device_facts(state, snapshot.time, ()),
            *energy_facts(state.device, history, past.until),
        ]
    own = [subject(state.device) for state in found]
    if call.integer("gpu") is not None:
        energies = names_with_values(facts, *(f"{device}.energy" for device in own))
        return ToolResult(
            tuple(facts),
            lambda index: (
                [_device(index, device) for device in own] or ["There is no such device here."]
            ),
            energies,
        )
    jobs, more = daemon.find(Search(outcomes=ENDED, since=past.since, until=past.until), MOST)
    jobs = tuple(job for job in jobs if isinstance(job.state, Ended) and job.state.at <= past.until)
    ranked = sorted((job for job in jobs if _known(job)), key=lambda job: -_joules(job))
    for job in ranked[:_RANKED]:
        facts += [*facts_of(daemon, job)[:2], *used_facts(job, snapshot.time)]
    facts += _total(jobs, ranked, past.until, partly=more is not None)

    def say(index: FactIndex) -> list[str]:
        told = [f"job{job.id}" for job in ranked[:_RANKED]]
        rows = [
            (
                words.title(job),
                index.text(f"{job}.name") or "",
                index.text(f"{job}.used.energy") or "N/A",
            )
            for job in told
        ]
        best = (
            [
                sentence(
                    "of the jobs, **",
                    words.called(index, told[0]),
                    "** used the most energy",
                    given(": {}", rows[0][2]),
                )
            ]
            if told
            else []
        )
        ranking = table(("Job", "Name", "Energy"), rows) if len(rows) > 1 else ""
        return [
            sentence(given("time: {}", index.text("span.when"))),
            *best,
            _unknown(index),
            ranking,
            *(_device(index, d) for d in own),
        ]

    return ToolResult(
        tuple(facts),
        say,
        names_with_values(
            facts, "jobs.ended", "jobs.energy", *(f"job{job.id}.used.energy" for job in ranked[:1])
        ),
    )


def _of_job(daemon: Client, job: Job) -> ToolResult:
    name = f"job{job.id}"
    facts = (
        *facts_of(daemon, job)[:2],
        *used_facts(job, job.state.at if isinstance(job.state, Ended) else job.submitted),
    )

    def say(index: FactIndex) -> list[str]:
        used = index.text(f"{name}.used.energy")
        told = (
            given(" used {}", used)
            or f": its energy is not known, {index.why_absent(f'{name}.used.energy') or 'no data'}"
        )
        return [sentence("**", words.called(index, name), "**", told)]

    return ToolResult(
        tuple(dict.fromkeys(facts)),
        say,
        names_with_values(facts, f"{name}.used.energy", f"{name}.name"),
    )


def _total(jobs: Sequence[Job], ranked: Sequence[Job], until: float, partly: bool) -> list[Fact]:
    """What all of them used together, and why some are not in it."""
    add = FactBuilder("jobs", "Jobs", "readings of their devices, added up by the daemon", until)
    add.value("ended", "that ended", len(jobs), "", f"{'at least ' if partly else ''}{len(jobs)}")
    if ranked:
        joules = math.fsum(map(_joules, ranked))
        add.value(
            "energy", "energy of those whose energy is known", joules, "J", units.energy(joules)
        )
    reasons = Counter(
        job.usage.absent["energy"] if job.usage is not None else "it held no device"
        for job in jobs
        if not _known(job)
    )
    for i, (reason, count) in enumerate(reasons.most_common(_REASONS)):
        add.text(f"unknown{i}", "whose energy is not known", f"{count}, as {reason}")
    return add.facts


def _unknown(index: FactIndex) -> str:
    fact = index.of("jobs")
    total = sentence(
        given("jobs that ended: {}", fact("ended")),
        given("; those whose energy is known used {}", fact("energy")),
    )
    none = "" if fact("energy") or fact("ended") == "0" else "The energy of none of them is known."
    unknown = sentence(given("unknown of {}", "; of ".join(index.texts("jobs.unknown"))))
    return paragraph(total, none, unknown)


def _device(index: FactIndex, device: str) -> str:
    used = given(" used {} in this time", index.text(f"{device}.energy"))
    return sentence(
        f"**{devices.called(index, device)}**",
        used or f": no data, {index.why_absent(f'{device}.energy') or 'nothing was read'}",
    )


def _known(job: Job) -> bool:
    return job.usage is not None and "energy" not in job.usage.absent


def _joules(job: Job) -> float:
    return job.usage.energy if job.usage is not None else 0.0
