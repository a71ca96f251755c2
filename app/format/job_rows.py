"""Rows of the jobs table, and the details of one job."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudeck.accel.result import Result
from gpudeck.accel.workloads import catalog
from gpudeck.app.format.failure import attempts_text
from gpudeck.app.format.results import own_result, result_of, summarize_result
from gpudeck.app.format.values import (
    Meaning,
    ago,
    clock,
    device_label,
    duration,
    rounded,
    significant,
)
from gpudeck.app.language.texts import (
    tr,
    tr_decimal,
    tr_list,
    tr_noop,
    tr_text,
)
from gpudeck.language.numbers import amount, energy
from gpudeck.language.text import Bytes, Text, moment, phrase
from gpudeck.scheduler.protocol.job_options import JOB_OPTIONS
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Failed,
    Forecast,
    Job,
    JobSuspension,
    Lost,
    Progress,
    Queued,
    Running,
    Spec,
    Starting,
    suspended_seconds,
    suspension_of,
)
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.wait_reasons import FolderUnreadable
from gpudeck.scheduler.protocol.wait_texts import explain, headline

_SHORT_WAIT = 60.0
"""Seconds in the queue that are not worth a line."""
_NEARLY_ALL = 0.9
"""The share of a job's time from which on its readings are of all of it."""
_WEEK = 6 * 86_400.0
_NAMED = 2
"""Devices whose names a column has room for."""
STATES = (
    tr_noop("queued"),
    tr_noop("starting"),
    tr_noop("running"),
    tr_noop("suspending"),
    tr_noop("suspended"),
    tr_noop("resuming"),
    tr_noop("stopping"),
    tr_noop("done"),
    tr_noop("failed"),
    tr_noop("cancelled"),
    tr_noop("lost"),
    tr_noop("check failed"),
)
"""What `state_word` and `JobRow.state` may be."""


@dataclass(frozen=True)
class JobRow:
    """One job in the table. Every cell is text; `share` (0 to 1) asks for a progress bar behind
    it."""

    id: int
    name: str
    state: str
    """English: whoever shows it calls `tr`."""
    meaning: Meaning
    device: str
    doing: str
    share: float | None
    duration: str
    tflops: str
    active: bool
    end: str = ""
    """When it ended, or with ≈ when it will at its pace; empty where that is unknown."""
    progress: str = ""
    """How far it is, and how long it will take, without what it says of itself."""


@dataclass(frozen=True)
class JobFacts:
    title: str
    state: str
    """English, as in JobRow."""
    meaning: Meaning
    facts: tuple[tuple[str, str], ...]
    share: float | None
    doing: str


def job_row(job: Job, labels: dict[str, str], now: float) -> JobRow:
    state, result = job.state, result_of(job)
    devices = () if isinstance(state, Queued) else state.devices
    return JobRow(
        id=job.id,
        name=job.spec.name,
        state=_shown_state(job),
        meaning=meaning(job),
        device=job.spec.where or _together([labels.get(d, d) for d in devices]),
        doing=_doing(job, now),
        share=_share(job),
        duration=_duration(job, now),
        tflops=significant(result.tflops) if result else "",
        active=job.active,
        end=_end(job, now),
        progress=_progress(job, now),
    )


def _end(job: Job, now: float) -> str:
    state = job.state
    if (at := job.ended) is not None:
        return _day_clock(at, time.time())  # lines of ended jobs are kept
    if not isinstance(state, Running) or state.progress is None or state.suspension is not None:
        return ""
    if (left := time_left(state.progress, state.worked_from, now)) is None:
        return ""
    return f"≈ {_day_clock(now + left, now)}"


def _day_clock(at: float, now: float) -> str:
    """Return a time of day; on another day with the date, or long ago the date alone."""
    then, today = time.localtime(at), time.localtime(now)
    if (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday):
        return time.strftime("%H:%M", then)
    return time.strftime("%m-%d %H:%M" if abs(now - at) < _WEEK else "%Y-%m-%d", then)


def _together(names: Sequence[str]) -> str:
    """As many as a column has room for, or how many they are."""
    return tr("{n} GPUs", n=len(names)) if len(names) > _NAMED else ", ".join(names)


def details(job: Job, snapshot: Snapshot) -> JobFacts:
    """Everything known of one job but its log."""
    r = job_row(job, device_labels(snapshot), snapshot.time)
    facts = [(tr("Command"), typed_command(job.spec)), (tr("Folder"), job.spec.cwd)]
    facts += _place(job) or _held(job, snapshot)
    facts += _needs(job)
    facts += _times(job, snapshot.time)
    if off := suspended_seconds(job, snapshot.time):
        facts.append((tr("Suspended"), duration(off)))
    facts += _used(job)
    if job.damaged:
        text = tr("its command or options were changed or damaged in the store")
        facts.append((tr("Damaged"), text))
    facts += [(tr("Reason"), reason)] if (reason := _reason(job, snapshot.time)) else []
    if made := summarize_result(job):
        timing = ", ".join(f"{caption} {value}" for caption, value in made.timing)
        known = dict(facts)
        facts += [(tr("Verdict"), made.verdict), ("TFLOP/s", made.tflops), (tr("Timing"), timing)]
        facts += [
            (tr("Result: {name}", name=name) if name in known else name, value)
            for name, value in made.facts
            if known.get(name) != value
        ]
    elif own := own_result(job):
        facts.append((tr("Result"), own))
    elif job.spec.params:
        facts.append((tr("Parameters"), ", ".join(f"{k} {v}" for k, v in job.spec.params.items())))
    return JobFacts(
        tr("Job {job} · {name}", job=job.id, name=job.spec.name),
        r.state,
        r.meaning,
        tuple(facts),
        r.share,
        r.doing,
    )


