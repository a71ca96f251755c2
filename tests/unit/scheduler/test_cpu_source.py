"""The CPU as a device: real readings of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace as Answer

import psutil
import pytest

from gpudeck.scheduler.devices import cpu, machine, process_load
from gpudeck.scheduler.devices.cpu import CpuSource
from gpudeck.scheduler.protocol.fields import FIELDS, HEADLINE


@pytest.fixture
def source() -> CpuSource:
    return CpuSource("no NVIDIA GPU can be reached: Driver Not Loaded")


def test_it_says_what_it_is_and_why(source: CpuSource) -> None:
    (device,) = source.devices()
    assert device.kind == "cpu"
    assert str(device.note) == "CPU: no NVIDIA GPU found"
    assert device.facts["why"] == "no NVIDIA GPU can be reached: Driver Not Loaded"
    assert device.facts["threads"] == str(psutil.cpu_count())
    assert device.name


def test_every_field_is_there_or_says_why_not(source: CpuSource) -> None:
    source.read(time.time())
    (reading,) = source.read(time.time())
    assert set(reading.values) & set(reading.absent) == set()
    assert set(reading.values) | set(reading.absent) <= set(FIELDS), "each has a label and a unit"
    assert set(HEADLINE) <= set(reading.values) | set(reading.absent)
    assert all(reading.explained().values())


def test_figures_are_those_of_this_machine(source: CpuSource) -> None:
    before = psutil.virtual_memory()
    (reading,) = source.read(time.time())
    memory = psutil.virtual_memory()
    values = reading.values
    assert 0 <= values["util"] <= 100
    assert values["mem_total"] == memory.total
    assert values["mem_used"] + values["mem_free"] == memory.total
    used = sorted(memory.total - m.available for m in (before, memory))
    assert 0.8 * used[0] <= values["mem_used"] <= 1.2 * used[1], "other programs may take some"
    assert values["cores"] == psutil.cpu_count()


def test_power_is_energy_over_time(
    source: CpuSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel's files, in a folder of ours: two packages, a core of one, the whole platform, and
    a counter that wraps."""
    monkeypatch.setattr(cpu, "_RAPL", tmp_path)

    def counters(package0: int, package1: int) -> None:
        zones = [
            (0, "package-0", package0),
            (1, "package-1", package1),
            ("0:0", "core", 10**12),
            (2, "psys", package0 + package1),
        ]
        for number, name, microjoules in zones:
            zone = tmp_path / f"intel-rapl:{number}"
            zone.mkdir(exist_ok=True)
            (zone / "name").write_text(f"{name}\n")
            (zone / "energy_uj").write_text(f"{microjoules}\n")

    def power(now: float) -> float | str:
        (reading,) = source.read(now)
        return (
            reading.values["power"] if "power" in reading.values else reading.explained()["power"]
        )

    assert power(0.0) == "this kernel exposes no RAPL energy counter (/sys/class/powercap)"
    counters(0, 0)
    assert power(1.0) == "not known before the second reading"
    counters(30_000_000, 10_000_000)
    assert power(3.0) == pytest.approx(20.0)
    counters(0, 11_000_000)
    assert power(5.0) == "not known before the second reading", (
        "a wrapped counter is no negative power"
    )
    counters(5_000_000, 11_000_000)
    assert power(6.0) == pytest.approx(5.0)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("garbage")
    assert "cannot be read" in str(power(7.0))


def test_core_disk_and_network_details_are_read_on_request(
    source: CpuSource, tmp_path: Path
) -> None:
    source.details(time.time())
    with (tmp_path / "written").open("wb") as f:
        f.write(b"x" * 2**22)
        f.flush()
        os.fsync(f.fileno())
    time.sleep(0.01)
    (detail,) = source.details(time.time())
    by_kind = {
        kind: [p for p in detail.parts if p.kind == kind] for kind in ("core", "disk", "network")
    }
    assert len(by_kind["core"]) == psutil.cpu_count()
    assert all(0 <= core.values["util"] <= 100 for core in by_kind["core"])
    assert all(f in FIELDS for p in detail.parts for f in p.values)
    assert "lo" not in [p.name for p in by_kind["network"]], (
        "what the machine says to itself is no traffic"
    )


def test_processes_are_listed_by_load_with_what_they_are(
    source: CpuSource,
) -> None:
    code = "import sys\nprint(1, flush=True)\nwhile True: pass"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "GPUDECK_JOB": "12"},
    ) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.read(1)
            (detail,) = source.details(time.time())
            first = {p.pid: p for p in detail.cpu_processes}
            assert first[busy.pid].cpu is None, "a load needs two readings"
            time.sleep(process_load.LEAST_S + 0.1)
            (detail,) = source.details(time.time())
        finally:
            busy.kill()
    found = {p.pid: p for p in detail.cpu_processes}
    assert detail.processes == (), "none of them uses a GPU"
    loads = [p.cpu or 0.0 for p in detail.cpu_processes]
    assert loads == sorted(loads, reverse=True)
    made = found[busy.pid]
    assert made.cpu is not None
    assert made.cpu > 5
    assert (made.job, made.kind) == (12, "cpu")
    assert made.memory is not None
    assert made.memory > 2**20
    assert "while True" in made.command
    assert found[os.getpid()].ticks == first[os.getpid()].ticks > 0


def test_flows_are_those_of_real_disks_and_networks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel's counters of a disk with a volume on it, and of a card with a bridge over it:
    each byte counts once."""
    for name in ("sda", "eth0"):
        (tmp_path / name / "device").mkdir(parents=True)
    monkeypatch.setattr(machine, "_BLOCK", tmp_path)
    monkeypatch.setattr(machine, "_NET", tmp_path)
    moved = [0]

    def disks(perdisk: bool) -> dict[str, Answer]:
        return {
            name: Answer(read_bytes=moved[0], write_bytes=2 * moved[0])
            for name in ("sda", "sda1", "dm-0", "loop0")
        }

    def networks(pernic: bool) -> dict[str, Answer]:
        return {
            name: Answer(bytes_recv=3 * moved[0], bytes_sent=moved[0])
            for name in ("lo", "eth0", "docker0")
        }

    monkeypatch.setattr(psutil, "disk_io_counters", disks)
    monkeypatch.setattr(psutil, "net_io_counters", networks)
    source = CpuSource("")
    (reading,) = source.read(100.0)
    assert (
        reading.explained()["disk_read"]
        == reading.explained()["net_rx"]
        == "not known before the second reading"
    )
    moved[0] = 1000
    (reading,) = source.read(102.0)
    assert [reading.values[f] for f in ("disk_read", "disk_write", "net_rx", "net_tx")] == [
        500.0,
        1000.0,
        1500.0,
        500.0,
    ]
    moved[0] = 10
    (reading,) = source.read(104.0)
    assert reading.values["net_rx"] == 0.0, (
        "a card that was plugged in anew has sent nothing backwards"
    )
