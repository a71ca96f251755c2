"""The table of what can be asked for: the tools of each role with their arguments.

A model names a tool by a route, a line such as `operate move job={n1} place=first`. Slots such as
{n1} are those of `assistant.intents.masks`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from assistant.query.table import WORKLOADS

SYSTEM = "Route."
"""The system turn of the prompt that asks a model for a route."""

NUMBER, WORD, TIME = "n", "w", "t"
"""The kinds of slots (see `assistant.intents.masks`)."""


class Argument(NamedTuple):
    """Describe an argument: its value is one of these words, or a slot of one of these kinds."""

    name: str
    words: tuple[str, ...] = ()
    slots: str = ""


class Tool(NamedTuple):
    """Describe a tool. Every argument is optional; the tool asks for it or has a default."""

    role: str
    name: str
    about: str
    arguments: tuple[Argument, ...] = ()


METRICS = ("temp", "power", "memory", "util", "tflops", "clock", "fan", "use", "processes", "name")
"""Metrics of a device: `use` is whether it is idle and who holds it, `name` is its model."""
STATES = ("all", "running", "queued", "failed", "done", "cancelled", "lost")
KINDS = ("caches", "logs", "dumps", "processes", "models", "memory", "results")
"""Kinds of debris that can be cleaned up."""

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
"""At most one of these: a number of units until now, a time or day since when, or a named span."""

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
    """Name a tool and its arguments as in the model's line, with slots that are not filled."""

    role: str
    tool: str
    arguments: dict[str, str]

    def line(self) -> str:
        """Return the route as a line, such as `operate cancel job={n1}`."""
        return " ".join(
            (self.role, self.tool, *(f"{name}={value}" for name, value in self.arguments.items()))
        )


def parse(line: str) -> Route:
    """Parse a model's line. Raises ValueError for an unknown tool, argument or value."""
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
