"""Look up facts by name and subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpudeck.assistant.facts import Fact, named, phrases
from gpudeck.assistant.facts.devices import IDLE
from gpudeck.language.rendering import render

STATES = ("running", "starting", "stopping", "queued", "failed", "lost", "done", "cancelled")
"""The order in which jobs are described: what runs, waits or failed before what is done."""


class FactIndex:
    """Index facts. Every lookup may find nothing: no fact is guaranteed to exist."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = facts
        self._named = named(facts)

    def has(self, name: str) -> bool:
        """Return True if there is such a fact, with or without a value."""
        return name in self._named

    def text(self, name: str) -> str | None:
        """Return a fact's value in words; None if the fact is missing or has no value."""
        fact = self._named.get(name)
        return fact.said if fact is not None and fact.value is not None else None

    def of(self, subject: str) -> Callable[[str], str | None]:
        """Return `text` for the facts of one subject."""
        return lambda what: self.text(f"{subject}.{what}")

    def why_absent(self, name: str) -> str | None:
        """Return why a fact has no value; None if it has one, or is missing."""
        fact = self._named.get(name)
        if fact is None or fact.value is not None:
            return None
        return phrases.escaped(render(fact.worded or ""))

    def number(self, name: str) -> float | None:
        """Return the value itself, for comparisons only."""
        value = self._named[name].value if name in self._named else None
        return value if isinstance(value, int | float) else None

    def is_idle(self, device: str) -> bool:
        """Return True if the device is known to be idle."""
        use = self._named.get(f"{device}.use")
        return use is not None and use.value == IDLE

    def texts(self, prefix: str) -> list[str]:
        """Return the values of all facts whose names begin with `prefix`."""
        return [fact.said for name, fact in self._named.items() if name.startswith(prefix)]

    def devices(self) -> list[str]:
        """Return the subjects of the devices."""
        return self._subjects(".label")

    def jobs(self, *states: str) -> list[str]:
        """Return the subjects of the jobs in these states, or of all, by state and newest first."""
        found = [
            (STATES.index(state), -int(job.removeprefix("job")))
            for job in self._subjects(".state")
            if (state := self._state(job))
        ]
        return [
            f"job{-number}"
            for state, number in sorted(found)
            if not states or STATES[state] in states
        ]

    def _subjects(self, suffix: str) -> list[str]:
        return [name.removesuffix(suffix) for name in self._named if name.endswith(suffix)]

    def _state(self, job: str) -> str | None:
        state = self.text(f"{job}.state")
        return state if state in STATES else None
