"""A recorded GPU at NVML's edge, for tests of what stands above it; a queue with a real store and
real runners."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from gpudeck.scheduler.devices.nvidia import clocks, errors, gpm, gpu, source
from gpudeck.scheduler.protocol import calibration, paths
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.store import Store
from tests.unit.scheduler.own_queue import make_queue
from tests.unit.scheduler.recorded_nvml import RecordedNvml


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> RecordedNvml:
    for name, found in vars(pynvml).copy().items():
        if name.startswith("nvml"):
            monkeypatch.setattr(pynvml, name, found)  # put back at the end
    recorded = RecordedNvml(healthy=False)
    recorded.install()
    monkeypatch.setattr(errors, "_DRIVER", Path("/nowhere"))
    monkeypatch.setattr(calibration, "KNOWN_CARDS", {})  # its counters are compared as they are
    for module in (clocks, gpm, gpu, source):
        monkeypatch.setattr(module, "monotonic", lambda: recorded.now)
    return recorded


@pytest.fixture
def store(home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    found = Store(paths.store_file())
    yield found
    found.close()


@pytest.fixture
def queue(store: Store) -> Queue:
    return make_queue(store)
