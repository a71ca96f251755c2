"""Find what would help a job, as notes: how to run it again, or what keeps it from starting."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.assistant.query.rows import Note
from gpudeck.scheduler.protocol import jobs as j
from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.retries import retry_changes
from gpudeck.scheduler.protocol.snapshot import Snapshot, label

_AGAIN = frozenset({"network", "killed", "memory"})
"""Kinds of failures that may be over when the job runs again as it is."""


def retry_note(job: j.Job, kind: str, log: Sequence[str], snapshot: Snapshot) -> Note | None:
    """Return the job with the option, and its value, with which it may succeed; None if none may.

    Args:
        job: The job that failed or was lost.
        kind: Of `failures.KINDS`; empty if no kind was recognized.
        log: Lines of its output.
        snapshot: The largest GPU of it limits the memory.
    """
    full = kind == "gpu memory"
    changes = retry_changes(job, "\n".join(log) if full else "", largest_gpu(snapshot))
    if not changes and kind not in _AGAIN and not isinstance(job.state, j.Lost):
        return None
    option, value = next(iter(changes.items()), ("", 0))
    return Note("retry", (job.id, option, value))


def largest_gpu(snapshot: Snapshot) -> float | None:
    """Return the bytes of the largest GPU, or None where unknown."""
    totals = [state.reading.values.get("mem_total") for state in snapshot.devices
              if state.reading is not None and state.device.kind != "cpu"]  # fmt: skip
    return max((total for total in totals if total is not None), default=None)


def obstacle_note(job: j.Job, snapshot: Snapshot) -> Note | None:
    """Return what keeps a job from starting that a person can change, with what it concerns."""
    if not isinstance(job.state, j.Queued):
        return None
    match job.state.wait:
        case w.Held():
            return Note("obstacle", ("held", job.id))
        case w.QueuePaused():
            return Note("obstacle", ("queue paused", ""))
        case w.GroupPaused(group=group):
            return Note("obstacle", ("group paused", group))
        case w.DependencyFailed(job=first):
            return Note("obstacle", ("first failed", first))
        case w.AllDrained(devices=names, mig=False):
            drained = [s.device.index for s in snapshot.devices if label(s.device) in names]
            return Note("obstacle", ("drained", drained[0])) if drained else None
        case w.NoRoom(devices=blockers) if any(isinstance(b, w.UsedBy) for b in blockers):
            return Note("obstacle", ("programs", ""))
        case _:
            return None
