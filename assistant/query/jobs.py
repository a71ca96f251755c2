"""Answer queries about jobs, from the queue, the store and the logs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec

from gpudeck.accel import result as results
from gpudeck.assistant.facts.fact import QUEUE
from gpudeck.assistant.facts.phrases import log_lines, plain
from gpudeck.assistant.query import estimates, printed
from gpudeck.assistant.query.find import MAX_JOBS, named_jobs
from gpudeck.assistant.query.groups import HELPERS
from gpudeck.assistant.query.remedies import obstacle_note, retry_note
from gpudeck.assistant.query.request import Query, Span
from gpudeck.assistant.query.rows import Column, Note, Row, Rows
from gpudeck.assistant.query.shape import shaped
from gpudeck.assistant.query.table import HELD, SUBJECTS
from gpudeck.assistant.query.used import used_so_far
from gpudeck.assistant.query.users import user_of, users_of
from gpudeck.assistant.retrieval.job_logs import ONE_LOG
from gpudeck.assistant.retrieval.job_logs import read as read_log
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import failures, paths
from gpudeck.scheduler.protocol import jobs as j
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.search import FAILED, Search, outcome
from gpudeck.scheduler.protocol.snapshot import Snapshot, label
from gpudeck.scheduler.protocol.wait_texts import explain

_LOG_LINES = 20
_SLOW = frozenset({"log", "failure", "stall", "estimate", "command", "tokens_per_joule"})
"""Measures that need each job by itself."""
_MOST_SLOW = 12
"""The most jobs that these are computed for."""
_TOLD = 3
"""The most running jobs of which an answer about jobs tells when they will end."""
_COURSE = 3
"""The fewest losses that tell which way they go."""
_WAITING = ("queued",)
_CONDITIONS = ("user", "group", "tag", "devices")
"""Conditions that may be met by no job, in the order in which they are left out then."""
_EVERY_JOB = 1_000_000
"""Jobs that are added up."""
_MOST_USERS = 10
"""Users whom a refusal names."""
_HOUR_S = 3600.0


class _Context:
    """Hold what the measures of jobs are computed from."""

    def __init__(self, daemon: Client, snapshot: Snapshot, span: Span | None) -> None:
        self.span = span or Span(0.0, time.time())
        self.daemon, self.now = daemon, time.time()
        self.snapshot = snapshot
        self.labels = {state.device.id: label(state.device) for state in snapshot.devices}
        self.devices = {state.device.id: state.device for state in snapshot.devices}
        self.power = {state.device.id: state.reading.get("power") for state in snapshot.devices
                      if state.reading is not None}  # fmt: skip
        self.notes: list[Note] = []
        self.alone = False
        """Whether each job's value stands by itself, and is not put together with others."""
        self.deadline = 0.0
        """Whether jobs have ended by this moment is asked for; 0.0: it is not."""
        self.log_lines, self.from_start = _LOG_LINES, False
        """How many lines of the output are asked for, and whether those of its start."""
        self.remedies = True
        """Whether the jobs are few enough to look into the log of each that failed."""


def jobs(daemon: Client, query: Query, snapshot: Snapshot) -> Rows:
    """Return a row for each job that the query names or describes. Raises NotFound."""
    context = _Context(daemon, snapshot, query.time)
    if query.measure == "log":  # the limit is of its lines
        context.log_lines, context.from_start = query.limit or _LOG_LINES, query.order == "up"
        query = msgspec.structs.replace(query, limit=0, order="")
    found, left_out = _chosen(daemon, query, snapshot)
    if not found and query.user and len(query.jobs) == 1:
        anybodys = msgspec.structs.replace(query, user="")
        found, left_out = _chosen(daemon, anybodys, snapshot)
    measures = _measures(query, found)
    if query.ahead and not query.measure:
        at = snapshot.time + query.ahead
        found = [job for job in found if job.active][: 2 * _MOST_SLOW]
        found = [job for job in found if _is_active_at(context, job, at)]
        measures = ["state", "estimate"]
        context.notes = [Note("then", (at,))]
    elif query.ahead:
        context.deadline = snapshot.time + query.ahead
    if query.states == _WAITING and not query.jobs:
        found = _unheld(context, query, found)
    if query.measure == "waited" and query.aggregate == "mean" and not query.states:
        found = [job for job in found if job.started is not None]  # the others wait for longer
    if query.group:
        context.notes += _limits_of(daemon, query.group)
    if not found:
        context.notes += _found_without(daemon, query, snapshot)
    measures += _told_of_states(context, query, found)
    wanted = [*measures, *(w.measure for w in query.where if w.measure not in measures)]
    wanted += [HELPERS[query.by]] if query.by in HELPERS else []
    if _SLOW & set(measures) and len(found) > _MOST_SLOW:
        found, left_out = found[:_MOST_SLOW], left_out + len(found) - _MOST_SLOW
    context.alone = bool(query.measure) and not (query.aggregate or query.by or query.other)
    context.remedies = len(found) <= _MOST_SLOW
    columns = tuple(Column(name, SUBJECTS["jobs"].measures[name].unit) for name in wanted)
    rows = tuple(_row(context, job, wanted) for job in found)
    made = Rows("jobs", columns, rows, QUEUE, context.now, query.time,
                notes=tuple(context.notes), left_out=left_out)  # fmt: skip
    return shaped(query, made)


