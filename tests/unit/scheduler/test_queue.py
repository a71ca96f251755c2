"""The queue on a real store, with real runners: what a daemon's loop would drive, driven by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler import paths
from scheduler.devices.model import Device
from scheduler.jobs import Queued, Spec
from scheduler.queue.queue import Queue
from scheduler.store import Store

GPU, CPU = Device("GPU-0", 0, "H100", "nvidia"), Device("cpu", 0, "EPYC", "cpu")


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    found = Store(paths.store_file())
    yield found
    found.close()


def test_a_job_submitted_before_the_devices_are_known_is_for_the_first_that_are(store: Store) -> None:
    queue = Queue(store, lambda job, runner: None)
    queue.paused = True
    job = queue.submit(Spec(("true",), "a", "/", gpus=1), [])
    queue.step([GPU])
    assert store.get(job.id).spec.kind == "nvidia"
    again = Queue(store, lambda job, runner: None)
    again.step([CPU])
    assert again.get(job.id).state == Queued("was submitted for NVIDIA GPUs; this machine shows the CPU now")
