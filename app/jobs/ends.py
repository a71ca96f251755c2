"""Which jobs have ended since the last look, and ran so long that somebody may have turned to other work."""

from __future__ import annotations

from app.format.job_rows import ended, meaning, started
from app.format.values import duration
from scheduler.protocol.jobs import Job
from scheduler.protocol.snapshot import Snapshot


class JobEnds:
    """Looks at one snapshot after the other; what had ended before the first is no news."""

    def __init__(self) -> None:
        self._active: frozenset[int] = frozenset()

    def news(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        """Title and text of what is to be told; nothing where the settings turn it off."""
        before, self._active = (
            self._active,
            frozenset(job.id for job in snapshot.jobs if job.active),
        )
        minutes = snapshot.settings.notify_minutes
        if isinstance(minutes, str):
            return []
        return [
            _told(job)
            for job in snapshot.jobs
            if job.id in before and not job.active and _ran(job) >= 60 * minutes and started(job)
        ]


def _ran(job: Job) -> float:
    return (ended(job) or 0.0) - (started(job) or 0.0)


def _told(job: Job) -> tuple[str, str]:
    word = "failed" if meaning(job) == "failed" else job.status
    reason = getattr(job.state, "reason", "")
    return (
        f"GPU Deck: job {job.id} {word}",
        f"{job.spec.name[:200]}, after {duration(_ran(job))}"
        + (f": {reason[:300]}" if reason else ""),
    )
