"""What is known of jobs: one of them, those of a state and a time, why they wait, the queue."""

from __future__ import annotations

import time

from assistant.facts import Fact, job_facts
from assistant.facts.devices import label
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.facts.jobs import count_facts
from assistant.facts.usage import started, used_facts, when_facts
from assistant.intents.period import Period, period
from assistant.intents.tool_call import ToolCall
from assistant.tools.devices import span_facts
from assistant.tools.job_lookup import MOST, find_job
from assistant.tools.tool import ToolResult, names_with_values
from assistant.writing.template import jobs as words
from assistant.writing.template.sentences import given, listed, paragraph, sentence
from scheduler.client import Client
from scheduler.protocol.jobs import Ended, Job, Queued, turn
from scheduler.protocol.search import Search
from scheduler.protocol.units import clock

TOLD = 12
"""Jobs told in one answer."""
_OUTCOMES = {
    "running": ("running", "starting"),
    "queued": ("queued",),
    "failed": ("failed", "lost", "rejected"),
    "done": ("done", "rejected"),
    "cancelled": ("cancelled",),
    "lost": ("lost",),
}
_ONE = {
    "running": "runs",
    "queued": "waits",
    "failed": "failed",
    "done": "is done",
    "cancelled": "was cancelled",
    "lost": "was lost",
}
_MANY = {
    "running": "run",
    "queued": "wait",
    "failed": "failed",
    "done": "are done",
    "cancelled": "were cancelled",
    "lost": "were lost",
}


def one(daemon: Client, call: ToolCall) -> ToolResult:
    """How a job stands or how it went."""
    job = find_job(daemon, call.job() or "last")
    facts = facts_of(daemon, job)
    name = f"job{job.id}"
    needed = ("state", "progress")
    return ToolResult(
        tuple(facts),
        lambda index: words.chapter(index, name),
        names_with_values(facts, *(f"{name}.{what}" for what in needed)),
    )


def facts_of(daemon: Client, job: Job) -> list[Fact]:
    """All that is known of one job."""
    now = time.time()
    used = used_facts(job, now) if job.usage is not None else []
    return [*job_facts(job, now, _labels(daemon)), *when_facts(job, now), *used]


def several(daemon: Client, call: ToolCall) -> ToolResult:
    """Those of a state, and of a time: that ended in it, or ran in it where all are asked for."""
    now, state = time.time(), call.text("state") or "all"
    past = period(call, now)
    active = state in ("running", "queued")
    if past is None or active:
        past = Period(0.0, now)
    outcomes = _OUTCOMES.get(state, ())
    found, more = daemon.find(Search(outcomes=outcomes, since=past.since, until=past.until), MOST)
    found = tuple(job for job in found if active or _within(job, past))
    facts = [*span_facts(past), *(count_facts(found, now) if more is None else [])]
    for job in found[:TOLD]:
        facts += job_facts(job, now, _labels(daemon))

    def say(index: FactIndex) -> list[str]:
        told = [_account(index, job) for job in found[:TOLD]]
        rest = (
            "There are more than are told here; `gpudeck jobs` lists all of them."
            if len(found) > TOLD
            else ""
        )
        return [_opening(index, state), *told, rest]

    return ToolResult(
        tuple(facts),
        say,
        names_with_values(facts, "span.when", *(f"job{job.id}.called" for job in found[:TOLD])),
    )


def waiting(daemon: Client, call: ToolCall) -> ToolResult:
    """Why a job waits, or each that does: the queue's own reason, what stands before it, and when it will start where that is known."""
    now, named = time.time(), call.job()
    line = sorted(
        (job for job in daemon.jobs(MOST, active=True) if isinstance(job.state, Queued)), key=turn
    )
    found = line if named is None else [find_job(daemon, named)]
    facts: list[Fact] = []
    for job in found[:TOLD]:
        facts += job_facts(job, now, _labels(daemon))
        if isinstance(job.state, Queued):
            facts += _line_facts(daemon, job, [other.id for other in line], now)

    def say(index: FactIndex) -> list[str]:
        rest = (
            "There are more that wait; `gpudeck jobs --active` lists all of them."
            if len(found) > TOLD
            else ""
        )
        return [*(_why(index, job) for job in found[:TOLD]), rest] if found else ["No job waits."]

    needed = [
        f"job{job.id}.{what}"
        for job in found[:TOLD]
        if isinstance(job.state, Queued)
        for what in ("reason", "start")
    ]
    return ToolResult(tuple(facts), say, names_with_values(facts, *needed))


