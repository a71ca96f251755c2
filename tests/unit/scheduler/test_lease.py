"""A lease is over when the process has ended and its memory is free again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpudeck.scheduler.lease import lease as leases
from gpudeck.scheduler.lease.lease import Lease
from gpudeck.scheduler.protocol.devices import Process, Reading

GIB = 2.0**30


def read(free: float, *processes: Process) -> Reading:
    return Reading("GPU-0", 1000.0, {"mem_free": free * GIB}, {}, processes=processes)


@pytest.fixture
def lease(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    """Yield a lease whose process has ended; time alone never frees its device here."""
    monkeypatch.setattr(leases, "TRUST_S", 1e9)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    made = Lease(read(70.0), process.pid, lambda reason: None)
    made.add_reading(read(70.0))  # of the time before the end, which says nothing
    made.kill()
    process.communicate()
    assert not made.is_over()
    made.end()
    yield made


def test_the_device_is_held_until_its_memory_is_free(lease: Lease) -> None:
    assert not lease.is_over()
    lease.add_reading(read(40.0))
    assert not lease.is_over(), "the memory is still taken"
    lease.add_reading(read(69.9))
    assert lease.is_over()


def test_the_device_is_held_while_the_driver_lists_the_process(lease: Lease) -> None:
    mine = Process(7, "python", memory=30 * GIB, assistant=True)
    lease.add_reading(read(70.0, mine))
    assert not lease.is_over()


def test_memory_that_others_took_meanwhile_holds_nothing(lease: Lease) -> None:
    lease.add_reading(read(40.0, Process(8, "train", memory=30 * GIB)))
    assert lease.is_over()