def typed_command(spec: Spec) -> str:
    """Return the command as a person types it: a workload is started by `gpudeck run`."""
    workload = catalog.known(spec.workload)
    params = None if workload is None else workload.typed(spec.argv)
    if workload is None or params is None:
        return shlex.join(spec.argv)
    return shlex.join(("gpudeck", "run", workload.name, *params))


def _held(job: Job, snapshot: Snapshot) -> list[tuple[str, str]]:
    """All its devices by name."""
    labels = device_labels(snapshot)
    names = () if isinstance(job.state, Queued) else [labels.get(d, d) for d in job.state.devices]
    caption = tr("Device") if len(names) == 1 else tr("Devices")
    return [(caption, ", ".join(names))] if names else []


def _place(job: Job) -> list[tuple[str, str]]:
    """The cluster it is for, and its name there."""
    if not job.spec.where:
        return []
    named = (
        [(tr("Submission"), f"gpudeck-{job.state.attempt}")]
        if isinstance(job.state, Running)
        else []
    )
    return [(tr("Cluster"), job.spec.where), *named]


def _needs(job: Job) -> list[tuple[str, str]]:
    """Return the options of the job that differ from their defaults."""
    spec = job.spec
    facts = [
        (tr(o.label), tr_text(o.write(getattr(spec, o.name))))
        for o in JOB_OPTIONS
        if o.is_shown(spec)
    ]
    if spec.retries:
        text = tr("number {n} of {limit}", n=job.tries + 1, limit=spec.retries + spec.spared + 1)
        facts.append((tr("Attempts"), text))
    return facts


def _used(job: Job) -> list[tuple[str, str]]:
    """What it used of its devices; nothing where it held none."""
    usage = job.usage
    if usage is None:
        return []
    shown = {
        "memory": tr_decimal(amount(usage.memory)),
        "energy": tr_decimal(energy(usage.energy)),
        "util": f"{usage.util:.0f} %",
    }
    captions = {
        "memory": tr("Peak memory"),
        "energy": tr("Energy"),
        "util": tr("Avg utilisation"),
    }
    found = [
        (captions[f], f"– ({tr_text(usage.absent[f])})" if f in usage.absent else text)
        for f, text in shown.items()
    ]
    held = (job.ended or usage.seconds) - (job.started or 0.0)
    if usage.seconds >= _NEARLY_ALL * held:
        return found
    return [*found, (tr("Readings over"), duration(usage.seconds))]


def device_labels(snapshot: Snapshot) -> dict[str, str]:
    return {state.device.id: device_label(state.device) for state in snapshot.devices}


def state_word(job: Job) -> str:
    """Return the state's name in English; a job that was told to stop, or is suspended, says so."""
    if isinstance(job.state, Running) and (job.state.stopping or job.state.yielding):
        return "stopping"
    suspension = suspension_of(job)
    return job.status if suspension is None else suspension.phase


def _shown_state(job: Job) -> str:
    """Return the state's name; a job that ended well may have left a Result that did not pass."""
    failed = isinstance(job.state, Done) and meaning(job) == "failed"
    return "check failed" if failed else state_word(job)


def describe(job: Job) -> str:
    """Return a job's state in a line: its name, and why it waits, its progress, or its end."""
    word, text = tr(state_word(job)), doing(job)
    if isinstance(job.state, Queued):
        return text
    return word if text.casefold() in ("", word) else f"{word}, {text}"


def doing(job: Job) -> str:
    """Return why a job waits, its progress, or how it ended."""
    shown = job_row(job, {}, time.time())
    took = tr("after {time}", time=shown.duration) if shown.duration and not job.active else ""
    return ", ".join(filter(None, (shown.doing, took)))


def time_left(progress: Progress, started: float, now: float) -> float | None:
    """Seconds until the work is done at the pace so far; None before there is a pace."""
    if progress.done <= 0 or progress.time <= started:
        return None
    left = (progress.total - progress.done) * (progress.time - started) / progress.done
    return max(left - (now - progress.time), 0.0)


def meaning(job: Job) -> Meaning:
    """Failed, also where it left a Result that did not pass; warm while it is being stopped."""
    result = result_of(job)
    if isinstance(job.state, Failed | Lost) or (result is not None and not result.passed):
        return "failed"
    return "warm" if isinstance(job.state, Running) and job.state.stopping else ""


