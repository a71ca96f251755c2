"""When jobs ran, as annotations of the time axis."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.protocol.annotation import Annotation
from scheduler.protocol.jobs import Ended, Job, Queued


def spans(jobs: Iterable[Job], since: float, until: float) -> list[Annotation]:
    """One for each device that a job held between the two times."""
    found: list[Annotation] = []
    for job in jobs:
        state = job.state
        if isinstance(state, Queued):
            continue
        began, ended = (state.started, state.at) if isinstance(state, Ended) else (state.at, None)
        if began is None or began > until or (ended is not None and ended < since):
            continue
        text = f"job {job.id} ({job.spec.name}): {job.status}"
        found += [Annotation(began, ended, "job", text, device, job.id) for device in state.devices]
    return found
