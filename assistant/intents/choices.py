"""What is asked back where a request may mean several things: each of them in words, for the person to choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from assistant.facts import phrases
from assistant.intents.tool_call import ToolCall

MOST = 3
"""Choices that are offered at most."""
_LONGEST = 80
"""Characters of a choice: a command may be long."""
_METRICS = {
    "temp": "temperature",
    "power": "power",
    "memory": "memory",
    "util": "utilisation",
    "tflops": "compute rate",
    "clock": "clock",
    "fan": "fan speed",
    "use": "state",
    "processes": "processes",
    "name": "name",
}
_STATS = {"mean": "mean ", "max": "highest ", "min": "lowest "}
_KINDS = {
    "caches": "kernel caches",
    "logs": "old logs",
    "dumps": "core dumps",
    "processes": "orphaned processes",
    "models": "duplicate models",
    "memory": "abandoned shared memory",
    "results": "old results",
}
_PERIODS = {
    "hour": "in the last hour",
    "night": "last night",
    "day": "in the last 24 hours",
    "weekend": "at the weekend",
    "week": "in the last week",
    "month": "in the last month",
    "all": "of all time",
}


class Choice(msgspec.Struct, frozen=True):
    """One of the things that a request may mean."""

    words: str
    """For the person: plain text of one line."""
    call: ToolCall


def choices(calls: Iterable[ToolCall]) -> tuple[Choice, ...]:
    """Those that differ in words, in their order."""
    told = {phrases.plain(said(call), _LONGEST): call for call in reversed(list(calls))}
    return tuple(Choice(words, call) for words, call in reversed(told.items()))


def question(asked: Sequence[Choice]) -> str:
    """Markdown: what may be meant, numbered."""
    listed = (
        f"{number}. {phrases.escaped(choice.words, 300)}" for number, choice in enumerate(asked, 1)
    )
    return "\n".join(
        [
            "I am not sure what you mean. Did you mean:",
            "",
            *listed,
            "",
            "Choose one, or say it in other words.",
        ]
    )


def numbered(asked: Sequence[Choice], answer: str) -> Choice | None:
    """The one whose number was typed; None where it is no number of theirs."""
    return next(
        (
            choice
            for number, choice in enumerate(asked, 1)
            if answer.strip().rstrip(".") == str(number)
        ),
        None,
    )


def said(call: ToolCall) -> str:
    """A call in words, such as `why job 7 waits`."""
    return " ".join(_SAID[call.name](call).split())


def _job(call: ToolCall, other: str = "the last job", name: str = "job") -> str:
    job = call.job(name)
    return other if job is None else "the last job" if job == "last" else f"job {job}"


def _gpu(call: ToolCall, other: str = "") -> str:
    return other if (gpu := call.integer("gpu")) is None else f"GPU {gpu}"


def _when(call: ToolCall) -> str:
    for unit in ("minutes", "hours", "days", "weeks"):
        if (count := call.number(unit)) is not None:
            return f"in the last {count:g} {unit}"
    if since := call.text("since"):
        return f"since {since}"
    return _PERIODS.get(call.text("period"), call.text("period"))


def _metric(call: ToolCall) -> str:
    gpu = _gpu(call)
    return f"the {_STATS.get(call.text('stat'), '')}{_METRICS.get(call.text('metric'), 'state')} of {gpu or 'the devices'} {_when(call)}"


def _state(call: ToolCall) -> str:
    state = call.text("state")
    return "all jobs" if state in ("", "all") else f"the {state} jobs"


def _jobs(call: ToolCall, none: str) -> str:
    """One job, or all in a state."""
    return _job(call) if call.job() is not None else _state(call) if call.text("state") else none


def _energy(call: ToolCall) -> str:
    whose = _job(call, "") or _gpu(call)
    return (
        f"the energy that {whose} used {_when(call)}"
        if whose
        else f"what used how much energy {_when(call)}"
    )


def _compare(call: ToolCall) -> str:
    one = _gpu(call) or _job(call)
    other = (
        f"GPU {call.job('other')}"
        if call.integer("gpu") is not None
        else _job(call, "its previous run", "other")
    )
    return f"compare {one} with {other}"


def _move(call: ToolCall) -> str:
    place = call.text("place")
    if place in ("before", "after"):
        return f"run {_job(call)} {place} {_job(call, 'another job', 'other')}"
    return f"move {_job(call)} to the {'end' if place == 'last' else 'front'} of the queue"


def _submit(call: ToolCall) -> str:
    what = call.text("command") or (
        f"the workload {call.text('workload')}" if call.text("workload") else "a new job"
    )
    gpus = call.integer("gpus")
    return f"run {what} {'' if gpus is None else f'on {gpus} GPUs'}"


_SAID: dict[str, Callable[[ToolCall], str]] = {
    "answer device": _metric,
    "answer history": _metric,
    "answer job": lambda call: f"how {_job(call)} stands",
    "answer jobs": lambda call: f"list {_state(call)} {_when(call)}",
    "answer log": lambda call: f"what {_job(call)} printed",
    "answer waiting": lambda call: (
        f"why {_job(call)} waits" if call.job() is not None else "why jobs wait"
    ),
    "answer queue": lambda call: "how long the queue is",
    "answer energy": _energy,
    "answer compare": _compare,
    "answer alerts": lambda call: "whether anything is wrong with devices or jobs",
    "answer docs": lambda call: "look it up in the manual",
    "answer help": lambda call: "what I can do",
    "answer other": lambda call: "something I cannot do",
    "report brief": lambda call: f"a report of what happened {_when(call)}",
    "report daily": lambda call: (
        f"the daily report {'of ' + call.text('period') if call.text('period') else ''}"
    ),
    "report job": lambda call: f"a report on {_job(call)}",
    "housekeep scan": lambda call: (
        f"find {_KINDS.get(call.text('what'), 'what can be cleaned up')}"
    ),
    "housekeep undo": lambda call: "take back the last clean-up",
    "operate cancel": lambda call: f"cancel {_jobs(call, 'a job')}",
    "operate move": _move,
    "operate submit": _submit,
    "operate pause": lambda call: (
        f"hold {_job(call)}" if call.job() is not None else "pause the queue"
    ),
    "operate resume": lambda call: (
        f"release {_job(call)}" if call.job() is not None else "resume the queue"
    ),
    "operate retry": lambda call: f"run {_jobs(call, 'a job')} again",
    "operate kill": lambda call: (
        f"end process {pid}" if (pid := call.integer("pid")) is not None else "end a process"
    ),
}
