"""The search for jobs, by their words, outcome, group, device and time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import MALFORMED
from gpudeck.scheduler.protocol.jobs import (
    Done,
    Job,
    Queued,
    Spec,
    State,
    status_of,
)

REJECTED = "rejected"
"""The outcome of a job that is done, and whose Result says that it did not pass."""
ACTIVE = ("queued", "starting", "running")
ENDED = ("done", REJECTED, "failed", "cancelled", "lost")
FAILED = ("failed", "lost", REJECTED)
"""The outcomes that a person looks into."""
OUTCOMES = (*ACTIVE, *ENDED)
MAX_SEARCHED = 2000
"""Characters of a job that are searched; of a longer command, the beginning."""
FOREVER = 1e18
MAX_LISTED = 1000
"""Jobs in one reply."""
NEWEST = 2**62
"""A number above that of any job."""


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Describe the jobs to find; a field that is left out does not matter."""

    text: str = ""
    """Words, all of which are in the name, notes, tags, command or parameters; or a number."""
    outcomes: tuple[str, ...] = ()
    """Any of OUTCOMES."""
    group: str | None = None
    device: str = ""
    """The id of a device that the job held."""
    since: float = 0.0
    """The job had not ended by then, in seconds since the epoch."""
    until: float = FOREVER
    """The job was submitted before then."""

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the text, folded."""
        return tuple(self.text.casefold().split())


class Words(NamedTuple):
    """Hold what a person typed to search for jobs."""

    text: str
    group: str | None
    device: str
    """The id of a device."""


def parse_words(typed: str, devices: Iterable[Device]) -> Words:
    """Read words, group:NAME and gpu:INDEX, as window and command line take them.

    Args:
        devices: The devices that an index may name; other names are kept as they are.
    """
    words, group, device = [], None, ""
    for word in typed.split():
        name, colon, value = word.partition(":")
        if colon and name.lower() == "group":
            group = value
        elif colon and value and name.lower() == "gpu":
            found = (d.id for d in devices if value in (d.id, d.number))
            device = next(found, value)
        else:
            words.append(word)
    return Words(" ".join(words), group, device)


class _Verdict(msgspec.Struct):
    """Decode the verdict of a Result (see `gpudeck.accel.result`)."""

    verdict: str = ""


_RESULT = msgspec.json.Decoder(_Verdict).decode


def searched(spec: Spec) -> str:
    """Return the text of a job in which words are searched."""
    texts = (spec.name, spec.notes, *spec.tags, *spec.params.values(), *spec.argv)
    return " ".join(texts)[:MAX_SEARCHED].casefold()


def outcome(state: State) -> str:
    """Return which of OUTCOMES this state is."""
    if isinstance(state, Done):
        try:
            verdict = _RESULT(bytes(state.result)).verdict
        except MALFORMED:  # there is no Result, or not one of ours
            verdict = ""
        return REJECTED if verdict and verdict.partition(":")[0].strip() != "pass" else "done"
    return status_of(state)


def matches(search: Search, job: Job, viewer: int | None = None) -> bool:
    """Return True where the job matches; the store finds the same jobs.

    Args:
        viewer: The user of a shared daemon who searches: to them the words and the verdict of
            another user's job are unknown. None: whoever may see everything.
    """
    hidden = viewer is not None and job.spec.user != viewer
    end = job.ended
    return (
        (not search.words if hidden else _has_words(search.words, job))
        and (not search.outcomes or _shown_outcome(job.state, hidden) in search.outcomes)
        and search.group in (None, job.spec.group)
        and (not search.device or search.device in devices(job.state))
        and (end is None or end >= search.since)
        and job.submitted < search.until
    )


def _shown_outcome(state: State, hidden: bool) -> str:
    return status_of(state) if hidden else outcome(state)


def _has_words(words: Sequence[str], job: Job) -> bool:
    """Return True where each word is in the job's text, which is made only for words."""
    found = searched(job.spec) if words else ""
    return all(word in found or word == str(job.id) for word in words)


def devices(state: State) -> tuple[str, ...]:
    """Return the ids of the devices that a job holds, or held last."""
    return () if isinstance(state, Queued) else state.devices
