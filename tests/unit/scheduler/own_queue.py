"""Make and drive a queue on a machine of two CPUs, as a daemon's loop would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpudeck.scheduler.executors.cluster import Cluster
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.executors.registry import ExecutorRegistry
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.protocol.wait_reasons import WaitReason
from gpudeck.scheduler.queue.placement import ALL_FREE, Availability
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.store import Store
from tests.support import lives

CPU = Device("cpu", 0, "EPYC", "cpu")
GPU = Device("GPU-0", 0, "H100", "nvidia")


def make_queue(
    store: Store,
    watch: Callable[[int, int], None] = lambda job, runner: None,
    *,
    clusters: Mapping[str, Cluster] | None = None,
    local: Local | None = None,
) -> Queue:
    """Return a queue whose attempts run as processes, and in these clusters.

    `watch` is called with a job and its runner; a test that leaves it out polls instead.
    """
    return Queue(store, ExecutorRegistry(local or Local(watch), clusters or {}))


def submit_all(
    queue: Queue,
    specs: Sequence[Spec],
    devices: Sequence[Device],
    availability: Availability = ALL_FREE,
    token: str = "",
) -> list[Job]:
    """Submit jobs at once, all or none."""
    return finish(queue.submission.submit(specs, devices, availability, token))


def submit(queue: Queue, *argv: str, **more: object) -> int:
    """Submit a job, and return its number."""
    return submit_all(queue, [Spec(argv or ("true",), "x", "/", **more)], [CPU])[0].id  # type: ignore[arg-type]


def ended(queue: Queue, job: int) -> bool:
    """Reap the job once its runner is gone, and return whether it has ended."""
    state = queue.get(job).state
    if isinstance(state, Running) and not lives(state.runner):
        queue.reap([job])
    return not queue.get(job).active


def wait_reason(queue: Queue, job: int) -> WaitReason:
    """Return why a job waits."""
    state = queue.get(job).state
    assert isinstance(state, Queued)
    return state.wait
