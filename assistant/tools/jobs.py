"""Tools about jobs: one job, those of a state and a time, why they wait, and the queue."""

from __future__ import annotations

import time

from assistant.facts import Fact, job_facts
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.facts.jobs import count_facts
from assistant.facts.usage import started, used_facts, when_facts
from assistant.intents.period import Period, period
from assistant.intents.tool_call import ToolCall
from assistant.tools.devices import span_facts
from assistant.tools.lookup import MAX_JOBS, device_labels, find_job, queued_jobs
from assistant.tools.tool import ToolContext, ToolResult, Tools, names_with_values
from assistant.writing.template import jobs as words
from assistant.writing.template.sentences import given, listed, paragraph, sentence
from scheduler.client import Client
from scheduler.protocol.jobs import Ended, Job, Queued
from scheduler.protocol.search import Search
from scheduler.protocol.units import clock

_MAX_SHOWN = 12
_OUTCOMES = {
    "running": ("running", "starting"),
    "queued": ("queued",),
    "failed": ("failed", "lost", "rejected"),
    "done": ("done", "rejected"),
    "cancelled": ("cancelled",),
    "lost": ("lost",),
}
_PREDICATES = {
    "running": ("runs", "run"),
    "queued": ("waits", "wait"),
    "failed": ("failed", "failed"),
    "done": ("is done", "are done"),
    "cancelled": ("was cancelled", "were cancelled"),
    "lost": ("was lost", "were lost"),
}
"""For one job and for several."""


def show_job(context: ToolContext, call: ToolCall) -> ToolResult:
    """Answer how one job is doing or how it ended."""
    job = find_job(context.daemon, call.job() or "last")
    facts, name = facts_of(context.daemon, job), f"job{job.id}"
    required = names_with_values(facts, f"{name}.state", f"{name}.progress")
    return ToolResult(tuple(facts), lambda index: words.chapter(index, name), required)


def facts_of(daemon: Client, job: Job) -> list[Fact]:
    """Return all that is known of one job."""
    now = time.time()
    used = used_facts(job, now) if job.usage is not None else []
    return [*job_facts(job, now, device_labels(daemon)), *when_facts(job, now), *used]


def list_jobs(context: ToolContext, call: ToolCall) -> ToolResult:
    """Answer which jobs are in a state now, or ended or ran in a span of time."""
    daemon, now, state = context.daemon, time.time(), call.text("state") or "all"
    past, active = period(call, now), state in ("running", "queued")
    if past is None or active:
        past = Period(0.0, now)
    search = Search(outcomes=_OUTCOMES.get(state, ()), since=past.since, until=past.until)
    found, more = daemon.find(search, MAX_JOBS)
    found = tuple(job for job in found if active or _within(job, past))
    facts = [*span_facts(past), *(count_facts(found, now) if more is None else [])]
    labels, shown = device_labels(daemon), found[:_MAX_SHOWN]
    for job in shown:
        facts += job_facts(job, now, labels)

    def render(index: FactIndex) -> list[str]:
        rest = ""
        if len(found) > _MAX_SHOWN:
            rest = "These are not all of them: `gpudeck jobs` lists every job."
        return [_opening(index, state), *(_account(index, job) for job in shown), rest]

    names = (f"job{job.id}.called" for job in shown)
    return ToolResult(tuple(facts), render, names_with_values(facts, "span.when", *names))


def why_waiting(context: ToolContext, call: ToolCall) -> ToolResult:
    """Answer why a job waits, or each job that does, and when it will start if that is known."""
    daemon, now, named = context.daemon, time.time(), call.job()
    queue = queued_jobs(daemon)
    found = queue if named is None else [find_job(daemon, named)]
    facts: list[Fact] = []
    required: list[str] = []
    labels, shown = device_labels(daemon), found[:_MAX_SHOWN]
    for job in shown:
        facts += job_facts(job, now, labels)
        if isinstance(job.state, Queued):
            facts += _forecast_facts(daemon, job, [other.id for other in queue], now)
            required += [f"job{job.id}.reason", f"job{job.id}.start"]

    def render(index: FactIndex) -> list[str]:
        if not found:
            return ["No job waits."]
        rest = ""
        if len(found) > _MAX_SHOWN:
            rest = "More jobs wait: `gpudeck jobs --active` lists all of them."
        return [*(_why(index, job) for job in shown), rest]

    return ToolResult(tuple(facts), render, names_with_values(facts, *required))


