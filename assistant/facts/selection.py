"""Select the facts that a request is about, by the devices and jobs it names and by its words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from assistant.facts import Fact

TOPICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "temp": (
        r"temp(?:erature)?s?|overheat(?:ing|ed)?|hot(?:ter|test)?|heat|warm|cool|celsius|degrees|thermal",
        ("temp", "temp.mean", "temp.max"),
    ),
    "power": (r"power|watts?|energy|draw", ("power", "power_limit", "power.mean", "power.max")),
    "memory": (
        r"memory|vram|ram|mib|gib",
        ("mem_used", "mem_total", "mem_free", "mem_used.mean", "mem_used.max"),
    ),
    "util": (r"utili[sz]ation|usage|load|how busy|percent", ("util", "util.mean", "util.max")),
    "tflops": (r"tflops?(?:/s)?|flops?|throughput", ("tflops", "tflops.mean", "tflops.max")),
    "clock": (r"clocks?|clock speed|mhz|frequency", ("clock_sm",)),
    "fan": (r"fans?|fan speed|rpm", ("fan",)),
    "use": (
        r"idle|free|busy|available|in use|who (?:has|uses|is using|holds)|process(?:es)?",
        ("use", "holder", "process"),
    ),
    "name": (
        r"which (?:gpus?|devices?|cpu|card)|what (?:gpus?|devices?|cpu|card)|hardware|how "
        r"many (?:gpus?|devices?)",
        ("name", "note"),
    ),
}
"""By topic: the words that name it, and the facts of a device that belong to it."""

JOB_TOPICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "failed": (
        r"fail(?:ed|s|ure|ures)?|errors?|crash(?:ed)?|wrong|broke(?:n)?|lost",
        ("failed", "lost"),
    ),
    "queued": (r"wait(?:s|ing)?|queued?|pending|next", ("queued",)),
    "running": (r"running|runs|progress|how (?:far|long)|left|eta|now", ("running", "starting")),
    "done": (
        r"done|finished|completed?|results?|verdict|succeed(?:ed)?|fast|speed|latency|median|p95|backend",
        ("done",),
    ),
    "cancelled": (r"cancel(?:l?ed)?", ("cancelled",)),
}
"""By topic: the words that name it, and the states of jobs that belong to it."""


def first(text: str, words: Mapping[str, str]) -> str | None:
    """Return the first of `words` whose regular expression occurs in a lower-case text."""
    return next(
        (name for name, meant in words.items() if re.search(rf"\b(?:{meant})\b", text)), None
    )


def topics(request: str) -> tuple[set[str], set[str]]:
    """Return the device topics and job topics that a request names."""
    text = request.lower()
    return _found(text, TOPICS), _found(text, JOB_TOPICS)


def _found(text: str, table: dict[str, tuple[str, tuple[str, ...]]]) -> set[str]:
    return {topic for topic, (words, _) in table.items() if re.search(rf"\b(?:{words})\b", text)}


def asked_jobs(request: str) -> list[str]:
    """Return the subjects of jobs named by number: `job 7`, `job #7`, `#7`."""
    numbers = re.findall(r"(?:\bjob\s*#?|#)(\d{1,18})\b", request.lower())
    return list(dict.fromkeys(f"job{int(n)}" for n in numbers))


def asked_devices(request: str, facts: Sequence[Fact]) -> list[str]:
    """Return the subjects of the devices named by number (`GPU 1`), or of all devices."""
    devices = [fact.subject for fact in facts if fact.name.endswith(".label")]
    numbers = re.findall(r"\b(?:gpu|device|card)\s*#?(\d{1,3})\b", request.lower())
    named = [d for d in devices for n in numbers if d in (f"gpu{int(n)}", f"replay{int(n)}")]
    return named if numbers else devices
