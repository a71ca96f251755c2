"""Rows of the groups and the clusters, and the requests that change them. Free of Qt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.link.call import Call
from gpudeck.scheduler.executors.agent_protocol import Unreachable
from gpudeck.scheduler.executors.ray import Ray
from gpudeck.scheduler.executors.slurm import Slurm
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import GroupState, Running
from gpudeck.scheduler.protocol.settings import ADDRESS, CLUSTER, ClusterSettings
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.wait_texts import explain

_EXAMPLE = "http://head:8265"


@dataclass(frozen=True)
class GroupRow:
    """Hold what the table shows of a group, or of a cluster."""

    key: str
    cells: tuple[str, ...]
    tooltip: str = ""
    meaning: str = ""


def group_rows(groups: tuple[GroupState, ...]) -> tuple[GroupRow, ...]:
    """Return a row for each group."""
    return tuple(
        GroupRow(
            state.group.name,
            (
                state.group.name,
                str(state.running),
                str(state.waiting),
                str(state.group.limit or tr("none")),
                tr("Paused") if state.group.paused else tr("Active"),
            ),
            meaning="warm" if state.group.paused else "",
        )
        for state in groups
    )


def cluster_rows(snapshot: Snapshot) -> Iterator[GroupRow]:
    """Return a row for each cluster with its health, and how many jobs it has."""
    for name, cluster in snapshot.settings.clusters.items():
        reason = snapshot.unavailable.get(name)
        health = tr_text(explain(reason, snapshot.time)) if reason else tr("Reachable")
        jobs = sum(job.spec.where == name and job.active for job in snapshot.jobs)
        address = cluster.address or tr("local commands")
        yield GroupRow(name, (name, address, str(jobs), health), health, "failed" if reason else "")


def make_cluster(name: str, address: str, token_file: str) -> ClusterSettings:
    """Return the cluster that was typed. Raises UserError that says what to type."""
    if name.startswith("ray:") and not address:
        raise UserError(
            tr("enter the address of Ray's dashboard, such as {address}", address=_EXAMPLE)
        )
    if not re.search(ADDRESS, address):
        raise UserError(tr("an address begins with http:// or https://"))
    if not re.search(CLUSTER, name):
        raise UserError(tr("a cluster is named ray:NAME or slurm:NAME, such as ray:lab"))
    return ClusterSettings(address, token_file)


def removal_problem(name: str, snapshot: Snapshot) -> str:
    """Return why a cluster should not be removed now; empty where it may be."""
    running = [
        str(job.id)
        for job in snapshot.jobs
        if job.spec.where == name and isinstance(job.state, Running)
    ]
    if not running:
        return ""
    jobs = ", ".join(running)
    return tr("jobs run there ({jobs}): wait for them, or cancel them first", jobs=jobs)


class ReachCluster(msgspec.Struct, frozen=True):
    """Reach a cluster once, as its agent does."""

    name: str
    cluster: ClusterSettings

    def carry_out(self, call: Call) -> str:
        """Return what answered. Raises UserError with the reason where nothing did."""
        try:
            if self.name.startswith("ray:"):
                backend = Ray(self.cluster.address, self.cluster.token_file)
                try:
                    return _answers(self.name, backend.session())
                finally:
                    backend.close()
            return _answers(self.name, Slurm().session())
        except Unreachable as e:
            text = tr("{cluster} does not answer: {problem}", cluster=self.name, problem=e)
            raise UserError(text) from e


def _answers(cluster: str, session: str) -> str:
    return tr("{cluster} answers (session {session})", cluster=cluster, session=session)