def queue(daemon: Client, call: ToolCall) -> ToolResult:
    """How many wait and run, and whether the queue is paused."""
    snapshot = daemon.snapshot()
    add = FactBuilder("queue", "Queue", "queue", snapshot.time)
    active = daemon.jobs(MOST, active=True)
    waiting = max(sum(isinstance(job.state, Queued) for job in active), snapshot.waiting)
    running = sum(not isinstance(job.state, Queued) for job in active)
    add.value("waiting", "jobs that wait", waiting, "", str(waiting))
    add.value("running", "jobs that run", running, "", str(running))
    add.text(
        "state",
        "is",
        "paused: nothing new starts" if snapshot.paused else "open: it starts what fits",
    )
    for group in daemon.groups():
        limit = f", limited to {group.group.limit} at once" if group.group.limit else ""
        paused = ", paused" if group.group.paused else ""
        add.text(
            f"group.{group.group.name}",
            "group",
            f"{group.group.name}: {group.waiting} wait, {group.running} run{limit}{paused}",
        )

    def say(index: FactIndex) -> list[str]:
        fact = index.of("queue")
        state = sentence("the queue is ", fact("state") or "in a state nobody told")
        waiting, running = fact("waiting") or "N/A", fact("running") or "N/A"
        verbs = (
            " job waits, " if waiting == "1" else " jobs wait, ",
            " runs" if running == "1" else " run",
        )
        counts = sentence(waiting, verbs[0], running, verbs[1])
        return [
            paragraph(state, counts),
            *(sentence("group ", group) for group in index.texts("queue.group.")),
        ]

    return ToolResult(tuple(add.facts), say, ("queue.waiting", "queue.running"))


def _within(job: Job, past: Period) -> bool:
    """Whether it ended, or ran, in that time."""
    state = job.state
    if isinstance(state, Ended):
        return past.since <= state.at <= past.until or (
            (began := state.started) is not None and past.since <= began <= past.until
        )
    began = started(job) or job.submitted
    return began <= past.until


def _line_facts(daemon: Client, job: Job, line: list[int], now: float) -> list[Fact]:
    """How many stand before it, and when it will start."""
    add = FactBuilder(f"job{job.id}", f"Job {job.id}", "the queue's forecast", now)
    if job.id in line:
        add.value("ahead", "jobs before it", line.index(job.id), "", str(line.index(job.id)))
    forecast = daemon.foresee_job(job.id)
    if forecast.at is None:
        add.absent(
            "start",
            "starts",
            "it is held"
            if job.spec.hold
            else "there is no forecast, as it depends on the end, or the success, of jobs of which that is not known",
        )
    else:
        when = "any moment now" if forecast.at <= now + 1 else f"about {clock(forecast.at, now)}"
        add.value("start", "starts", forecast.at, "s", when)
    if forecast.devices:
        labels = _labels(daemon)
        add.text(
            "place",
            "will run on",
            ", ".join(labels.get(device, device) for device in forecast.devices),
        )
    return add.facts


def _why(index: FactIndex, job: Job) -> str:
    name = f"job{job.id}"
    fact = index.of(name)
    who = f"**{words.title(name)}**" + given(" ({})", fact("name"))
    if fact("state") != "queued":
        return paragraph(sentence(who, " does not wait"), words.account(index, name, "it"))
    ahead = fact("ahead")
    before = sentence(
        "no job stands before it" if ahead == "0" else given("jobs that stand before it: {}", ahead)
    )
    start = (
        sentence(given("it will start {}", fact("start")), given(" on {}", fact("place")))
        if fact("start")
        else ""
    )
    unknown = (
        sentence(given("when it starts: {}", index.why_absent(f"{name}.start")))
        if not start
        else ""
    )
    return paragraph(
        sentence(
            who,
            " has been waiting",
            given(" for {}", fact("waiting")),
            given(": {}", fact("reason")),
        ),
        before,
        start,
        unknown,
    )


def _account(index: FactIndex, job: Job) -> str:
    name = f"job{job.id}"
    return words.account(
        index, name, f"**{words.title(name)}**" + given(" ({})", index.text(f"{name}.name"))
    )


def _opening(index: FactIndex, state: str) -> str:
    """On 21 November 2026 from 00:00 to 18:00: 2 failed, 1 lost."""
    when = given("{}: ", index.text("span.when"))
    counts = [f"{count} {name}" for name in _OUTCOMES if (count := index.text(f"jobs.{name}"))]
    if not index.jobs():
        what = "no job ran, waited or ended" if state == "all" else f"no job {_ONE[state]}"
        return sentence(when, what)
    if len(counts) == 1 and state != "all":
        (count, _), one = counts[0].split(), counts[0].startswith("1 ")
        return sentence(
            when, f"{count} {'job' if one else 'jobs'} {_ONE[state] if one else _MANY[state]}"
        )
    return sentence(when, "jobs: ", listed(counts)) if counts else ""


def _labels(daemon: Client) -> dict[str, str]:
    return {state.device.id: label(state.device) for state in daemon.snapshot().devices}
