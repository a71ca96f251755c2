"""What jobs are found by: the words in them, and what became of them. Pure."""

from __future__ import annotations

import msgspec

from scheduler.protocol.errors import MALFORMED
from scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Failed,
    Job,
    Lost,
    Queued,
    Spec,
    State,
    status_of,
)

REJECTED = "rejected"
"""What became of a job that is done, and whose Result says that it did not pass."""
ACTIVE = ("queued", "starting", "running")
ENDED = ("done", REJECTED, "failed", "cancelled", "lost")
OUTCOMES = (*ACTIVE, *ENDED)
MOST_SEARCHED = 2000
"""Characters of a job that a search looks through: of a longer command the beginning."""
FOREVER = 1e18
MAX_LISTED = 1000
"""Jobs in one reply."""
NEWEST = 2**62
"""A number above that of any job."""


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs are looked for; what is left out does not matter."""

    text: str = ""
    """Words, in any case, each of them in the job's name, notes, tags, command or parameters; a number may be the job's own."""
    outcomes: tuple[str, ...] = ()
    """Of OUTCOMES."""
    group: str | None = None
    device: str = ""
    """A device that it held: its id."""
    since: float = 0.0
    """Not ended before then, seconds since the epoch."""
    until: float = FOREVER
    """Submitted before then."""

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.text.casefold().split())


class _Verdict(msgspec.Struct):
    """Of a Result, what says whether it passed (see `accel.result`)."""

    verdict: str = ""


_RESULT = msgspec.json.Decoder(_Verdict).decode


def searched(spec: Spec) -> str:
    """What the words of a search are looked for in."""
    said = (spec.name, spec.notes, *spec.tags, *spec.params.values(), *spec.argv)
    return " ".join(said)[:MOST_SEARCHED].casefold()


def outcome(state: State) -> str:
    """One of OUTCOMES."""
    if isinstance(state, Done):
        try:
            verdict = _RESULT(bytes(state.result)).verdict
        except MALFORMED:  # it left none, or a strange one
            verdict = ""
        return REJECTED if verdict and verdict.partition(":")[0].strip() != "pass" else "done"
    return status_of(state)


def ended(state: State) -> float | None:
    """Seconds since the epoch; None while it waits or runs."""
    return state.at if isinstance(state, Done | Failed | Cancelled | Lost) else None


def matches(search: Search, job: Job) -> bool:
    """Whether this is a job that is looked for; the store finds the same ones."""
    found, end = searched(job.spec), ended(job.state)
    return (
        all(word in found or word == str(job.id) for word in search.words)
        and (not search.outcomes or outcome(job.state) in search.outcomes)
        and search.group in (None, job.spec.group)
        and (not search.device or search.device in devices(job.state))
        and (end is None or end >= search.since)
        and job.submitted < search.until
    )


def devices(state: State) -> tuple[str, ...]:
    """Ids of the devices that it holds, or held last."""
    return () if isinstance(state, Queued) else state.devices