def _doing(job: Job, now: float) -> str:
    """Why it waits, how far it is, or how it ended."""
    state, text = job.state, ""
    match state:
        case Queued():
            text = tr_text(headline(state.wait, now))
        case Starting():
            text = tr("Starting")
        case Running(unreadable=FolderUnreadable() as unreadable):
            why = tr_text(explain(unreadable, now))
            text = tr("Ended; {why}", why=why) if state.over else tr("Running; {why}", why=why)
        case Running(suspension=JobSuspension() as suspension):
            text = tr_text(_describe_suspension(suspension, now))
        case Running(yielding="queue" | "hold", stopping=False):
            text = tr("Asked to end; is queued again")
        case Running(note=note) if note:
            text = tr_text(note)
        case Running(progress=None):
            text = tr("Running")
        case Running(progress=Progress() as progress):
            text = _pace(progress, state.worked_from, now)
        case Failed() | Lost() | Cancelled():
            text = tr_text(state.reason)
        case Done() if (result := result_of(job)) is not None:
            text = _outcome(job, result)
        case Done():
            text = own_result(job)
    if (attempts := attempts_text(job)) is not None and not isinstance(state, Queued):
        text = ", ".join(filter(None, (text, tr_text(attempts))))
    return text


def _outcome(job: Job, result: Result) -> str:
    """Return what a workload measured, such as "606 TFLOP/s"; why its check failed if it did."""
    summary = summarize_result(job)
    if summary is None or not result.passed:
        return tr_text(result.verdict)
    return " ".join(filter(None, summary.headline))


def _describe_suspension(suspension: JobSuspension, now: float) -> Text:
    """Return how far a suspended job is on its way off its GPUs, or back."""
    size = Bytes(suspension.memory)
    if suspension.phase == "suspending":
        return phrase("leaves its GPU")
    if suspension.phase == "resuming":
        return phrase("comes back to its GPU")
    if suspension.wait is not None:
        why = explain(suspension.wait, now)
        return phrase("{size} in host memory; waits to come back: {why}", size=size, why=why)
    if suspension.resume_at is not None:
        at = moment(suspension.resume_at, now)
        return phrase("{size} in host memory; comes back at {time}", size=size, time=at)
    since = moment(suspension.since, now)
    return phrase("{size} in host memory since {time}", size=size, time=since)


def _progress(job: Job, now: float) -> str:
    """Return how far a job is where nothing else needs to be said of it."""
    state = job.state
    if not isinstance(state, Running) or state.progress is None or job.tries:
        return ""
    if state.unreadable or state.note or state.yielding or state.suspension is not None:
        return ""
    return " · ".join(_paced(state.progress, state.worked_from, now))


def _pace(progress: Progress, started: float, now: float) -> str:
    parts = (*_paced(progress, started, now), progress.note)
    return " · ".join(filter(None, parts))


def _paced(progress: Progress, started: float, now: float) -> list[str]:
    left = time_left(progress, started, now)
    done = f"{100 * progress.done / progress.total:.0f} %"
    return [done] if left is None else [done, tr("{time} left", time=rounded(left))]


def _reason(job: Job, now: float) -> str:
    state = job.state
    if isinstance(state, Queued):
        return tr_text(headline(state.wait, now))
    if isinstance(state, Failed):
        return tr_text(state.reason)
    if isinstance(state, Running) and state.unreadable is not None:
        return tr_text(explain(state.unreadable, now))
    return tr_text(state.reason) if isinstance(state, Lost | Cancelled) else ""


def _share(job: Job) -> float | None:
    if isinstance(job.state, Running) and job.state.progress is not None:
        return job.state.progress.done / job.state.progress.total
    return None


def _duration(job: Job, now: float) -> str:
    began, until = job.started, job.ended
    if began is None:
        return ""
    until = now if until is None else until
    return duration(max(until - began - suspended_seconds(job, until), 0.0))


def _times(job: Job, now: float) -> list[tuple[str, str]]:
    began, end = job.started, job.ended
    if began is None:
        submitted = clock(job.submitted, now)
        return [(tr("Submitted"), f"{submitted} ({ago(job.submitted, now)})")]
    if end is None:
        times = tr("since {time} ({ago})", time=clock(began, now), ago=ago(began, now))
    else:
        times = tr(
            "{begin} – {end} ({ago})",
            begin=clock(began, now),
            end=clock(end, now),
            ago=ago(end, now),
        )
    waited = began - job.submitted
    if waited < _SHORT_WAIT:
        return [(tr("Time"), times)]
    return [(tr("Time"), times), (tr("Waited"), duration(waited))]


def forecast_text(forecast: Forecast, labels: Mapping[str, str], now: float) -> str:
    """Return where and when a job would start.

    Args:
        labels: The labels of the devices, by id (see `device_labels`).
    """
    where = tr_list([labels.get(d, d) for d in forecast.devices])
    if forecast.wait is None:
        return tr("Starts now on {devices}", devices=where) if where else tr("Starts now")
    why = tr_text(headline(forecast.wait, now))
    if forecast.at is None:
        return tr("{why}; when it starts is not known", why=why)
    at = clock(forecast.at, now)
    if where:
        return tr("Starts about {time} on {devices}. {why}", time=at, devices=where, why=why)
    return tr("Starts about {time}. {why}", time=at, why=why)
