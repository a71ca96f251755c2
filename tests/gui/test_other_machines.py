"""Test the devices of other machines in the window: their names, and states that only they have."""

from __future__ import annotations

import msgspec

from gpudeck.app.strip.chip_model import machine_chips
from gpudeck.app.strip.tile_model import tiles
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.absence import Unavailable
from gpudeck.scheduler.protocol.busy_causes import Asleep, OtherProcesses, Unreachable
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.snapshot import (
    Busy,
    DeviceState,
    HostState,
    Idle,
    Snapshot,
    everywhere,
)
from tests.gui import snapshots
from tests.gui.snapshots import NOW


def device(host: str, index: int = 0) -> Device:
    return Device(f"{host}/GPU-{index}", index, "NVIDIA RTX A6000", "nvidia", host=host)


def reading(of: Device, busy: bool) -> Reading:
    """Return a reading of an A6000, which reports no TFLOP/s and has 48 GiB."""
    values = {
        "util": 87.0 if busy else 0.0,
        "mem_used": (31.4 if busy else 0.6) * snapshots.GIB,
        "mem_total": 47.5 * snapshots.GIB,
        "temp": 71.0 if busy else 34.0,
        "temp_limit": 93.0,
        "power": 284.0 if busy else 22.0,
        "power_limit": 300.0,
    }
    absent = {"tflops": "NVML: Not Supported"}
    return Reading(of.id, NOW, values, absent=absent, texts={"throttle": "none"})


def with_hosts(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with a machine that is read, one that is gone, and a laptop."""
    busy, idle, gone, laptop = device("lab1"), device("lab1", 1), device("lab2"), device("laptop")
    asleep = Reading(laptop.id, NOW, {}, otherwise=Unavailable("asleep"), asleep=NOW - 60)
    lost = Unreachable(NOW - 60, phrase("it sent no readings"))
    hosts = (
        HostState("lab1", "lab1", NOW, None, (
            DeviceState(busy, reading(busy, True), Busy(OtherProcesses(2))),
            DeviceState(idle, reading(idle, False), Idle(NOW)),
        )),
        HostState("lab2", "lab2", NOW - 60, lost.why, (DeviceState(gone, None, Busy(lost)),)),
        HostState("laptop", "laptop", NOW, None, (DeviceState(laptop, asleep, Busy(Asleep(NOW))),)),
    )  # fmt: skip
    return everywhere(msgspec.structs.replace(snapshot, hosts=hosts))


def test_a_machine_of_which_one_gpu_is_unreachable_counts_the_others():
    busy, gone = device("lab1"), device("lab1", 1)
    lost = Unreachable(NOW - 60, phrase("it sent no readings"))
    lab = HostState("lab1", "lab1", NOW, None, (
        DeviceState(busy, reading(busy, True), Busy(OtherProcesses(2))),
        DeviceState(gone, None, Busy(lost)),
    ))  # fmt: skip
    made = everywhere(msgspec.structs.replace(snapshots.gpu_snapshot(1), hosts=(lab,)))
    chips = {chip.title: chip.text for chip in machine_chips(tiles(made))}
    assert chips["lab1"] == "1 of 2 busy  71 °C max"


def test_tiles_name_the_machine_and_its_state(fed):
    fed.feed(with_hosts(snapshots.gpu_snapshot(1)))
    tiles = {view.tile.title: view.tile for view in fed.window.strip.tiles.values()}
    assert list(tiles) == ["GPU 0", "lab1 GPU 0", "lab1 GPU 1", "lab2 GPU 0", "laptop GPU 0"]
    assert tiles["lab1 GPU 0"].usage == "in use" and tiles["lab1 GPU 1"].usage == "idle"
    gone, asleep = tiles["lab2 GPU 0"], tiles["laptop GPU 0"]
    assert gone.holder.startswith("Unreachable since ")
    assert gone.holder_tooltip == "it sent no readings" and not gone.quiet
    assert "unreachable since" in gone.metrics[0].tooltip
    assert asleep.holder.startswith("☾ Asleep since ") and asleep.quiet
    assert "reading it would wake it" in asleep.metrics[0].tooltip


def test_devices_of_one_number_are_told_apart(fed):
    fed.feed(with_hosts(snapshots.gpu_snapshot(2)))
    chips = [chip.text() for chip in fed.window.dashboard.legend.chips.values()]
    assert chips == ["0", "1", "lab1 0", "lab1 1", "lab2 0", "laptop 0"]
