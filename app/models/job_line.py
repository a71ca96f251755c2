"""A job in a line of text."""

from __future__ import annotations

import time

from app.models.jobs import row, state_word
from scheduler.jobs import Job


def describe(job: Job) -> str:
    """A job's state in a line: its name, and why it waits, how far it is, or how it ended."""
    return ", ".join(words for words in (state_word(job), doing(job)) if words)


def doing(job: Job) -> str:
    """Why a job waits, how far it is, or how it ended."""
    shown = row(job, {}, time.time())
    words = (shown.doing, f"after {shown.duration}" if shown.duration and not job.active else "")
    return ", ".join(w for w in words if w)
