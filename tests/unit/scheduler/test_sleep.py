"""Test that a GPU that sleeps is not woken, on a tree of fake sysfs entries and a virtual clock."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.devices import probe, runtime_power
from gpudeck.scheduler.devices.sleep import AGAIN_S, QUIET_S, SETTLE_S, SleepAware, aware
from gpudeck.scheduler.protocol.absence import explain
from gpudeck.scheduler.protocol.busy_causes import Asleep
from gpudeck.scheduler.protocol.devices import Device, DevicesChanged, Process, Reading, Source
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy
from gpudeck.scheduler.queue.placement import UNREAD, device_use
from gpudeck.scheduler.telemetry.monitor import Monitor

NOW = 1_000_000.0


class Tree:
    """The kernel's entries of PCI devices."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        monkeypatch.setattr(runtime_power, "PCI", folder)
        self.add("0000:00:02.0", vendor="0x8086")
        self.add("0000:01:00.1", kind="0x040300")  # the sound of the card

    def add(self, address, status="suspended", control="auto", vendor="0x10de", kind="0x030000"):
        place = self.folder / address
        (place / "power").mkdir(parents=True)
        (place / "vendor").write_text(f"{vendor}\n")
        (place / "class").write_text(f"{kind}\n")
        (place / "power/control").write_text(f"{control}\n")
        self.set(address, status)

    def set(self, address, status):
        (self.folder / address / "power/runtime_status").write_text(f"{status}\n")


class Gpus(Source):
    """The driver's side: counts how often GPUs are opened, and keeps open ones awake."""

    def __init__(self, tree, addresses):
        self.tree, self.addresses = tree, addresses
        self.opened: list[int] = []
        self.open: set[int] = set()
        self.values = {"util": 0.0, "mem_total": 8.0}
        self.processes: tuple[Process, ...] = ()

    def __call__(self, closed):
        self.open = set(range(len(self.addresses))) - set(closed)
        self.opened += sorted(self.open)
        for i in self.open:
            self.tree.set(self.addresses[i], "active")
        return self

    def devices(self):
        return [Device(f"GPU-{i}", i, "RTX 4060 Laptop", "nvidia") for i in sorted(self.open)]

    def read(self, now):
        return [Reading(f"GPU-{i}", now, self.values, processes=self.processes) for i in self.open]

    def close(self):
        self.open = set()


@pytest.fixture
def tree(tmp_path, monkeypatch):
    return Tree(tmp_path, monkeypatch)


@pytest.fixture
def laptop(tree):
    """A laptop whose only NVIDIA GPU sleeps."""
    tree.add("0000:01:00.0")
    return Gpus(tree, ["0000:01:00.0"])


def test_a_gpu_that_sleeps_is_not_opened_for_an_hour(laptop):
    source = aware(laptop, NOW)
    for tick in range(7200):
        (reading,) = source.read(NOW + tick / 2)
    assert laptop.opened == []
    assert reading.asleep == NOW and reading.values == {}
    assert "wake it" in str(explain(reading.otherwise))
    assert [device.id for device in source.devices()] == ["pci-0000:01:00.0"]


def test_a_gpu_that_somebody_wakes_is_read_and_closed_once_nobody_uses_it(laptop, tree):
    source = aware(laptop, NOW)
    source.read(NOW)
    tree.set("0000:01:00.0", "active")
    laptop.processes = (Process(1, "game"),)
    source.read(NOW + 1)
    assert laptop.opened == [0] and [d.id for d in source.devices()] == ["GPU-0"]
    source.read(NOW + 100 + QUIET_S)
    assert laptop.open, "a program uses it"
    laptop.processes = ()
    source.read(NOW + 200)
    source.read(NOW + 200 + QUIET_S / 2)
    assert laptop.open
    (reading,) = source.read(NOW + 200 + QUIET_S)
    assert not laptop.open and reading.asleep is None
    assert "fall asleep" in str(explain(reading.otherwise))
    tree.set("0000:01:00.0", "suspended")
    for tick in range(int(SETTLE_S) * 4):
        (reading,) = source.read(NOW + 300 + tick)
    assert laptop.opened == [0] and reading.asleep == NOW + 300
    assert [d.id for d in source.devices()] == ["GPU-0"], "it keeps its name"


def test_a_gpu_that_others_keep_awake_is_read_again(laptop, tree):
    tree.set("0000:01:00.0", "active")
    source = aware(laptop, NOW)
    closed = [tick for tick in range(1800) if source.read(NOW + tick) and not laptop.open]
    first = range(int(QUIET_S), int(QUIET_S + SETTLE_S))
    assert set(first) <= set(closed)
    assert len(closed) <= 3 * SETTLE_S, f"closed at most every {AGAIN_S:.0f} s"


def test_a_job_that_needs_a_gpu_wakes_it(laptop, tree):
    source = aware(laptop, NOW)
    source.wake(True)
    assert source.read(NOW)[0].values and laptop.opened == [0]
    source.read(NOW + 10 * QUIET_S)
    assert laptop.open, "it stays open while it is wanted"
    source.wake(False)
    source.read(NOW + 11 * QUIET_S)
    assert not laptop.open


def test_one_gpu_sleeps_while_another_is_read(tree):
    tree.add("0000:01:00.0")
    tree.add("0000:41:00.0", "active", "on")
    gpus = Gpus(tree, ["0000:01:00.0", "0000:41:00.0"])
    source = aware(gpus, NOW)
    for tick in range(3600):
        awake, asleep = source.read(NOW + tick)
    assert gpus.opened == [1] and awake.values and asleep.asleep == NOW
    assert [(d.id, d.index) for d in source.devices()] == [("pci-0000:01:00.0", 0), ("GPU-1", 1)]


def test_gpus_that_never_sleep_are_read_as_ever(tree):
    tree.add("0000:01:00.0", "active", "on")
    gpus = Gpus(tree, ["0000:01:00.0"])
    assert aware(gpus, NOW) is gpus


def test_a_container_that_has_some_of_the_gpus_reads_them_as_ever(tree):
    tree.add("0000:01:00.0", "active")
    tree.add("0000:02:00.0", "active")
    gpus = Gpus(tree, ["0000:01:00.0"])
    assert aware(gpus, NOW) is gpus and gpus.open == {0}


def test_a_gpu_that_is_unplugged_changes_the_devices(laptop, tree, monkeypatch, tmp_path):
    source = aware(laptop, NOW)
    monkeypatch.setattr(runtime_power, "PCI", tmp_path / "none")
    with pytest.raises(DevicesChanged):
        source.read(NOW)


def test_a_gpu_that_sleeps_is_busy_and_gets_no_job_before_it_is_read(laptop):
    source, monitor = aware(laptop, NOW), Monitor()
    monitor.set_devices(tuple(source.devices()))
    readings = source.read(NOW)
    monitor.add(readings, ())
    (state,) = monitor.states((), Settings(), NOW)
    assert isinstance(state.use, Busy) and state.use.cause == Asleep(NOW)
    assert device_use(readings[0], ()) is UNREAD


def test_the_probe_names_a_gpu_anew_once_it_knows_more(laptop, tree, monkeypatch):
    sent = []
    monkeypatch.setattr(probe, "_send", sent.append)
    loop = probe.ProbeLoop(SleepAware(laptop, NOW), "nvml", 1.0)
    loop._introduce()
    loop._introduce()
    tree.set("0000:01:00.0", "active")
    loop._source.read(NOW)
    loop._introduce()
    assert [[d.id for d in hello.devices] for hello in sent] == [["pci-0000:01:00.0"], ["GPU-0"]]
