"""What is done with the queue of `conftest`, on a machine of two CPUs."""

from __future__ import annotations

from scheduler.protocol.devices import Device
from scheduler.protocol.jobs import Running, Spec
from scheduler.queue.queue import Queue
from tests.support import lives

CPU = Device("cpu", 0, "EPYC", "cpu")


def submit(queue: Queue, *argv: str, **more: object) -> int:
    return queue.submit([Spec(argv or ("true",), "x", "/", **more)], [CPU])[0].id  # type: ignore[arg-type]


def ended(queue: Queue, job: int) -> bool:
    state = queue.get(job).state
    if isinstance(state, Running) and not lives(state.runner):
        queue.reap([job])
    return not queue.get(job).active
