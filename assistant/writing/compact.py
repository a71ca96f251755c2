"""Write facts as the assistant's own small model reads them: which ones exist, never their values.

A line is a subject, its state, and the names of its facts: `j1 failed called name reason duration`.
Jobs are j1, j2, ... and devices d1, d2, ... in the order in which they are described. What follows
`no` has no value, and `temp~2` is what another source reports for `temp`. So no number, name or
word of a log can mislead the model, and none can be garbled: its text has slots, and code fills
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudeck.assistant.facts import Fact


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SYSTEM = "Tell."
MARK = "gpudeck-1"
"""The value of `prompts` in the config.json of a model that was trained on these lines."""
MOST_JOBS, MOST_DEVICES = 8, 8
_STATES = ("running", "starting", "stopping", "queued", "failed", "lost", "done", "cancelled")
_JOB = _words(
    "called name reason waiting running progress doing left duration ended devices code "
    "verdict backend tflops bandwidth "
    "median p95 device result"
)
_DEVICE = _words(
    "label use holder name util mem_used mem_total tflops temp power util.mean temp.mean temp.max"
)
_OTHERS = {
    "deck": ("devices", "paused", "notice0"),
    "span": ("when", "length"),
    "jobs": ("any", "ran", "queued", "failed", "lost"),
}
_SELDOM = ("progress", "left", "doing")
"""Facts that a text may mention or leave out."""
_NEEDED = ("reason", "verdict", "backend", "tflops")


def trained_for(path: str | Path) -> bool:
    """Return True if the model in this folder was trained on these lines."""
    try:
        known = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # The model is a single file, or comes from elsewhere.
    return isinstance(known, dict) and known.get("prompts") == MARK


class Compact(NamedTuple):
    """Hold the input of a small model, and what its slots stand for."""

    text: str
    """The user's part of the prompt."""
    slots: tuple[Fact, ...]
    """The facts it names, by the names it gives them."""
    required: Sequence[str]
    """The names among these that the text must mention."""
    covers: frozenset[str] = frozenset()
    """The original names of facts that the model is sure to mention where an answer needs them."""

    @property
    def needed(self) -> list[Fact]:
        """Return the facts that the text must mention."""
        return [fact for fact in self.slots if fact.name in self.required]

    def overdue(self, text: str) -> list[Fact]:
        """Return the required facts that a text with unfilled slots has passed over.

        The model follows the lines one by one, and does not come back.
        """
        subjects = list(dict.fromkeys(_subject(fact) for fact in self.slots))
        reached = max(
            (i for i, subject in enumerate(subjects) if f"{{{subject}." in text), default=0
        )
        return [fact for fact in self.needed if _subject(fact) in subjects[:reached]]


def _subject(fact: Fact) -> str:
    return fact.name.partition(".")[0]


def compact(facts: Sequence[Fact]) -> Compact:
    """Return the input for a brief of `facts`."""
    return _CompactWriter(facts).brief()


class _CompactWriter:
    def __init__(self, facts: Sequence[Fact]) -> None:
        self._by: dict[str, dict[str, list[Fact]]] = {}
        """By subject and name: what the sources report, newest first."""
        for fact in sorted(facts, key=lambda fact: fact.time)[::-1]:
            sayings = self._by.setdefault(fact.subject, {}).setdefault(
                fact.name.partition(".")[2], []
            )
            if fact.said not in (other.said for other in sayings):
                sayings.append(fact)
        self._jobs = sorted(
            (
                job
                for job in self._by
                if job[:3] == "job" and job != "jobs" and self._word(job, "state") in _STATES
            ),
            key=lambda job: (
                _STATES.index(self._word(job, "state")),
                -int(job.removeprefix("job")),
            ),
        )
        self._devices = [
            subject
            for subject in dict.fromkeys(fact.subject for fact in facts)
            if "label" in self._by[subject]
        ]
        self._lines: list[str] = []
        self._slots: list[Fact] = []
        self._covered: set[str] = set()

    def brief(self) -> Compact:
        """Return the input for a brief."""
        for subject, names in _OTHERS.items():
            self._line(subject, subject, "", names)
        required = self._job_lines(self._jobs)
        for i, device in enumerate(self._devices[:MOST_DEVICES], 1):
            self._line(f"d{i}", device, self._use(device), _DEVICE)
        return self._done("brief", required)

    def _job_lines(self, jobs: Sequence[str]) -> list[str]:
        """Add the lines of jobs; return what must be mentioned of them."""
        required = []
        for i, job in enumerate(jobs[:MOST_JOBS], 1):
            verdict = self._word(job, "verdict")
            stands = " ".join(
                filter(
                    None, (self._word(job, "state"), verdict if verdict in ("pass", "fail") else "")
                )
            )
            names = self._line(f"j{i}", job, stands, ("state", *_JOB))
            measured = f"j{i}.verdict" in names
            required += [name for name in names if name.partition(".")[2] in _NEEDED]
            required += [] if measured else [f"j{i}.state"]
        if len(jobs) > MOST_JOBS:
            self._lines.append("more")
        return required

    def _use(self, device: str) -> str:
        use = self._word(device, "use").partition(" ")[0].strip(":")
        return use if use in ("idle", "busy") else ""

    def _line(self, alias: str, subject: str, stands: str, names: Iterable[str]) -> list[str]:
        """Add a line with the facts of these names; return the new names of those with a value."""
        there: list[str] = []
        missing: list[str] = []
        for name in names:
            for i, fact in enumerate(self._by.get(subject, {}).get(name, [])[:2]):
                new = name if i == 0 else f"{name}~2"
                (missing if fact.value is None else there).append(new)
                self._covered |= {fact.name} if name not in _SELDOM else set()
                self._slots.append(msgspec.structs.replace(fact, name=f"{alias}.{new}"))
        if there or missing:
            shown = [name for name in there if name != "state"]
            self._lines.append(
                " ".join(filter(None, (alias, stands, *shown, "no" if missing else "", *missing)))
            )
        return [f"{alias}.{name}" for name in there]

    def _word(self, subject: str, name: str) -> str:
        """Return a fact's value if it is one of our own words, such as a state; else an empty
        string.
        """
        return next((fact.said for fact in self._by.get(subject, {}).get(name, ())), "")

    def _done(self, wanted: str, required: list[str]) -> Compact:
        known = {fact.name for fact in self._slots}
        needed = [name for name in required if name in known]
        return Compact(
            "\n".join([wanted, *self._lines]), tuple(self._slots), needed, frozenset(self._covered)
        )