def _measures(query: Query, found: Sequence[j.Job]) -> list[str]:
    """Return the measures that are told of jobs: the one that is asked for, with its company."""
    measures = [query.measure] if query.measure else list(SUBJECTS["jobs"].headline)
    if not query.measure and query.states and set(query.states) <= set(FAILED):
        measures.append("reason")  # whoever asks what failed asks why, too
    told = query.measure == "duration" and not (query.aggregate or query.by or query.other)
    if told or query.measure in ("reason", "failure", "estimate", "stall"):
        measures.append("state")
    owners = query.user.split(",") if query.jobs and query.user and not query.aggregate else []
    if owners and any(user_of(job) not in owners for job in found) and "user" not in measures:
        measures.insert(2, "user")  # the job that is named is somebody else's
    few = len(found) == 1 or (query.jobs and len(found) <= _TOLD)
    failed = any(outcome(job.state) in FAILED for job in found)
    if not query.measure and few and failed and "reason" not in measures:
        measures.append("reason")
    return measures


def _unheld(context: _Context, query: Query, found: list[j.Job]) -> list[j.Job]:
    """Return the waiting jobs that are not on hold, with a note of the others; if nothing else of a
    group waits, those that are."""
    held = [job for job in found if job.spec.hold]
    rest = [job for job in found if not job.spec.hold]
    if not rest and query.group:
        return held
    context.notes += [Note("held besides", (len(held),))] if held else []
    return rest


def _limits_of(daemon: Client, name: str) -> list[Note]:
    """Return a note of what keeps the jobs of a group from running, if something does."""
    groups = (state.group for state in daemon.groups() if state.group.name == name)
    return [Note("group", (one.name, one.limit, one.paused)) for one in groups
            if one.limit or one.paused]  # fmt: skip


def _told_of_states(context: _Context, query: Query, found: Sequence[j.Job]) -> list[str]:
    """Return the measures that are told with the state of jobs; notes say when those that run end,
    and why a few that wait do."""
    if query.measure not in ("", "state") or query.aggregate or query.by:
        return []
    going = [job for job in found if _reports_progress(job)][:_TOLD]
    for job in going:
        _estimated(context, job)
    waiting = [job for job in found if isinstance(job.state, j.Queued)]
    for job in waiting[:_TOLD] if query.jobs or len(found) <= _TOLD else ():
        _start(context, job)
    return ["progress", "loss"] if going and query.jobs and not query.measure else []


def _found_without(daemon: Client, query: Query, snapshot: Snapshot) -> list[Note]:
    """Return a note of the jobs that there are without the condition that none of them meets."""
    if query.jobs or not query.states:
        return []  # the answer says which job is not there; without states it would be any job
    for condition in _CONDITIONS:
        if not getattr(query, condition):
            continue
        wider = msgspec.structs.replace(query, **{condition: type(getattr(query, condition))()})
        found, left_out = _chosen(daemon, wider, snapshot)
        if found:
            named = ", ".join(f"{title(job)}, {user_of(job)}" if condition == "user" else title(job)
                              for job in found[:_TOLD])  # fmt: skip
            more = " ..." if len(found) + left_out > _TOLD else ""
            return [Note("others' jobs", (condition, len(found) + left_out, named + more))]
    return []


def _is_active_at(context: _Context, job: j.Job, at: float) -> bool:
    """Return whether a job that waits or runs will probably run at a moment."""
    if isinstance(job.state, j.Queued):
        begins = context.daemon.foresee_job(job.id).at
        return begins is not None and begins <= at
    left = estimates.time_left(context.daemon, job, context.now)
    return left is None or context.now + left.seconds > at


def _reports_progress(job: j.Job) -> bool:
    progress = job.state.progress if isinstance(job.state, j.Running) else None
    return progress is not None and 0 < progress.done < progress.total


