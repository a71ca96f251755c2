"""The one table of what can be asked and ordered.

The command line, the parser of requests, the answers and the manual are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gpudeck.accel.workloads import catalog
from gpudeck.assistant.language.glossary import MEANINGS
from gpudeck.assistant.language.guides import GUIDES
from gpudeck.assistant.query.request import Query
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.search import ACTIVE, ENDED, OUTCOMES


class Measure(NamedTuple):
    """Describe a measure: its title and unit, and whether it can be asked for over a time."""

    title: str
    unit: str = ""
    history: bool = False


class Subject(NamedTuple):
    """Describe a subject: what it is, its measures, and those shown where none is asked for."""

    about: str
    measures: Mapping[str, Measure] = MappingProxyType({})
    headline: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()


AGGREGATES = {
    "sum": "total",
    "mean": "mean",
    "max": "highest",
    "min": "lowest",
    "count": "number",
    "first": "first",
    "last": "last",
}
GROUPINGS = ("user", "name", "group", "day", "hour")
"""Rows are added up by the user of processes or jobs, by what names jobs, or by their time; values
of devices by days, or by hours."""
_TEXTS = frozenset({"throttle", "xid"})
"""Fields of readings whose texts say more than their numbers."""

_DEVICE = {
    name: Measure(field.label, "" if name in _TEXTS else field.unit, name not in _TEXTS)
    for name, field in FIELDS.items()
} | {
    "energy": Measure("Energy", "J", True),
    "use": Measure("State"),
    "idle_time": Measure("Idle time", "s", True),
    "busy_time": Measure("Busy time", "s", True),
    "name": Measure("Model"),
    "holder": Measure("Holder"),
    "health": Measure("Health"),
    "driver": Measure("Driver"),
    "uptime": Measure("On since", "moment"),
    "flops_per_watt": Measure("Rate per watt", "GFLOP/s per W"),
}
_JOB = {
    "state": Measure("State"),
    "reason": Measure("Reason"),
    "duration": Measure("Run time", "s"),
    "waited": Measure("Wait time", "s"),
    "submitted": Measure("Submitted", "moment"),
    "start": Measure("Started", "moment"),
    "end": Measure("Ended", "moment"),
    "progress": Measure("Progress", "%"),
    "estimate": Measure("Time left", "s"),
    "stall": Measure("Stuck?"),
    "failure": Measure("Cause"),
    "energy": Measure("Energy", "J"),
    "gpu_hours": Measure("GPU hours", "h"),
    "user": Measure("User"),
    "name": Measure("Name"),
    "group": Measure("Group"),
    "memory": Measure("Peak memory on a GPU", "B"),
    "util": Measure("Avg utilisation", "%"),
    "tflops": Measure("Rate", "TFLOP/s"),
    "loss": Measure("Loss"),
    "tokens_per_joule": Measure("Tokens per joule", "tokens/J"),
    "devices": Measure("On"),
    "gpus": Measure("GPUs"),
    "priority": Measure("Priority"),
    "backend": Measure("Backend"),
    "command": Measure("Command"),
    "tags": Measure("Tags"),
    "log": Measure("Output"),
    "files": Measure("Files"),
}


class Verb(NamedTuple):
    """Describe a verb: what it does, what it takes, and the states of jobs that it is for."""

    about: str
    takes: tuple[str, ...] = ()
    states: tuple[str, ...] = ()


_JOBS = ("jobs", "states", "group", "user", "exclude", "devices")
VERBS = {
    "cancel": Verb("cancel jobs that wait, and end jobs that run", _JOBS, ACTIVE),
    "hold": Verb("keep jobs that wait from starting", (*_JOBS, "options"), ("queued",)),
    "release": Verb("let held jobs start, and bring suspended ones back", _JOBS, ("queued",)),
    "suspend": Verb(
        "take running jobs off their GPUs for a while", (*_JOBS, "options"), ("running",)
    ),
    "pause": Verb("start no new jobs of the queue or of a group", ("group",)),
    "resume": Verb("let the queue or a group start jobs again", ("group",)),
    "retry": Verb("run jobs that ended again as new jobs", (*_JOBS, "options"), ENDED),
    "edit": Verb("change the options of jobs that wait", (*_JOBS, "options"), ("queued",)),
    "move": Verb(
        "give a job that waits another place",
        ("jobs", "user", "devices", "place", "beside"),
        ("queued",),
    ),
    "priority": Verb("change the priority of jobs that wait", (*_JOBS, "number"), ("queued",)),
    "submit": Verb("queue a new job", ("command", "workload", "params", "options", "text")),
    "kill": Verb("end a process that uses a GPU", ("number", "devices", "user", "text")),
    "drain": Verb("start no new jobs on GPUs", ("devices",)),
    "undrain": Verb("let jobs start again on drained GPUs", ("devices",)),
    "limit": Verb("limit how many jobs of a group run at once", ("group", "number")),
    "note": Verb("add a note to jobs", ("jobs", "text")),
    "acknowledge": Verb("record that an alert was seen", ("number",)),
    "set": Verb("change a setting", ("setting", "text", "devices")),
    "book": Verb("keep GPUs free for a time", ("devices", "number", "options", "user")),
    "unbook": Verb("end a booking of GPUs", ("devices", "options", "user")),
    "free": Verb(
        "suspend the jobs on GPUs, and keep these free for a time", ("devices", "options")
    ),
    "undo": Verb("undo the last clean-up"),
}

SUBJECTS = {
    "devices": Subject(
        "GPUs, or the CPU of a machine without one",
        _DEVICE,
        ("use", "util", "mem_used", "tflops", "temp", "power"),
        ("devices", "exclude", "model", "jobs", "states", "where", "time"),
    ),
    "jobs": Subject(
        "jobs that wait, run or have ended",
        _JOB,
        ("state", "duration"),
        ("jobs", "states", "user", "group", "tag", "devices", "where", "time"),
    ),
    "processes": Subject(
        "processes that use a GPU",
        {
            "memory": Measure("Memory", "B"),
            "util": Measure("SM share", "%"),
            "user": Measure("User"),
            "job": Measure("Job"),
        },
        ("user", "job", "memory"),
        ("devices", "user", "where"),
    ),
    "alerts": Subject(
        "alerts, now or in a time",
        {
            "text": Measure("Alert"),
            "raised": Measure("Raised", "moment"),
            "rules": Measure("Threshold"),
        },
        ("text", "raised"),
        ("devices", "jobs", "time"),
    ),
    "queue": Subject("the queue and its groups", {}, (), ("group",)),
    "limits": Subject(
        "how much users may use",
        {"gpus": Measure("GPUs at once"), "hours": Measure("GPU hours in seven days", "h")},
        (),
        ("user",),
    ),
    "events": Subject(
        "what was done with jobs, and when",
        {
            "time": Measure("When", "moment"),
            "what": Measure("What"),
            "text": Measure("Details"),
            "user": Measure("User"),
        },
        (),
        ("jobs", "states", "user", "group", "time"),
    ),
    "bookings": Subject("for whom GPUs are kept, and when", {}, (), ("devices", "user", "time")),
    "machines": Subject("other machines that are watched"),
    "capacity": Subject(
        "where and when a job would start (a dry run)",
        {},
        (),
        ("devices", "gpus", "amount", "limit", "model", "time"),
    ),
    "settings": Subject("settings with their values", {}, (), ("text",)),
    "attention": Subject(
        "which backend would compute attention on a GPU",
        {
            "forward": Measure("Forward pass", "TFLOP/s"),
            "backward": Measure("Backward pass", "TFLOP/s"),
        },
        (),
        ("devices", "model", "text"),
    ),
    "versions": Subject(
        "versions of GPU Deck and of what it runs on",
        {
            "gpudeck": Measure("GPU Deck"),
            "driver": Measure("Driver"),
            "cuda": Measure("CUDA"),
            "torch": Measure("torch"),
            "triton": Measure("Triton"),
        },
    ),
    "models": Subject(
        "models for the assistant, those that are served, and the largest that fits",
        {"served": Measure("Served models"), "largest": Measure("The largest model that fits")},
    ),
    "manual": Subject(
        "the manual, and how something is done",
        {name: Measure(verb.about) for name, verb in VERBS.items()}
        | {f"what {term}": Measure(term) for term in MEANINGS}
        | {f"how {guide}": Measure(guide) for guide in GUIDES},
        (),
        ("text",),
    ),
    "logs": Subject("lines of jobs' output that contain words", {}, (), ("jobs", "text")),
    "conversion": Subject("a quantity in another unit", {}, (), ("amount", "unit", "to")),
    "overview": Subject("alerts, failures, jobs and devices at once", {}, (), ("time",)),
    "debris": Subject("what can be cleaned up", {}, (), ("text",)),
    "code": Subject("attention in your code that can be accelerated", {}, (), ("text",)),
    "report": Subject("a report on a job or a time", {}, (), ("jobs", "time", "text")),
    "help": Subject("what the assistant can do"),
}
ROWS = ("devices", "jobs", "processes", "alerts", "queue", "limits", "events", "bookings",
        "machines", "capacity", "settings", "attention", "versions", "models",
        "conversion")  # fmt: skip
"""Subjects whose answers are rows; the others quote, search or report."""

WORKLOADS = tuple(workload.name for workload in catalog.WORKLOADS)
USES = ("idle", "busy")
"""States of devices; those of jobs are OUTCOMES."""
HELD = "held"
"""The state of a job that waits and is on hold."""


MOST_NAMED = 1000
"""Devices, jobs or states in one query: each job that is named is asked for by itself."""


def check(query: Query) -> Query:
    """Return the query. Raises UserError for what the table does not allow."""
    subject = SUBJECTS.get(query.subject)
    if subject is None:
        raise UserError(
            phrase(
                "nothing is called {subject}. There are: {names}",
                subject=repr(query.subject),
                names=", ".join(SUBJECTS),
            )
        )
    for measure in filter(None, (query.measure, *(where.measure for where in query.where))):
        if measure not in subject.measures:
            known = ", ".join(subject.measures) or "none"
            raise UserError(
                phrase(
                    "{subject} have no measure {measure}. There are: {known}",
                    subject=query.subject,
                    measure=repr(measure),
                    known=known,
                )
            )
    if query.aggregate and query.aggregate not in AGGREGATES:
        raise UserError(
            phrase(
                "no aggregate is called {aggregate}: use {names}",
                aggregate=repr(query.aggregate),
                names=", ".join(AGGREGATES),
            )
        )
    if query.by and query.by not in GROUPINGS:
        raise UserError(
            phrase(
                "rows are not grouped by {by}: use {names}",
                by=repr(query.by),
                names=", ".join(GROUPINGS),
            )
        )
    states = USES if query.subject == "devices" else (*OUTCOMES, HELD)
    if unknown := set(query.states) - set(states):
        raise UserError(
            phrase(
                "there is no state {names}: use {states}",
                names=", ".join(sorted(unknown)),
                states=", ".join(states),
            )
        )
    for name in ("devices", "exclude", "model", "jobs", "time", "states", "user", "group", "tag"):
        if getattr(query, name) and name not in subject.filters:
            raise UserError(
                phrase("{subject} cannot be chosen by {name}", subject=query.subject, name=name)
            )
    for name in ("devices", "jobs", "states"):
        if len(getattr(query, name)) > MOST_NAMED:
            raise UserError(phrase("a query names at most {n} {name}", n=MOST_NAMED, name=name))
    if any(isinstance(n, int) and not -1 <= n < 2**63 for n in (*query.devices, *query.jobs)):
        raise UserError(phrase("the number of a GPU or a job is from 0 to 9223372036854775807"))
    if query.other is not None:
        check(query.other)
    return query