def show_queue(context: ToolContext, call: ToolCall) -> ToolResult:
    """Answer how many jobs wait and run, and whether the queue is paused."""
    daemon, snapshot = context.daemon, context.daemon.snapshot()
    add = FactBuilder("queue", "Queue", "queue", snapshot.time)
    active = daemon.jobs(MAX_JOBS, active=True)
    queued = sum(isinstance(job.state, Queued) for job in active)
    waiting, running = max(queued, snapshot.waiting), len(active) - queued
    add.value("waiting", "jobs that wait", waiting, "", str(waiting))
    add.value("running", "jobs that run", running, "", str(running))
    add.text("state", "is", "paused: no job starts" if snapshot.paused else "open")
    for state in daemon.groups():
        group = state.group
        limit = f", limited to {group.limit} at once" if group.limit else ""
        paused = ", paused" if group.paused else ""
        counts = f"{state.waiting} wait, {state.running} run{limit}{paused}"
        add.text(f"group.{group.name}", "group", f"{group.name}: {counts}")

    def render(index: FactIndex) -> list[str]:
        fact = index.of("queue")
        wait = "job waits" if fact("waiting") == "1" else "jobs wait"
        run = "runs" if fact("running") == "1" else "run"
        counts = f"{fact('waiting') or 'N/A'} {wait}, {fact('running') or 'N/A'} {run}"
        groups = (sentence("group ", group) for group in index.texts("queue.group."))
        state = sentence("the queue is ", fact("state") or "in an unknown state")
        return [paragraph(state, sentence(counts)), *groups]

    return ToolResult(tuple(add.facts), render, ("queue.waiting", "queue.running"))


def _within(job: Job, past: Period) -> bool:
    """Return whether the job ended or ran in that time."""
    began = started(job)
    if not isinstance(job.state, Ended):
        return (began or job.submitted) <= past.until
    began = job.state.started
    return past.since <= job.state.at <= past.until or (
        began is not None and past.since <= began <= past.until
    )


def _forecast_facts(daemon: Client, job: Job, queue: list[int], now: float) -> list[Fact]:
    """Return how many jobs are ahead of a job, and when it will start."""
    add = FactBuilder(f"job{job.id}", f"Job {job.id}", "the queue's forecast", now)
    if job.id in queue:
        ahead = queue.index(job.id)
        add.value("ahead", "jobs ahead of it", ahead, "", str(ahead))
    forecast = daemon.foresee_job(job.id)
    if forecast.at is not None:
        when = "any moment now" if forecast.at <= now + 1 else f"about {clock(forecast.at, now)}"
        add.value("start", "starts", forecast.at, "s", when)
    elif job.spec.hold:
        add.absent("start", "starts", "it is held")
    else:
        add.absent("start", "starts", "it depends on jobs whose end or success cannot be predicted")
    if forecast.devices:
        labels = device_labels(daemon)
        devices = ", ".join(labels.get(device, device) for device in forecast.devices)
        add.text("place", "will run on", devices)
    return add.facts


def _why(index: FactIndex, job: Job) -> str:
    name = f"job{job.id}"
    fact = index.of(name)
    who = f"**{words.title(name)}**" + given(" ({})", fact("name"))
    if fact("state") != "queued":
        return paragraph(sentence(who, " does not wait"), words.account(index, name, "it"))
    waiting, reason = given(" for {}", fact("waiting")), given(": {}", fact("reason"))
    ahead = given("jobs ahead of it: {}", fact("ahead"))
    if fact("ahead") == "0":
        ahead = "no job is ahead of it"
    start = given("when it starts is not known: {}", index.why_absent(f"{name}.start"))
    if fact("start"):
        start = f"it will start {fact('start')}" + given(" on {}", fact("place"))
    opening = sentence(who, " has been waiting", waiting, reason)
    return paragraph(opening, sentence(ahead), sentence(start))


def _account(index: FactIndex, job: Job) -> str:
    name = f"job{job.id}"
    title = f"**{words.title(name)}**" + given(" ({})", index.text(f"{name}.name"))
    return words.account(index, name, title)


def _opening(index: FactIndex, state: str) -> str:
    """Return a sentence such as `On 21 November 2026 from 00:00 to 18:00: 2 failed, 1 lost.`"""
    when = given("{}: ", index.text("span.when"))
    counts = [(count, name) for name in _OUTCOMES if (count := index.text(f"jobs.{name}"))]
    if not index.jobs():
        what = "ran, waited or ended" if state == "all" else _PREDICATES[state][0]
        return sentence(when, f"no job {what}")
    if len(counts) == 1 and state != "all":
        count = counts[0][0]
        one, several = _PREDICATES[state]
        return sentence(when, f"{count} job {one}" if count == "1" else f"{count} jobs {several}")
    summary = listed([f"{count} {name}" for count, name in counts])
    return sentence(when, "jobs: ", summary) if counts else ""


TOOLS: Tools = {
    ("answer", "job"): show_job,
    ("answer", "jobs"): list_jobs,
    ("answer", "waiting"): why_waiting,
    ("answer", "queue"): show_queue,
}