def _chosen(daemon: Client, query: Query, snapshot: Snapshot) -> tuple[list[j.Job], int]:
    """Return the jobs, newest first, and how many there are besides them.

    A job that is named is told whoever's it is; of several, those of the user that is asked for.
    """
    query = _all_of_a_name(query)
    if query.jobs:
        named = named_jobs(daemon, query.jobs, several=True)
        kept = [job for job in named if not query.states or outcome(job.state) in query.states]
        own = [job for job in kept if user_of(job) in query.user.split(",")]
        return kept if not query.user or (len(kept) == 1 and not own) else own, 0
    span = query.time or Span(0.0, time.time())
    devices = {s.device.id for s in snapshot.devices if s.device.index in query.devices}
    if query.devices and not devices:
        raise NotFound(phrase("there is no GPU {number} on this machine", number=query.devices[0]))
    search = Search(
        text=query.text,
        outcomes=("queued",) if query.states == (HELD,) else query.states,
        group=query.group or None,
        since=span.since,
        until=span.until,
        device=devices.pop() if len(devices) == 1 else "",
    )
    adds_up = bool(query.aggregate or query.by) and not _SLOW & {query.measure}
    found, _ = daemon.find(search, _EVERY_JOB if adds_up else MAX_JOBS)
    if query.states == (HELD,):
        found = tuple(job for job in found if job.spec.hold)
    kept = [job for job in found if query.time is None or _within(job, span, query.states)]
    if query.user:
        kept = _of_user(query.user, kept, daemon)
    if query.tag:
        kept = [job for job in kept if query.tag.casefold() in map(str.casefold, job.spec.tags)]
    if query.text:
        kept = [job for job in kept if job.spec.name.casefold() == query.text.casefold()]
        if not kept:  # it raises NotFound where none has the name
            known = named_jobs(daemon, (query.text,), several=True)
            kept = list(known) if query.measure == "failure" else []
    if devices:
        kept = [job for job in kept if devices & set(j.held_devices(job) or _ran_on(job))]
    if query.aggregate in ("first", "last") and kept:
        ends = sorted(kept, key=lambda job: job.started or job.submitted)
        return [ends[0] if query.aggregate == "first" else ends[-1]], 0
    return kept, 0


def _all_of_a_name(query: Query) -> Query:
    """Return a query for all jobs of a name, if it says more of them than that; else as it is."""
    which = query.states or query.time is not None or query.user or query.aggregate
    name = query.jobs[0] if len(query.jobs) == 1 else None
    if not isinstance(name, str) or not which or query.other is not None:
        return query
    return msgspec.structs.replace(query, jobs=(), text=name)


def _of_user(name: str, found: Sequence[j.Job], daemon: Client) -> list[j.Job]:
    """Return the jobs of a user. Raises NotFound, with the users there are."""
    names = name.casefold().split(",")
    kept = [job for job in found if user_of(job).casefold() in names]
    if not kept and name not in (having := users_of(daemon.find(Search(), MAX_JOBS)[0])):
        known = (
            phrase("There are jobs of: {names}", names=", ".join(having[:_MOST_USERS]))
            if having
            else phrase("There are none")
        )
        raise NotFound(
            phrase(
                "no jobs are of a user called {name}. {known}", name=plain(name, 40), known=known
            )
        )
    return kept


def _ran_on(job: j.Job) -> tuple[str, ...]:
    return () if isinstance(job.state, j.Queued) else job.state.devices


def _within(job: j.Job, span: Span, states: Sequence[str]) -> bool:
    """Return whether the job ended, or without states also ran or waited, in that time."""
    if isinstance(job.state, j.Ended):
        if states:
            return span.since <= job.state.at <= span.until
        began = job.state.started or job.submitted
        return began <= span.until and job.state.at >= span.since
    return job.submitted <= span.until


def _row(context: _Context, job: j.Job, measures: Sequence[str]) -> Row:
    if _SLOW & set(measures) and job.cut:
        job = context.daemon.job(job.id)  # lists cut long commands off
    pairs = [_MEASURES[name](context, job) for name in measures]
    return Row(
        f"job{job.id}",
        title(job),
        tuple(value for value, _ in pairs),
        tuple(why for _, why in pairs),
    )


def title(job: j.Job) -> str:
    """Return a job's number and name, such as `job 7 (train)`; its name is made plain text."""
    return f"job {job.id} ({plain(job.spec.name, 60)})"


_Pair = printed.Pair


def _state(context: _Context, job: j.Job) -> _Pair:
    if isinstance(job.state, j.Running) and job.state.stopping:
        return "stopping", ""
    return outcome(job.state), ""


