"""What the executors of clusters need of the daemon."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.wait_reasons import ClusterUnavailable
from gpudeck.scheduler.protocol.wait_texts import explain
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.services.notices import NoticeBoard
from gpudeck.scheduler.services.runner_watch import RunnerWatch


class ClusterHub:
    """Pass on what clusters report; see `executors.cluster.Hub`."""

    def __init__(
        self,
        queue: Callable[[], Queue],
        runners: RunnerWatch,
        notices: NoticeBoard,
        step: Callable[[], None],
        touch: Callable[[], None],
    ) -> None:
        """Pass nothing on yet.

        Args:
            queue: returns the queue, which is made after this.
            runners: reaps attempts that are over.
            notices: shows clusters that do not answer.
            step: starts what can start.
            touch: publishes a new snapshot soon.
        """
        self._queue, self._runners, self._notices = queue, runners, notices
        self._step, self._touch = step, touch

    def jobs_on(self, where: str) -> list[Job]:
        """Return the jobs that were started there and have not ended."""
        return self._queue().jobs_on(where)

    def environment(self, job_id: int) -> dict[str, str]:
        """Return the environment the job was submitted with. Raises UserError."""
        return self._queue().environment(job_id)

    def acknowledge(self, job_id: int) -> None:
        """Commit that the cluster has the job's attempt."""
        self._queue().acknowledge(job_id)
        self._touch()

    def set_note(self, job_id: int, note: Message) -> None:
        """Show what holds the job up in its cluster."""
        self._queue().set_note(job_id, note)
        self._touch()

    def attempt_ended(self, job_id: int) -> None:
        """Reap the job's attempt, which is over."""
        self._runners.reap((job_id,))

    def cluster_changed(self, where: str, unavailable: ClusterUnavailable | None) -> None:
        """Show that a cluster does not answer, or start what waited for it."""
        self._notices.set(where, explain(unavailable, time.time()) if unavailable else None)
        self._step()
