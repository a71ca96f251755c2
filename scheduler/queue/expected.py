"""When a running job is expected to end: by its pace so far. Pure."""

from __future__ import annotations

from typing import NamedTuple

from scheduler.jobs import Job, Running
from scheduler.units import clock


class End(NamedTuple):
    """An expected end, in seconds since the epoch."""

    at: float

    def words(self, now: float) -> str:
        """Such as "about 14:32"."""
        return f"about {clock(self.at, now)}"


def expected_end(job: Job, now: float) -> End | None:
    """None where the job has reported nothing from which it could be told."""
    state = job.state
    if not isinstance(state, Running) or (said := state.progress) is None:
        return None
    if said.done <= 0 or said.time <= state.at:
        return None
    left = (said.total - said.done) * (said.time - state.at) / said.done
    return End(max(said.time + left, now))
