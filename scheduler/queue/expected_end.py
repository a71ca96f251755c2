"""When a running job is expected to end: by its pace so far, or by its limit of time. Pure."""

from __future__ import annotations

from typing import NamedTuple

from scheduler.protocol.jobs import Job, Running
from scheduler.protocol.units import clock


class End(NamedTuple):
    """An expected end, in seconds since the epoch."""

    at: float
    latest: bool = False
    """It is the latest, as the job has a limit of time and reports no progress."""

    def words(self, now: float) -> str:
        """Such as "about 14:32", or "14:32 at the latest"."""
        return (
            f"{clock(self.at, now)} at the latest"
            if self.latest
            else f"about {clock(self.at, now)}"
        )


def expected_end(job: Job, now: float) -> End | None:
    """None where the job has reported nothing from which it could be told, and has no limit."""
    state, limit = job.state, job.spec.timeout
    if not isinstance(state, Running):
        return None
    said = state.progress
    if said is not None and said.done > 0 and said.time > state.at:
        left = (said.total - said.done) * (said.time - state.at) / said.done
        at = max(said.time + left, now)
        return End(min(at, max(state.at + limit, now)) if limit else at)
    return End(max(state.at + limit, now), latest=True) if limit else None
