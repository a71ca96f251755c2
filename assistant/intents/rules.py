"""Recognize the tool of a request by rules: of its role, the first rule that matches decides.

The rules read the masked request (see `assistant.intents.masks`), so a name that reads like a
command is not taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from assistant.facts.selection import JOB_TOPICS, TOPICS, first
from assistant.intents import patterns as p
from assistant.intents.masks import masked
from assistant.intents.roles import role_of
from assistant.intents.table import KINDS, STATES
from assistant.intents.tool_call import ToolCall, Value, tool_call


def _topics(table: dict[str, tuple[str, tuple[str, ...]]]) -> dict[str, str]:
    """Return the words that name each topic."""
    return {name: words for name, (words, _) in table.items()}


def by_rules(request: str, names: Iterable[str] = ()) -> ToolCall | None:
    """Return the call that a request asks for, or None if no tool does what it asks for.

    Args:
        request: The request as it was typed.
        names: The names of jobs.
    """
    text, values = masked(request, names)
    return _Reading(" ".join(text.lower().split()), values).call()


class _Reading:
    """Read one masked request."""

    def __init__(self, text: str, values: dict[str, str]) -> None:
        self._text, self._values = text, values

    def call(self) -> ToolCall | None:
        try:
            match role_of(self._text):
                case "operate":
                    return self._operate()
                case "housekeep":
                    return self._housekeep()
                case "report":
                    return self._report()
                case "answer":
                    return self._answer()
        except (
            ValueError
        ):  # it names the right thing with a value out of bounds: a job of more than 18 digits
            return tool_call("answer", "other")

    def _operate(self) -> ToolCall | None:
        says = self._says
        if says(r"(?:process|pid)\b.*\{n\d+\}"):
            return tool_call("operate", "kill", pid=self._first(p.ANY))
        if says(
            r"pause|hold|on ice|freeze|suspend|stop (?:starting|launching)|(?:don't|do not)"
            r" start|no (?:more|new) jobs"
        ):
            return tool_call("operate", "pause", job=self._job(p.ANY))
        if says(r"resume|unpause|release|unfreeze|continue|carry on|go on|start jobs again"):
            return tool_call("operate", "resume", job=self._job(p.ANY))
        if says(r"retry|re-?run|resubmit|restart|again|once more|more try|another try"):
            return tool_call(
                "operate",
                "retry",
                job=(job := self._job(p.ANY)),
                state=None if job else first(self._text, p.STATES),
            )
        if says(r"(?:put|bring) .* (?:into|in|on) the queue"):
            return self._submit()
        if p.COMPARE.search(self._text) and (
            compared := self._compare(self._job(p.JOB), self._first(p.GPU))
        ):
            return compared
        if says(p.MOVES):
            return self._move()
        if says(
            r"cancel|stop|kill|abort|end|terminate|delete|remove|call off|nuke|get rid of|clear"
        ):
            job = self._job(p.ANY)
            state = "queued" if self._says("clear the queue") else first(self._text, p.STATES)
            return tool_call("operate", "cancel", job=job, state=None if job else state)
        return (
            self._submit()
            if says(r"start|run|launch|submit|queue|enqueue|benchmark|measure|execute|time|tune")
            else None
        )

    def _move(self) -> ToolCall | None:
        found = [self._values[slot.strip("{}")] for slot in p.ANY.findall(self._text)]
        beside = re.search(r"\b(before|after|behind|ahead of)\b", self._text)
        if len(found) > 1 and beside:
            place = "before" if beside[1] in ("before", "ahead of") else "after"
            return tool_call("operate", "move", job=found[0], place=place, other=found[1])
        last = self._says(r"last|(?:to the |the )(?:end|back|bottom)")
        return tool_call(
            "operate", "move", job=found[0] if found else None, place="last" if last else "first"
        )

    def _submit(self) -> ToolCall | None:
        gpus = p.GPUS.search(self._text)
        count = None if gpus is None else self._value(gpus[1]) if gpus[1] else "1"
        if workload := first(self._text, p.WORKLOADS):
            return tool_call("operate", "submit", workload=workload)
        command = re.search(r"\{w\d+\}", self._text)
        return tool_call(
            "operate", "submit", command=self._value(command[0]) if command else None, gpus=count
        )

    def _housekeep(self) -> ToolCall:
        if self._says(r"undo|take back|revert"):
            return tool_call("housekeep", "undo")
        return tool_call(
            "housekeep", "scan", what=first(self._text, {kind: p.KINDS[kind] for kind in KINDS})
        )

    def _report(self) -> ToolCall:
        if (job := self._job(p.JOB)) is not None:
            return tool_call("report", "job", job=job)
        if self._says(r"daily|day report|today's|yesterday's|report (?:of|on|for) the day"):
            return tool_call(
                "report", "daily", period="yesterday" if self._says("yesterday") else "today"
            )
        return tool_call("report", "brief", **self._period())

    def _answer(self) -> ToolCall:
        job, gpu, text = self._job(p.JOB), self._first(p.GPU), self._text
        if p.HELP.match(text):
            return tool_call("answer", "help")
        if p.DOCS.search(text):
            return tool_call("answer", "docs")
        if p.ALERTS.search(text):
            return tool_call("answer", "alerts")
        if p.COMPARE.search(text) and (found := self._compare(job, gpu)) is not None:
            return found
        if p.WAITS.search(text) and (
            job is not None or self._says(r"(?:my|the|this) (?:job|run)|it|i")
        ):
            return tool_call("answer", "waiting", job=job)
        if p.QUEUE.search(text):
            return tool_call("answer", "queue")
        if p.ENERGY.search(text) or self._says(r"which job.*power|power (?:hog|hungry)"):
            return tool_call("answer", "energy", job=job, gpu=gpu, **self._period())
        if p.LOG.search(text) and (
            job is not None or self._says(r"logs?|printed|output|traceback")
        ):
            return tool_call("answer", "log", job=job)
        if job is not None:
            return tool_call("answer", "job", job=job)
        if (named := re.search(r"\{w\d+\}", text)) and first(text, _topics(JOB_TOPICS)):
            return tool_call("answer", "job", job=self._value(named[0]))
        return self._metric(gpu) or self._jobs() or tool_call("answer", "other")

    def _compare(self, job: str | None, gpu: str | None) -> ToolCall | None:
        slots: list[str] = p.ANY.findall(self._text)
        other = self._value(slots[1]) if len(slots) > 1 else None
        if gpu is not None:
            return (
                tool_call("answer", "compare", gpu=gpu, other=other) if other is not None else None
            )
        if job is None and slots:
            job = self._value(slots[0])
        return tool_call("answer", "compare", job=job, other=other) if job is not None else None

    def _metric(self, gpu: str | None) -> ToolCall | None:
        """Return a call for a metric of devices, now or over a span of time."""
        metric = first(self._text, _topics(TOPICS))
        if metric is None:
            return None
        stat, period = first(self._text, p.STATS), self._period()
        if metric not in ("use", "processes", "name") and (stat or period):
            return tool_call("answer", "history", metric=metric, gpu=gpu, stat=stat, **period)
        return tool_call("answer", "device", metric=metric, gpu=gpu)

    def _jobs(self) -> ToolCall | None:
        state = first(self._text, _topics(JOB_TOPICS))
        if state is None and not p.RAN.search(self._text):
            return None
        return tool_call(
            "answer", "jobs", state=state if state in STATES else "all", **self._period()
        )

    def _period(self) -> dict[str, Value]:
        """Return the argument that names the span of time; empty if there is none."""
        if ago := p.AGO.search(self._text):
            return {p.UNITS[ago[2]]: self._value(ago[1])}
        if since := p.SINCE.search(self._text):
            return {"since": self._value(since[1])}
        if self._says("this morning"):
            return {"since": p.MORNING}
        if self._says("tonight"):
            return {"since": p.EVENING}
        named = first(self._text, p.PERIODS)
        return {"period": named} if named else {}

    def _job(self, pattern: re.Pattern[str]) -> str | None:
        """Return the number or name of the job that the request names."""
        return self._first(p.JOB) or ("last" if self._says(p.LAST) else self._first(pattern))

    def _first(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.search(self._text)
        return (
            None if found is None else self._value(next(filter(None, (*found.groups(), found[0]))))
        )

    def _value(self, slot: str) -> str:
        return self._values[slot.strip("{}")]

    def _says(self, words: str) -> bool:
        return re.search(rf"\b(?:{words})(?!\w)", self._text) is not None
