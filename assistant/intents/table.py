"""What the assistant can be asked for: every role's tools with their arguments, and how a model says which of them a request needs.

A route is one line: `operate move job={n1} place=first`. Slots such as {n1} are those of `assistant.intents.masks`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SYSTEM = "Route."
"""The system turn before a request to be routed."""

NUMBER, WORD, TIME = "n", "w", "t"
"""Kinds of slots, see `assistant.intents.masks`."""


class Argument(NamedTuple):
    """What may follow `name=`: one of these words, or a slot of one of these kinds."""

    name: str
    words: tuple[str, ...] = ()
    slots: str = ""


class Tool(NamedTuple):
    """A tool of a role. Every argument may be left out: what is missing is the tool's to ask for, or to take as all, now or the last."""

    role: str
    name: str
    about: str
    arguments: tuple[Argument, ...] = ()


METRICS = ("temp", "power", "memory", "util", "tflops", "clock", "fan", "use", "processes", "name")
"""Of a device: `use` is whether it is idle and who holds it, `name` which kind it is."""
STATES = ("all", "running", "queued", "failed", "done", "cancelled", "lost")
WORKLOADS = ("attention", "compare", "validate", "tune", "gemm", "copy", "rain")
KINDS = ("caches", "logs", "dumps", "processes", "models", "memory", "results")
"""Of debris: kernel caches, old logs, core dumps, orphaned processes, duplicate model files, shared memory, old results."""

_JOB = Argument("job", ("last",), NUMBER + WORD)
_OTHER = Argument("other", (), NUMBER + WORD)
_GPU = Argument("gpu", (), NUMBER)
_METRIC = Argument("metric", METRICS)
_STATE = Argument("state", STATES)
_PERIOD = (
    Argument("minutes", (), NUMBER),
    Argument("hours", (), NUMBER),
    Argument("days", (), NUMBER),
    Argument("weeks", (), NUMBER),
    Argument("since", (), TIME),
    Argument(
        "period", ("hour", "today", "yesterday", "night", "day", "weekend", "week", "month", "all")
    ),
)
"""One of them at most: so many of them until now, since a time of day or a day, or a stretch that has a name."""

TOOLS = (
    Tool("answer", "device", "how the devices are now", (_METRIC, _GPU)),
    Tool(
        "answer",
        "history",
        "how a metric was over a time",
        (_METRIC, _GPU, Argument("stat", ("mean", "max", "min")), *_PERIOD),
    ),
    Tool("answer", "job", "how a job stands or how it went", (_JOB,)),
    Tool("answer", "jobs", "which jobs there are", (_STATE, *_PERIOD)),
    Tool("answer", "log", "what a job printed", (_JOB,)),
    Tool("answer", "waiting", "why a job waits, and when it starts", (_JOB,)),
    Tool("answer", "queue", "how long the queue is, and whether it is paused"),
    Tool("answer", "energy", "what used how much energy", (_JOB, _GPU, *_PERIOD)),
    Tool("answer", "compare", "two jobs or two devices side by side", (_JOB, _GPU, _OTHER)),
    Tool("answer", "alerts", "what is the matter with devices and jobs"),
    Tool(
        "answer",
        "docs",
        "how GPU Deck is used, and what its words mean: the request itself is looked up",
    ),
    Tool("answer", "help", "what the assistant can do"),
    Tool("answer", "other", "what the assistant cannot do"),
    Tool("report", "brief", "what happened", _PERIOD),
    Tool("report", "daily", "the report of a day", (Argument("period", ("today", "yesterday")),)),
    Tool("report", "job", "a report on one job", (_JOB,)),
    Tool("housekeep", "scan", "what can be cleaned up", (Argument("what", KINDS),)),
    Tool("housekeep", "undo", "take back a clean-up"),
    Tool("operate", "cancel", "end jobs", (_JOB, _STATE)),
    Tool(
        "operate",
        "move",
        "another place in the queue",
        (_JOB, Argument("place", ("first", "last", "before", "after")), _OTHER),
    ),
    Tool(
        "operate",
        "submit",
        "a new job",
        (
            Argument("workload", WORKLOADS),
            Argument("command", (), WORD),
            Argument("gpus", (), NUMBER),
        ),
    ),
    Tool("operate", "pause", "start nothing new, or hold one job", (_JOB,)),
    Tool("operate", "resume", "let the queue or one job go on", (_JOB,)),
    Tool("operate", "retry", "run a job that ended once more", (_JOB, _STATE)),
    Tool("operate", "kill", "end a process", (Argument("pid", (), NUMBER),)),
)
BY_NAME = {(tool.role, tool.name): tool for tool in TOOLS}
_SLOT = re.compile(r"\{([ntw])\d{1,2}\}")


class Route(NamedTuple):
    """What a request needs; arguments as they are in the line, slots unfilled."""

    role: str
    tool: str
    arguments: dict[str, str]

    def line(self) -> str:
        return " ".join(
            (self.role, self.tool, *(f"{name}={value}" for name, value in self.arguments.items()))
        )


def parse(line: str) -> Route:
    """A model's line. Raises ValueError for one that names no tool of `TOOLS`, or an argument or a value that the tool does not have."""
    words = line.split()
    role, name = (*words, "", "")[:2]
    if (tool := BY_NAME.get((role, name))) is None:
        raise ValueError(f"there is no tool {role} {name}")
    known = {argument.name: argument for argument in tool.arguments}
    arguments: dict[str, str] = {}
    for part in words[2:]:
        key, _, value = part.partition("=")
        if key not in known or key in arguments or not _fits(known[key], value):
            raise ValueError(f"the tool {role} {name} takes no {part}")
        arguments[key] = value
    return Route(role, name, arguments)


def _fits(argument: Argument, value: str) -> bool:
    slot = _SLOT.fullmatch(value)
    return slot[1] in argument.slots if slot else value in argument.words
