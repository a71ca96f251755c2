"""Describe calls in words, and ask the person to choose if a request may mean several of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from assistant.facts import phrases
from assistant.intents.tool_call import ToolCall

MAX_CHOICES = 3
_LONGEST = 80
"""Characters of a choice, which may have a long command."""
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
    """Offer one of the calls that a request may mean."""

    words: str
    """A line of plain text for the person."""
    call: ToolCall


def distinct_choices(calls: Iterable[ToolCall]) -> tuple[Choice, ...]:
    """Return a choice for each call whose description differs, in order."""
    described = {phrases.plain(describe(call), _LONGEST): call for call in reversed(list(calls))}
    return tuple(Choice(words, call) for words, call in reversed(described.items()))


def clarifying_question(choices: Sequence[Choice]) -> str:
    """Return the question which of the choices is meant, numbered, as Markdown."""
    listed = (
        f"{number}. {phrases.escaped(choice.words, 300)}"
        for number, choice in enumerate(choices, 1)
    )
    return "\n".join(
        [
            "I am not sure what you mean. Did you mean:",
            "",
            *listed,
            "",
            "Choose one, or rephrase your request.",
        ]
    )


def choice_by_number(choices: Sequence[Choice], answer: str) -> Choice | None:
    """Return the choice whose number was typed, or None."""
    return next(
        (
            choice
            for number, choice in enumerate(choices, 1)
            if answer.strip().rstrip(".") == str(number)
        ),
        None,
    )


def describe(call: ToolCall) -> str:
    """Describe a call in words, such as `why job 7 waits`."""
    return " ".join(_DESCRIPTIONS[call.name](call).split())


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
    stat, metric = _STATS.get(call.text("stat"), ""), _METRICS.get(call.text("metric"), "state")
    return f"the {stat}{metric} of {gpu or 'the devices'} {_when(call)}"


def _state(call: ToolCall) -> str:
    state = call.text("state")
    return "all jobs" if state in ("", "all") else f"the {state} jobs"


def _jobs(call: ToolCall, none: str) -> str:
    """Describe one job, or all jobs in a state."""
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


_DESCRIPTIONS: dict[str, Callable[[ToolCall], str]] = {
    "answer device": _metric,
    "answer history": _metric,
    "answer job": lambda call: f"how {_job(call)} is doing",
    "answer jobs": lambda call: f"list {_state(call)} {_when(call)}",
    "answer log": lambda call: f"what {_job(call)} printed",
    "answer waiting": lambda call: (
        f"why {_job(call)} waits" if call.job() is not None else "why jobs wait"
    ),
    "answer queue": lambda call: "how long the queue is",
    "answer energy": _energy,
    "answer compare": _compare,
    "answer alerts": lambda call: "the alerts",
    "answer docs": lambda call: "what the manual says about it",
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
    "housekeep undo": lambda call: "undo the last clean-up",
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