def _reason(context: _Context, job: j.Job) -> _Pair:
    """Return why it waits, failed, was lost or cancelled, as the queue says it."""
    state = job.state
    if isinstance(state, j.Running) and state.unreadable is not None:
        return explain(state.unreadable, context.now), ""
    if isinstance(state, j.Queued):
        context.notes.append(_forecast(context, job))
        context.notes += filter(None, [obstacle_note(job, context.snapshot)])
        return explain(state.wait, context.now), ""
    if isinstance(state, j.Failed | j.Lost) and context.remedies:
        _remedy(context, job)
    found: Message = getattr(state, "reason", "")
    return (found, "") if found else (None, "")


def _forecast(context: _Context, job: j.Job) -> Note:
    """Return a note on how many jobs are ahead of a job that waits, and when it starts."""
    active = context.daemon.jobs(MAX_JOBS, active=True)
    queue = sorted((one for one in active if isinstance(one.state, j.Queued)), key=j.turn)
    ahead = [other.id for other in queue].index(job.id) if job.id in {o.id for o in queue} else 0
    found = context.daemon.foresee_job(job.id)
    on = ", ".join(context.labels.get(device, device) for device in found.devices)
    return Note("forecast", (job.id, ahead, found.at, on))


def _remedy(context: _Context, job: j.Job) -> None:
    lines = read_log(job.id, ONE_LOG).lines
    found = failures.recognized(lines)
    if found is not None:
        context.notes.append(Note("failure", (job.id, found.kind, plain(found.line, 300))))
    again = retry_note(job, found.kind if found is not None else "", lines, context.snapshot)
    context.notes += filter(None, [again])


def _failure(context: _Context, job: j.Job) -> _Pair:
    if not isinstance(job.state, j.Failed | j.Lost):
        return None, ""
    _remedy(context, job)
    return job.state.reason, ""


def _duration(context: _Context, job: j.Job) -> _Pair:
    began = job.started
    if began is None:
        return None, "it has not started" if job.active else "it never started"
    end = job.state.at if isinstance(job.state, j.Ended) else context.now
    return end - began, ""


def _waited(context: _Context, job: j.Job) -> _Pair:
    began = job.started
    if began is None and not job.active:
        return None, "it never started"
    return (began if began is not None else context.now) - job.submitted, ""


def _start(context: _Context, job: j.Job) -> _Pair:
    if isinstance(job.state, j.Queued):
        context.notes.append(Note("waits", (job.id, explain(job.state.wait, context.now))))
        context.notes += filter(None, [obstacle_note(job, context.snapshot)])
        context.notes.append(_forecast(context, job))
    began = job.started
    return (began, "") if began is not None else (None, "it has not started")


def _end(context: _Context, job: j.Job) -> _Pair:
    if isinstance(job.state, j.Ended):
        return job.state.at, ""
    _estimated(context, job)
    return None, "it has not ended yet"


def _progress(context: _Context, job: j.Job) -> _Pair:
    progress = job.state.progress if isinstance(job.state, j.Running) else None
    if progress is None or progress.total <= 0:
        return None, "it reports no progress" if job.active else "it has ended"
    return 100 * progress.done / progress.total, ""


def _estimated(context: _Context, job: j.Job) -> estimates.Estimate | None:
    """Return the time that a job has left, with a note on what that rests on."""
    found = estimates.time_left(context.daemon, job, context.now)
    if found is not None:
        values = (job.id, found.seconds, found.low, found.high, found.runs, context.now)
        if context.deadline and isinstance(job.state, j.Running):
            ends = context.now + found.seconds
            context.notes.append(Note("deadline", (job.id, ends, context.deadline, context.now)))
        context.notes.append(Note("estimate", values))
    return found


def _estimate(context: _Context, job: j.Job) -> _Pair:
    if isinstance(job.state, j.Ended):
        past = estimates.spread(
            [job.state.at - (job.state.started or job.state.at),
             *estimates.past_durations(context.daemon, job)]
        )  # fmt: skip
        assert past is not None
        context.notes.append(Note("runs", (job.id, *past)))
        return None, "it has ended"
    if isinstance(job.state, j.Queued):
        context.notes.append(Note("waits", (job.id, explain(job.state.wait, context.now))))
        context.notes += filter(None, [obstacle_note(job, context.snapshot)])
        context.notes.append(_forecast(context, job))
    found = _estimated(context, job)
    if found is None:
        return None, "it reports no progress, and no earlier run of its name succeeded"
    return found.seconds, ""


