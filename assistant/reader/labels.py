"""What a request can mean: the one table from which its readers, checker and guide are made.

A label is a list of meanings. Each has one head (`ask`, `order`, `manual` or `talk`) with its
value, and fields: words of the table, or spans, which are letters of the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

REFERENCES = ("@it", "@them", "@first", "@second", "@third", "@last", "@others", "@all", "@newest",
              "@oldest", "@me", "@same")  # fmt: skip
"""What a span may be in place of letters: a thing that was spoken of before."""

_MEASURES = {
    "gpus": "use util memory_used memory_free memory_total temperature memory_temperature power "
            "power_limit energy cost clock fan rate bandwidth slowed health link model serial "
            "mode uptime driver holder flops_per_watt tokens_per_watt cpu other",
    "jobs": "state why_waiting why_failed why_slow progress loss time_left start end duration "
            "waited submitted user command output files result memory host_memory util rate "
            "energy cost gpu_hours gpus priority place options stuck retries checkpoint group tags "
            "other",
    "processes": "memory util user command pid job duration other",
    "alerts": "list thresholds other",
    "queue": "state length order groups other",
    "users": "jobs gpus gpu_hours memory energy limits access activity other",
    "models": "fits served installed assistant speed requests progress size other",
}  # fmt: skip
_PLAIN = ("bookings", "capacity", "settings", "backend", "log_search", "conversion", "disk", "code",
          "machines", "overview", "actions", "other")  # fmt: skip
SUBJECTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: tuple(text.split()) for name, text in _MEASURES.items()} | dict.fromkeys(_PLAIN, ())
)
"""The subjects of questions with their measures."""
_ORDERS = """
submit retry edit cancel pause resume move kill free drain undrain book unbook limit note
acknowledge set notify message account clean file undo report export open serve unserve download
shutdown other
"""
ORDERS = tuple(_ORDERS.split())
TALK = ("hello", "thanks", "bye", "yes", "no", "complaint", "abilities", "self",
        "outside", "unclear")  # fmt: skip
PAGES = ("alerts", "assistant", "attention", "cards", "cleaning-up", "clusters", "containers",
         "distributed", "environment", "injection", "install", "machines", "models", "monitor",
         "precision", "queue", "search", "serving", "settings", "shared", "suspension", "threats",
         "tiles", "training", "upgrade", "none")  # fmt: skip
_SPANS = """
jobs group user tag gpus pid except time time2 ahead above below limit to amount price words
setting folder model alert count memory duration begin gpu_type command workload host_memory
cpus name after after_any timeout retries priority array notes until from beside number value
page format term at if
"""
SPANS = tuple(_SPANS.split())
"""Fields whose values are letters of the request."""
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "states": ("queued", "running", "done", "failed", "cancelled", "lost", "held", "suspended",
               "idle", "busy", "drained"),
    "which": ("highest", "lowest", "newest", "oldest"),
    "combine": ("sum", "mean", "max", "min", "count"),
    "by": ("user", "name", "gpu", "group", "day", "hour"),
    "compare": ("each", "others", "before"),
    "change": ("more", "less", "on", "off"),
    "place": ("first", "last", "before", "after", "up", "down"),
    "event": ("end", "fail", "start", "idle", "free", "hot", "other"),
    "kinds": ("caches", "logs", "dumps", "processes", "models", "memory", "results", "trash",
              "all"),
    "when": ("yes",), "queue": ("yes",), "preemptible": ("yes",), "hold": ("yes",),
    "what_if": ("yes",),
})  # fmt: skip
"""Fields whose values are words of the table; `yes` stands for true."""


def heads() -> tuple[str, ...]:
    """Return what a meaning may be, such as `ask gpus` or `talk thanks`."""
    return (
        *(f"ask {name}" for name in SUBJECTS),
        *(f"order {name}" for name in ORDERS),
        "manual",
        *(f"talk {name}" for name in TALK),
    )


def marks() -> tuple[str, ...]:
    """Return what may be true of a meaning: measures, choices and references."""
    measures = sorted({name for names in SUBJECTS.values() for name in names})
    return (
        *(f"measure={name}" for name in measures),
        *(f"{field}={value}" for field, values in CHOICES.items() for value in values),
        *(f"{field}={name}" for field in ("jobs", "gpus", "pid", "except", "beside")
          for name in REFERENCES if name not in ("@me", "@same")),
        *(f"{field}=@same" for field in ("time", "measure")),
        "user=@me", "user=@it", "user=@others", "group=@it", "model=@it", "setting=@it",
        "folder=@it", "alert=@it", "term=@it", "command=@same", "after=@it", "value=@same",
    )  # fmt: skip


def head_of(meaning: Mapping[str, object]) -> str:
    """Return the head of a meaning."""
    for name in ("ask", "order", "talk"):
        if name in meaning:
            return f"{name} {meaning[name]}"
    return "manual"


def marks_of(meaning: Mapping[str, object]) -> Iterator[str]:
    """Yield the marks of a meaning; not all of them are among `marks`."""
    for field, value in meaning.items():
        if field in ("ask", "order", "manual", "talk"):
            continue
        for one in value if isinstance(value, list) else [value]:
            if one is True:
                yield f"{field}=yes"
            elif field in CHOICES or field == "measure" or str(one).startswith("@"):
                yield f"{field}={one}"


def spans_of(meaning: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a meaning that are letters of the request, with these."""
    for field, value in meaning.items():
        if field in SPANS:
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str) and not one.startswith("@"):
                    yield field, one


_LONGEST = 90
"""Characters of the last request that the reader gets with the next one."""


def described(head: str, marks: Iterable[str], fields: Iterable[str], text: str = "") -> str:
    """Return a request and its meaning as the reader gets them with the next request.

    Args:
        head: The head of its meaning.
        marks: The marks of its meaning.
        fields: The fields of which letters were said.
        text: The request itself, if it is known.
    """
    values = (mark.partition("=") for mark in marks)
    said = {field if value[0] == "@" or value == "yes" else value for field, _, value in values}
    meaning = " ".join([head, *sorted(said | {*fields})])
    return f"{meaning}: {text[:_LONGEST]}" if text else meaning
