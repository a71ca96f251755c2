"""The executors by the places where jobs run: this machine, and the clusters in the settings."""

from __future__ import annotations

from collections.abc import Mapping

from gpudeck.language.text import phrase
from gpudeck.scheduler.attempts import Executor, Outcome, Untraceable, attempt_of
from gpudeck.scheduler.executors.attempt_folder import exit_record
from gpudeck.scheduler.executors.cluster import Cluster
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.submissions import SubmissionRecord
from gpudeck.scheduler.protocol.wait_reasons import WaitReason


class ExecutorRegistry:
    """Give access to the executor of this machine and to those of the clusters."""

    def __init__(self, local: Local, clusters: Mapping[str, Cluster]) -> None:
        self._local, self._clusters = local, clusters

    def of(self, where: str) -> Executor:
        """Return the executor of this cluster; of this machine for an empty name."""
        if not where:
            return self._local
        return self._clusters.get(where) or MissingCluster(where)

    def clusters(self) -> Mapping[str, WaitReason | None]:
        """Return for each cluster why it can start nothing now; None where it can."""
        return {name: cluster.unavailable for name, cluster in self._clusters.items()}


class MissingCluster(Executor):
    """Stand for a cluster that is named in a job and not in the settings any more.

    It starts nothing. What was started there may run on, but its end will never be known.
    """

    def __init__(self, where: str) -> None:
        self._problem = phrase("{where} is not in the settings any more", where=where)

    def prepare(
        self,
        job: Job,
        attempt: str,
        devices: tuple[str, ...],
        submission: SubmissionRecord | None = None,
    ) -> Running:
        raise UserError(self._problem)

    def alive(self, running: Running) -> bool:
        return False

    def outcome(self, job: Job) -> Outcome:
        return exit_record(job.id, attempt_of(job).attempt) or Untraceable(self._problem)