def _stall(context: _Context, job: j.Job) -> _Pair:
    if not isinstance(job.state, j.Running):
        if isinstance(job.state, j.Queued):
            context.notes.append(_forecast(context, job))
        return None, "it does not run"
    found = estimates.liveness(context.daemon, job, context.now)
    context.notes.append(Note("liveness", (job.id, *found[1:])))
    return "stuck" if found.stuck else "not stuck", ""


def _used(field: str) -> Callable[[_Context, j.Job], _Pair]:
    def measure(context: _Context, job: j.Job) -> _Pair:
        if job.usage is None:
            if isinstance(job.state, j.Running):
                context.notes += [Note("so far", (job.id,))] if job.state.devices else []
                return used_so_far(context.daemon, job.state, context.devices, field, context.now)
            if job.active:
                return None, "it has not started"
            return None, "it was not sampled" if job.spec.gpus else "it held no device"
        if field in job.usage.absent:
            return None, job.usage.absent[field]
        return float(getattr(job.usage, field)), ""

    return measure


def _tflops(context: _Context, job: j.Job) -> _Pair:
    if job.result is None:
        return None, phrase("it wrote no result")
    try:
        found = results.read(job.result)
    except msgspec.MsgspecError:
        return None, "the job left a file that is not a Result"
    return (found.tflops, "") if found.flops else (None, "it measured no rate")


def _tokens_per_joule(context: _Context, job: j.Job) -> _Pair:
    if isinstance(job.state, j.Running):
        powers = [context.power.get(device) for device in job.state.devices]
        known = [power for power in powers if isinstance(power, int | float)]
        whole = len(known) == len(powers) and bool(known)
        return printed.tokens_per_joule(job, math.fsum(known) if whole else None)
    used = job.usage
    mean = used.energy / used.seconds if used is not None and used.seconds else None
    return printed.tokens_per_joule(job, mean)


def _loss(context: _Context, job: j.Job) -> _Pair:
    course = [value for value in printed.losses(job) if math.isfinite(value)]
    if context.alone and isinstance(job.state, j.Running) and len(course) >= _COURSE:
        context.notes.append(Note("course", (job.id, course[0], course[-1], len(course))))
    return printed.loss(job)


def _backend(context: _Context, job: j.Job) -> _Pair:
    try:
        found = results.read(job.result).backend if job.result is not None else ""
    except msgspec.MsgspecError:
        found = ""
    return (plain(found, 60), "") if found else (None, phrase("its result names no backend"))


def _gpu_hours(context: _Context, job: j.Job) -> _Pair:
    held = j.held_seconds(job, min(context.span.until, context.now), context.span.since)
    return j.held_gpus(job) * held / _HOUR_S, ""


def _devices(context: _Context, job: j.Job) -> _Pair:
    names = [context.labels.get(device, device) for device in _ran_on(job)]
    return (", ".join(names), "") if names else (None, "it held no device")


def _log(context: _Context, job: j.Job) -> _Pair:
    all_lines = (
        log_lines(context.daemon.log(job.id, 0, ONE_LOG))
        if context.from_start
        else read_log(job.id, ONE_LOG).lines
    )
    lines = [line for line in all_lines if line.strip()]
    lines = lines[: context.log_lines] if context.from_start else lines[-context.log_lines :]
    return ("\n".join(lines), "") if lines else (None, "it printed nothing")


def _command(context: _Context, job: j.Job) -> _Pair:
    return plain(" ".join(job.spec.argv), 400), ""


_MEASURES: dict[str, Callable[[_Context, j.Job], _Pair]] = {
    "state": _state,
    "reason": _reason,
    "duration": _duration,
    "waited": _waited,
    "submitted": lambda context, job: (job.submitted, ""),
    "start": _start,
    "end": _end,
    "progress": _progress,
    "estimate": _estimate,
    "stall": _stall,
    "failure": _failure,
    "energy": _used("energy"),
    "gpu_hours": _gpu_hours,
    "user": lambda context, job: (user_of(job), ""),
    "name": lambda context, job: (plain(job.spec.name, 60) or None, "it has none"),
    "group": lambda context, job: (plain(job.spec.group, 60) or None, "it is in none"),
    "memory": _used("memory"),
    "util": _used("util"),
    "tflops": _tflops,
    "loss": _loss,
    "backend": _backend,
    "tokens_per_joule": _tokens_per_joule,
    "devices": _devices,
    "gpus": lambda context, job: (job.spec.gpus, ""),
    "priority": lambda context, job: (job.spec.priority, ""),
    "command": _command,
    "tags": lambda context, job: (plain(", ".join(job.spec.tags), 200) or None, "it has none"),
    "log": _log,
    "files": lambda context, job: (str(paths.job_folder(job.id)), ""),
}
