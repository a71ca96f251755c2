"""How a job that ended is best run again. Pure."""

from __future__ import annotations

from typing import Any

from gpudeck.scheduler.protocol.jobs import Failed, Job
from gpudeck.scheduler.protocol.memory_errors import needed_memory, next_memory


def retry_changes(job: Job, full: str, largest: float | None) -> dict[str, Any]:
    """Return the fields of `Spec` with which a job that ended may succeed; none: as it was.

    Args:
        job: The job that failed or was lost.
        full: Its output if that says that the memory of the GPU was full, otherwise empty.
        largest: Bytes of the largest GPU; None where unknown.
    """
    state, limit = job.state, job.spec.timeout
    if full:
        need = needed_memory(full, job.usage.memory if job.usage else 0.0)
        reserved = job.spec.memory
        return {"memory": next_memory(reserved, need, largest)} if reserved else {}
    if limit and isinstance(state, Failed) and state.at - (state.started or state.at) >= limit:
        return {"timeout": 2 * limit}
    return {}
