"""A job in a line of text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from app.format.values import plural
from app.jobs.rows import row, state_word
from scheduler.protocol.jobs import Cancelling, Job
from scheduler.protocol.units import numbered

_NAMED = 5
"""Jobs of which each is named."""


def describe(job: Job) -> str:
    """A job's state in a line: its name, and why it waits, how far it is, or how it ended."""
    return ", ".join(words for words in (state_word(job), doing(job)) if words)


def doing(job: Job) -> str:
    """Why a job waits, how far it is, or how it ended."""
    shown = row(job, {}, time.time())
    words = (shown.doing, f"after {shown.duration}" if shown.duration and not job.active else "")
    return ", ".join(w for w in words if w)


def cancelled(done: Cancelling) -> Iterator[str]:
    """What an order to cancel many did, a line each; what is not there is left out."""
    for jobs, became in (
        (done.cancelled, "cancelled"),
        (done.ending, "being ended"),
        (done.ended, "ended already"),
    ):
        if jobs:
            yield f"{several(jobs)}: {became}"
    if not (done.cancelled or done.ending or done.ended):
        yield "nothing to cancel: none of them waits or runs"


def before_cancelling(waiting: int, running: int) -> str:
    """The question before so many jobs are cancelled, and what becomes of them."""
    parts = (
        [f"{waiting} {'waits' if waiting == 1 else 'wait'} and will never run"] if waiting else []
    )
    parts += [f"{running} {'runs' if running == 1 else 'run'} and will be ended"] if running else []
    return f"Cancel {plural(waiting + running, 'job')}? {', '.join(parts)}."


def several(jobs: Sequence[int]) -> str:
    """job 3; jobs 3 and 4; 200 jobs from 3 to 950."""
    return (
        numbered(jobs) if len(jobs) <= _NAMED else f"{len(jobs)} jobs from {jobs[0]} to {jobs[-1]}"
    )
